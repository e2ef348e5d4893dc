package check

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/lsda"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
)

// Subject is an object to check: its FDEs and its code.
type Subject struct {
	Image *codeflow.Image
	// Functions are the FDEs' ranges, ascending and disjoint. If two overlap, the later one counts, as in a lookup.
	Functions []codeflow.Function

	fdes    []*dwarfcfa.FDE
	frame   *dwarfcfa.Section // .eh_frame; nil: none
	behind  uint64            // where its first terminator is that FDEs follow; 0: there is none
	lsdas   []badLSDA
	unread  int // FDEs that cannot be read
	outside int // FDEs outside the code, or larger than maxFunction
}

// maxFunction bounds an FDE's range in bytes; a larger one is no function.
const maxFunction = 1 << 26

// Open reads an executable, a shared object or a relocatable file.
func Open(name string, r io.ReaderAt, size int64) (*Subject, error) {
	return OpenSource(name, r, size, dwarfcfa.SourceAuto)
}

// OpenSource is Open for the rows of one source.
func OpenSource(name string, r io.ReaderAt, size int64, source dwarfcfa.Source) (*Subject, error) {
	if relocatable.IsRelocatable(r) {
		linked, err := relocatable.Link(r, size)
		if err != nil {
			return nil, err
		}
		r, size = bytes.NewReader(linked), int64(len(linked))
	}
	object, err := dwarfcfa.NewObject(name, r, size)
	if err != nil {
		return nil, err
	}
	sections, err := object.Sections(source)
	if err != nil {
		return nil, err
	}
	img, err := codeflow.NewImage(r)
	if err != nil {
		return nil, err
	}
	s := &Subject{Image: img}
	areas := lsda.NewReader(object)
	for _, sec := range sections {
		s.collect(sec, areas)
	}
	s.arrange()
	if len(s.fdes) == 0 {
		return nil, fmt.Errorf("%w: no FDE covers code of the file", dwarfcfa.ErrNoUnwindInfo)
	}
	return s, nil
}

// entrySize is about how many bytes of a section an FDE takes, rather less than more.
const entrySize = 40

func (s *Subject) collect(sec *dwarfcfa.Section, areas *lsda.Reader) {
	if sec.Source() == dwarfcfa.SourceEHFrame {
		s.frame = sec
	}
	end := uint64(0) // of the entries before a terminator
	n := int(sec.Size() / entrySize)
	s.Functions, s.fdes = slices.Grow(s.Functions, n), slices.Grow(s.fdes, n)
	for e, err := range sec.Entries() {
		if e.IsCIE {
			continue
		}
		if err != nil {
			s.unread++
			continue
		}
		if e.FDE == nil && end == 0 {
			end = e.Offset
		}
		if e.FDE == nil || e.FDE.End <= e.FDE.Start {
			continue
		}
		f := e.FDE
		if end > 0 && s.behind == 0 {
			s.behind = end
		}
		// Of a debug file without code, or hostile.
		if s.Image.Code(uint64(f.Start)) == nil || f.End-f.Start > maxFunction {
			s.outside++
			continue
		}
		fn := codeflow.Function{Lo: uint64(f.Start), Hi: uint64(f.End), Signal: f.CIE.Signal}
		if t, err := areas.Table(f); err != nil {
			s.lsdas = append(s.lsdas, badLSDA{f, err})
		} else if t != nil {
			for _, c := range t.Effective() {
				if c.Pad != 0 {
					fn.Sites = append(fn.Sites, codeflow.Site{Lo: uint64(c.Start), Hi: uint64(c.End), Pad: uint64(c.Pad)})
				}
			}
		}
		if sizes, err := f.ArgsSizes(); err == nil {
			for _, a := range sizes {
				fn.ArgSizes = append(fn.ArgSizes, codeflow.ArgSize{PC: uint64(a.Start), Bytes: int32(min(a.Size, 1<<30))})
			}
		}
		s.Functions = append(s.Functions, fn)
		s.fdes = append(s.fdes, f)
	}
}

