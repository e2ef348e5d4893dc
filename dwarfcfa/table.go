package dwarfcfa

import (
	"debug/elf"
	"errors"
	"fmt"
	"sort"
)

// BuildOptions says how a table is made.
type BuildOptions struct {
	Source Source // section to read
	Strict bool   // a lost FDE or a row that is not compiled is an error
	Made   Made   // rows that are not the file's

	// AllowEmpty makes BuildTable return an empty table, which covers no pc, for an
	// object without FDEs; otherwise that is an error. If there are FDEs and all are
	// bad, it is always an error.
	AllowEmpty bool

	// Detached takes a file without code, such as a separate debug file, for one with code: at the addresses that its
	// executable segments have in memory.
	Detached bool
}

// Made holds rows made from the code of an object: a section of their own, and the
// pcs for which they replace the file's rows.
type Made struct {
	Section *Section // nil: none
	Replace []Range  // ascending, disjoint; Row is ignored. The file's rows there do not count
	All     bool     // none of the file's rows counts
}

// maxListed bounds the lists of a Report; its counts have no bound.
const maxListed = 10000

// Report says what became of a section's entries.
type Report struct {
	Source      string // name of the section read
	SectionSize int64  // its size in bytes, decompressed
	HdrSize     int64  // size of .eh_frame_hdr in bytes

	Entries EntryCounts
	Rows    RowCounts

	LostFDEs    []*DecodeError // the first of those that Entries.Lost counts
	Bounded     bool           // some of them because of bounds of the whole object, such as MaxRows
	NotCompiled []NotCompiled  // the first of those that Rows.NotCompiled counts
}

// EntryCounts counts the entries of a section.
type EntryCounts struct {
	CIEs        int
	FDEs        int // all, including those counted below
	Empty       int // cover no pc
	Shadowed    int // start where an earlier FDE of the section starts
	OutsideCode int // start outside the file-backed executable segments, as FDEs of discarded functions do
	Clipped     int // start in code and run past its end
	Lost        int // left out because they, or their CIE, are malformed or unsupported
}

// RowCounts counts the rows of a table.
type RowCounts struct {
	Ranges      int   // row ranges before merging
	Made        int   // of them, those that were made from code
	MadeBytes   int64 // the bytes of code that these hold for; see Made
	NotCompiled int   // row ranges that hold a rule which cannot be compiled
	FilledGaps  int   // stretches of padding that took the row before them
	PoppedRules int   // distinct rows in which a popped register became same value
	Merged      int   // row ranges after merging: len(Table.Ranges)
	Distinct    int   // len(Table.Rows)
	Exprs       int   // expressions that Table.Rows use
}

// NotCompiled is a row range with a rule that cannot be compiled.
type NotCompiled struct {
	FDE        uint64 // offset of the FDE in the section
	Start, End Addr   // pcs of the range
	Reason     error
}

func (n NotCompiled) String() string {
	return fmt.Sprintf("+%#x: row %#x..%#x: %v", n.FDE, uint64(n.Start), uint64(n.End), n.Reason)
}

// BuildTable reads the object's unwind section and makes its table. With
// SourceAuto that is .eh_frame, and .debug_frame for pcs that .eh_frame does
// not cover. A bad FDE is left out and reported, and its range has no row; the
// rest of the table is not affected. The report is not nil if the section was
// read.
func BuildTable(o *File, opt BuildOptions) (*Table, *Report, error) {
	t, rep, err := fileTable(o, opt)
	if opt.Made.Section == nil || err != nil && (!errors.Is(err, ErrNoUnwindInfo) || opt.Strict && rep != nil) {
		return t, rep, err
	}
	t, rep, more := addMade(o, t, rep, opt)
	switch {
	case more != nil:
		return nil, rep, more
	case len(t.Ranges) == 0 && err != nil:
		return nil, rep, err
	case len(t.Ranges) == 0 && !opt.AllowEmpty:
		return nil, rep, nameError(o.name, fmt.Errorf("%w: no row is left", ErrNoUnwindInfo))
	}
	return t, rep, nil
}

