package dwarfcfa

// This file is what CIEs and FDEs, .sframe and rows made from code have in common, for makers of tables.

// tableSource is unwind information from which a table is made, such as a section of
// CIEs and FDEs. It describes functions, each by a program that makes rows.
type tableSource interface {
	// header returns what a Report says of the source.
	header() sourceHeader
	// collect returns a span for each function, in the order of the section. It counts entries, and those that it
	// leaves out, in rep.
	collect(rep *Report) []span
	// position returns a number by which again finds the span.
	position(sp *span) uint32
	// again returns a span that collect returned, whole. It is for one goroutine at a time.
	again(position uint32) span
	// interpret makes the rows of a span that collect returned, or of a part of it, with in.
	// Rows before an error have been handed over when it returns.
	interpret(sp *span, in *Interp, sink rowSink) error
	// returnColumn returns the column of rows that has the return address.
	returnColumn(sp *span) int
	// named returns the offset of the entry that counts if several begin at start; ok is false if that is the first.
	named(start Addr) (offset uint64, ok bool)
	// errorOf adds to an error where it occurred.
	errorOf(sp *span, err error) *DecodeError
}

// sourceHeader describes a source as a whole.
type sourceHeader struct {
	name    string // of the section
	size    int64  // its size in bytes, decompressed
	hdrSize int64  // of .eh_frame_hdr or the like, through which it is found, in bytes
}

// span is the part of a function's code that the table takes from an entry.
type span struct {
	start, end Addr   // [start, end)
	fullEnd    Addr   // the entry's own end
	offset     uint64 // of the entry in the section, for messages
	pos, size  int    // of its program in the section
	shared     int32  // index, in its source, of what it shares with other entries, such as a CIE
}

// cfiSource is a section of CIEs and FDEs as a source.
type cfiSource struct {
	s       *Section
	entries *entryReader   // of the last collect; it knows where the CIEs are
	cies    []*CIE         // by span.shared
	numbers map[*CIE]int32 // index in cies
}

// newCFISource returns a section as a source of rows.
func newCFISource(s *Section) *cfiSource { return &cfiSource{s: s} }

func (c *cfiSource) header() sourceHeader {
	return sourceHeader{c.s.Name, c.s.Size(), c.s.HdrSize()}
}

// collect returns the FDEs in order of the section. Bad ones are counted in rep.
func (c *cfiSource) collect(rep *Report) []span {
	const typical = 48 // bytes of a CIE or FDE; most are larger
	spans := make([]span, 0, c.s.Size()/typical)
	c.cies, c.numbers, c.entries = nil, make(map[*CIE]int32), newEntryReader(c.s)
	var f FDE
	for {
		e, ok, err := c.entries.next(&f)
		switch {
		case !ok:
			return spans
		case e.IsCIE:
			rep.Entries.CIEs++ // a bad one makes the FDEs that use it bad, each of which says so
		case err != nil:
			rep.Entries.FDEs++
			rep.lose(err.(*DecodeError))
		case e.FDE != nil:
			rep.Entries.FDEs++
			spans = append(spans, c.span(&f))
		}
	}
}

// span returns the span of an FDE.
func (c *cfiSource) span(f *FDE) span {
	// FDEs of one CIE mostly lie together: try the last one first.
	last := len(c.cies) - 1
	if last < 0 || c.cies[last] != f.CIE {
		n, ok := c.numbers[f.CIE]
		if !ok {
			n = int32(len(c.cies))
			c.numbers[f.CIE], c.cies = n, append(c.cies, f.CIE)
		}
		last = int(n)
	}
	return span{
		start: f.Start, end: f.End, fullEnd: f.End,
		offset: f.Offset, shared: int32(last), pos: f.instPos, size: len(f.Instructions),
	}
}

func (c *cfiSource) named(start Addr) (uint64, bool) { return c.s.Named(start) }

func (c *cfiSource) position(sp *span) uint32 { return uint32(sp.offset) }

func (c *cfiSource) again(position uint32) span {
	var f FDE
	c.entries.pos = int(position)
	c.entries.entry(&f) // collect has read this entry without an error
	return c.span(&f)
}

// fde returns the FDE of a span, with the fields that interpreting it needs.
func (c *cfiSource) fde(sp *span) FDE {
	return FDE{
		Offset: sp.offset, CIE: c.cies[sp.shared], Start: sp.start, End: sp.end,
		instPos: sp.pos, Instructions: c.s.Data[sp.pos : sp.pos+sp.size],
	}
}

func (c *cfiSource) interpret(sp *span, in *Interp, sink rowSink) error {
	fde := c.fde(sp)
	return in.run(&fde, sink)
}

func (c *cfiSource) returnColumn(sp *span) int {
	return int(min(c.cies[sp.shared].RA, NumRegs))
}

func (c *cfiSource) errorOf(sp *span, err error) *DecodeError {
	return c.s.errorOf(&FDE{Offset: sp.offset, Start: sp.start, End: sp.fullEnd}, err)
}