// arrange sorts the functions; if one starts inside another, the other ends there. So does one in which a symbol for
// other files says that a second one begins.
func (s *Subject) arrange() {
	order := make([]int, len(s.fdes))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return s.Functions[order[a]].Lo < s.Functions[order[b]].Lo })
	fns, fdes := make([]codeflow.Function, 0, len(order)), make([]*dwarfcfa.FDE, 0, len(order))
	for _, i := range order {
		f := s.Functions[i]
		if n := len(fns); n > 0 {
			if fns[n-1].Lo == f.Lo { // of equal starts one counts, as for rows
				if s.finds(s.fdes[i]) && !s.finds(fdes[n-1]) {
					fns[n-1], fdes[n-1] = f, s.fdes[i]
				}
				continue
			}
			fns[n-1].Hi = min(fns[n-1].Hi, f.Lo)
		}
		inner := s.Image.StartsWithin(f.Lo, f.Hi)
		if f.Signal = f.Signal || len(inner) > manyFunctions; f.Signal {
			inner = nil
		}
		fns, fdes = append(fns, f), append(fdes, s.fdes[i])
		for _, at := range inner {
			if s.Image.Exported(at) { // a local symbol may name what is jumped to
				fns[len(fns)-1].Hi = at
				f.Lo, f.Entry = at, true
				fns, fdes = append(fns, f), append(fdes, s.fdes[i])
			}
		}
	}
	s.Functions, s.fdes = fns, fdes
}

// finds reports whether the table of .eh_frame_hdr names the FDE for its start.
func (s *Subject) finds(f *dwarfcfa.FDE) bool {
	at, ok := f.Section().Named(f.Start)
	return ok && at == f.Offset
}

// first reports whether function i is the first with its FDE.
func (s *Subject) first(i int) bool { return i == 0 || s.fdes[i] != s.fdes[i-1] }

// rows holds the rows of the function that a worker looks at.
type rows struct {
	s      *Subject
	interp *dwarfcfa.Interp
	i      int // function, -1 none
	rows   []dwarfcfa.RawRow
	buf    []dwarfcfa.RawRow // of rows, used again
	err    error
	// instead, if not nil, are the rows of function insteadOf, whatever its FDE says
	instead   []dwarfcfa.RawRow
	insteadOf int

	compared function // used again
}

func (s *Subject) newRows() *rows { return &rows{s: s, interp: dwarfcfa.NewInterp(), i: -1} }

func (r *rows) load(i int) {
	if r.i != i {
		r.i = i
		if r.instead != nil && r.insteadOf == i {
			r.rows, r.err = r.instead, nil
			return
		}
		if r.rows, r.err = r.interp.AppendRows(r.buf[:0], r.s.fdes[i]); r.err == nil {
			r.buf = r.rows
		}
	}
}

// at returns the row at pc, or nil if there is none.
func (r *rows) at(pc uint64) *dwarfcfa.RawRow {
	if k := r.find(pc); k >= 0 {
		return &r.rows[k]
	}
	return nil
}

// find returns the index of the row at pc, or -1 if there is none.
func (r *rows) find(pc uint64) int {
	k := sort.Search(len(r.rows), func(k int) bool { return uint64(r.rows[k].End) > pc })
	if k < len(r.rows) && uint64(r.rows[k].Start) <= pc {
		return k
	}
	return -1
}

// Begin returns the state that the table describes at pc.
func (r *rows) Begin(pc uint64) (codeflow.State, bool) {
	fns := r.s.Functions
	i := sort.Search(len(fns), func(i int) bool { return fns[i].Hi > pc })
	if i == len(fns) || fns[i].Lo > pc {
		return codeflow.State{}, false
	}
	r.load(i)
	row := r.at(pc)
	if row == nil {
		return codeflow.State{}, false
	}
	return stateOf(&row.Row)
}

// hardware maps DWARF's register numbers to the processor's (x86-64 psABI figure 3.36).
var hardware = [16]uint8{0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15}

// stateOf returns the state that a row describes; ok is false if its CFA is not a
// register plus offset.
func stateOf(row *dwarfcfa.Row) (codeflow.State, bool) {
	var s codeflow.State
	if row.CFA.Kind != dwarfcfa.CFARegOffset || row.CFA.Reg > 15 || row.CFA.Offset != int64(int32(row.CFA.Offset)) {
		return s, false
	}
	for d := range 17 {
		rule := row.Regs[d]
		h := uint8(codeflow.RA)
		if d < 16 {
			h = hardware[d]
		}
		// Other rules leave the register unknown, which no row contradicts.
		switch rule.Kind {
		case dwarfcfa.RuleSameValue, dwarfcfa.RuleUnspecified:
			if d < 16 && (codeflow.CalleeSaved>>h&1 != 0 || keepsValue(row, d)) {
				s.Regs[h] = codeflow.Value{Kind: codeflow.Entry, Reg: h}
			}
		case dwarfcfa.RuleOffset:
			s.Put(0, int32(rule.Offset), codeflow.Value{Kind: codeflow.Entry, Reg: h})
		}
	}
	s.Regs[hardware[row.CFA.Reg]] = codeflow.Value{Kind: codeflow.Base, Off: int32(-row.CFA.Offset)}
	return s, true
}