// fileTable makes the table of the file's own rows.
func fileTable(o *File, opt BuildOptions) (*Table, *Report, error) {
	s, kind, err := o.source(opt.Source)
	if opt.AllowEmpty && errors.Is(err, ErrNoUnwindInfo) {
		return &Table{}, &Report{}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	code := o.codeImage()
	if opt.Detached && len(code.segments) == 0 {
		code.segments = codeSegments(o.file, func(p *elf.Prog) uint64 { return p.Memsz })
	}
	t, rep, err := buildSource(s, code, opt)
	if err == nil && opt.Source == SourceAuto && kind == SourceEHFrame {
		t, rep, err = supplement(o, t, rep, opt)
	}
	if err != nil {
		return nil, rep, err
	}
	if len(t.Ranges) == 0 && (!opt.AllowEmpty || rep.Entries.Lost > 0) {
		return nil, rep, nameError(o.name, noTable(s, rep))
	}
	return t, rep, nil
}

// noTable returns an error that says why a section gave no range.
func noTable(s tableSource, rep *Report) error {
	name := s.header().name
	if rep.Entries.Lost > 0 {
		first := *rep.LostFDEs[0]
		first.File = ""
		return fmt.Errorf("%w: %d of the %d FDEs of %s are bad, the first: %w", ErrNoUnwindInfo, rep.Entries.Lost,
			rep.Entries.FDEs, name, &first)
	}
	return fmt.Errorf("%w: no FDE of %s covers code of the file (%d FDEs, %d empty, %d outside)",
		ErrNoUnwindInfo, name, rep.Entries.FDEs, rep.Entries.Empty, rep.Entries.OutsideCode)
}

// codeImage gives passes access to an object's code.
type codeImage struct {
	segments []segment                     // ascending, disjoint
	read     func(addr Addr, b []byte) int // reads up to len(b) bytes of the image
}

// codeImage returns the object's code for the passes.
func (o *File) codeImage() codeImage { return codeImage{segments: o.code, read: o.ReadImage} }

// segmentOf returns the segment that holds an address.
func (c codeImage) segmentOf(a Addr) (segment, bool) {
	i := sort.Search(len(c.segments), func(i int) bool { return c.segments[i].end > a })
	if i == len(c.segments) || c.segments[i].start > a {
		return segment{}, false
	}
	return c.segments[i], true
}

// buildSource runs the passes, in this order.
func buildSource(s tableSource, code codeImage, opt BuildOptions) (*Table, *Report, error) {
	h := s.header()
	rep := &Report{Source: h.name, SectionSize: h.size, HdrSize: h.hdrSize}
	spans := findSpans(s, code, rep)
	b := newTableBuilder(s, rep)
	b.interpret(spans) // normalises each row, popped registers included
	fillPadding(spans, b.ranges, b.rows, code, rep)
	b.ranges = mergeEqual(b.ranges)
	t := b.table()
	if opt.Strict {
		if err := strictError(s, rep); err != nil {
			return nil, rep, err
		}
	}
	return t, rep, nil
}

// findSpans runs the passes before the programs of FDEs are looked at. Its spans are
// ascending and disjoint.
func findSpans(s tableSource, code codeImage, rep *Report) []span {
	spans := s.collect(rep)
	spans = dropEmpty(spans, rep)
	spans = clipToCode(spans, code, rep)
	return resolveOverlaps(s, spans, rep)
}

// strictError returns the first lost FDE or row that is not compiled as an error.
func strictError(s tableSource, rep *Report) error {
	if rep.Entries.Lost > 0 {
		return rep.LostFDEs[0]
	}
	if rep.Rows.NotCompiled > 0 {
		n := rep.NotCompiled[0]
		return s.errorOf(&span{offset: n.FDE, start: n.Start, fullEnd: n.End}, n.Reason)
	}
	return nil
}

// lose counts an FDE that is left out, and lists it while there is room.
func (r *Report) lose(err *DecodeError) {
	r.Entries.Lost++
	r.Bounded = r.Bounded || errors.Is(err, errBound)
	if len(r.LostFDEs) < maxListed {
		r.LostFDEs = append(r.LostFDEs, err)
	}
}

// Lookup returns the range that holds pc.
func (t *Table) Lookup(pc Addr) (Range, bool) {
	i := sort.Search(len(t.Ranges), func(i int) bool { return t.Ranges[i].End > pc })
	if i == len(t.Ranges) || t.Ranges[i].Start > pc {
		return Range{}, false
	}
	return t.Ranges[i], true
}
