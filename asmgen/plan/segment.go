package plan

import (
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file leaves long runs of equal pages out of the table: Go programs that a C linker linked, and linker scripts
// that place code far apart. RATIONALE.md, "Why some objects have segments", has the sizes.

// Segment is a run of pages that either has a table or leads to one block.
type Segment struct {
	First int      // number of the first page, from Plan.Base on
	Pages int      // at least 1
	Table []uint32 // by page: index into Plan.Trees; nil if all leads to Block
	Block uint32
}

// SegmentOf returns the segment of a pc that is covered.
func (p *Plan) SegmentOf(pc dwarfcfa.Addr) *Segment {
	page := int(uint64(pc-p.Base) >> p.PageBits)
	return &p.Segments[sort.Search(len(p.Segments), func(i int) bool { return p.Segments[i].First > page })-1]
}

// TreeOf returns the index into Trees for a pc of a segment with a table.
func (p *Plan) TreeOf(s *Segment, pc dwarfcfa.Addr) uint32 {
	return s.Table[int(uint64(pc-p.Base)>>p.PageBits)-s.First]
}

// Estimates of bytes, for the choice of segments. They need not be exact: they only decide whether a third of the file
// is saved.
const (
	segmentBytes = 30   // of code that leads to a segment
	rangeBytes   = 8    // of code that leads to a range inside its page
	restBytes    = 4096 // of a file besides its pages
	leastRun     = 16   // minimum pages of a run
)

// entryBytes returns the bytes of a page in a table.
func (p *Plan) entryBytes() int {
	if p.Dispatch == DispatchPacked {
		return 2
	}
	return 4
}

// segments cuts the pages into segments. Pages in one range, or in one gap, need no table if the
// pc is compared with their bounds. That costs each step a few comparisons, so it is done only
// if it saves a third of the file, and with few segments.
func segments(p *Plan) []Segment {
	entryBytes := p.entryBytes()
	n := int((uint64(p.High-p.Base) + 1<<p.PageBits - 1) >> p.PageBits)
	if n == 0 {
		return nil
	}
	flat := []Segment{{Pages: n, Table: make([]uint32, 0)}}
	all := runs(p, n)
	rest := restBytes + rangeBytes*len(p.Table.Ranges)
	type choice struct{ least, bytes int }
	var choices []choice
	for least := leastRun; least <= n; least *= 2 {
		left, kept := n, 0
		for _, r := range all {
			if r.Pages >= least {
				left -= r.Pages
				kept++
			}
		}
		if kept == 0 {
			break
		}
		choices = append(choices, choice{least, rest + entryBytes*left + segmentBytes*2*kept})
	}
	best := rest + entryBytes*n
	flatBytes := best
	for _, c := range choices {
		best = min(best, c.bytes)
	}
	segs := flat
	if 2*flatBytes > 3*best {
		for _, c := range choices { // the last one that is about as small
			if 10*c.bytes <= 11*best {
				segs = cut(all, n, c.least)
			}
		}
	}
	for i := range segs {
		if segs[i].Table != nil {
			segs[i].Table = make([]uint32, segs[i].Pages)
		}
	}
	return segs
}

// runs returns the runs of at least leastRun pages that lead to one block.
func runs(p *Plan, n int) []Segment {
	var out []Segment
	page := func(addr dwarfcfa.Addr) int { return int(uint64(addr-p.Base) >> p.PageBits) }
	add := func(from, to dwarfcfa.Addr, block uint32) {
		first, end := page(from+1<<p.PageBits-1), page(to)
		if to == p.High {
			end = n // nothing follows
		}
		if end-first >= leastRun {
			out = append(out, Segment{First: first, Pages: end - first, Block: block})
		}
	}
	addr := p.Base
	for i := range p.Table.Ranges {
		r := &p.Table.Ranges[i]
		if r.Start > addr {
			add(addr, r.Start, 0)
		}
		add(r.Start, r.End, r.Row+1)
		addr = r.End
	}
	return out
}

// cut returns the runs of at least that number of pages, and the segments between
// them.
func cut(runs []Segment, n, least int) []Segment {
	var out []Segment
	first := 0
	between := func(until int) {
		if until > first {
			out = append(out, Segment{First: first, Pages: until - first, Table: make([]uint32, 0)})
		}
	}
	for _, r := range runs {
		if r.Pages < least {
			continue
		}
		between(r.First)
		out = append(out, r)
		first = r.First + r.Pages
	}
	between(n)
	return out
}
