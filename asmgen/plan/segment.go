package plan

import (
	"sort"

	"github.com/ehasm/ehasm/dwarfcfa"
)

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

// Spans returns the number of entries that the tables over the segments have.
func (p *Plan) Spans() int { return int(uint64(p.High-p.Base-1)>>p.SpanBits) + 1 }

// TreeOf returns the index into Trees for a pc of a segment with a table.
func (p *Plan) TreeOf(s *Segment, pc dwarfcfa.Addr) uint32 {
	return s.Table[int(uint64(pc-p.Base)>>p.PageBits)-s.First]
}

// Estimates of bytes, for the choice of segments.
const (
	segmentBytes = 30   // of code that leads to a segment
	rangeBytes   = 8    // of code that leads to a range inside its page
	restBytes    = 4096 // of a file besides its pages
	leastRun     = 16   // minimum pages of a run
	spanEntry    = 12   // of an entry of the table over the segments
	spanCode     = 60   // of code that goes through that table
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
//
// Many segments are not compared with one by one: see spans.
func segments(p *Plan) (segs []Segment, spanBits uint) {
	entryBytes := p.entryBytes()
	n := int((uint64(p.High-p.Base) + 1<<p.PageBits - 1) >> p.PageBits)
	if n == 0 {
		return nil, 0
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
	segs = flat
	if 2*flatBytes > 3*best {
		bytes := best
		for _, c := range choices { // the last one that is about as small
			if 10*c.bytes <= 11*best {
				segs, bytes = cut(all, n, c.least), c.bytes
			}
		}
		segs, spanBits = spans(p, segs, bytes)
	}
	for i := range segs {
		if segs[i].Table != nil {
			segs[i].Table = make([]uint32, segs[i].Pages)
		}
	}
	return segs, spanBits
}

// leastSpanned is the number of segments from which on a table leads to them.
const leastSpanned = 24

// spans makes a table lead to the segments, unless that takes a tenth of the file more, and returns the binary logarithm of the bytes
// of text that one of its entries is for. An entry tells one segment with a table of pages and its bounds:
// where there would be two, what lies between them goes into their table. bytes is what the file
// takes with comparisons.
func spans(p *Plan, segs []Segment, bytes int) ([]Segment, uint) {
	if len(segs) < leastSpanned {
		return segs, 0
	}
	n := segs[len(segs)-1].First + segs[len(segs)-1].Pages
	most, bits := bytes+bytes/10, uint(0)
	for _, s := range segs {
		if s.Table != nil || s.Block == 0 { // then none is compared with
			bytes -= segmentBytes
		}
	}
	var best []Segment
	entryBytes := p.entryBytes()
	for b := p.PageBits + 1; n>>(b-p.PageBits) > 0; b++ {
		merged := merge(segs, b-p.PageBits)
		size := bytes + spanCode + spanEntry*(n>>(b-p.PageBits)+1)
		for _, s := range segs {
			if s.Table != nil {
				size -= entryBytes * s.Pages
			}
		}
		for _, s := range merged {
			if s.Table != nil {
				size += entryBytes * s.Pages
			}
		}
		if size < most {
			most, bits, best = size, b, merged
		}
	}
	if bits == 0 {
		return segs, 0
	}
	return best, bits
}

// merge makes one of segments with tables that meet the same run of 1<<bits pages.
func merge(segs []Segment, bits uint) []Segment {
	var out []Segment
	tabled := -1 // the last one with a table in out
	for _, s := range segs {
		if s.Table == nil {
			out = append(out, s)
			continue
		}
		if tabled >= 0 {
			if last := &out[tabled]; (last.First+last.Pages-1)>>bits == s.First>>bits {
				last.Pages = s.First + s.Pages - last.First
				out = out[:tabled+1]
				continue
			}
		}
		tabled = len(out)
		out = append(out, s)
	}
	return out
}

// runs returns the runs of at least leastRun pages that lead to one block.
func runs(p *Plan, n int) []Segment {
	var out []Segment
	page := func(at dwarfcfa.Addr) int { return int(uint64(at-p.Base) >> p.PageBits) }
	add := func(from, to dwarfcfa.Addr, block uint32) {
		first, end := page(from+1<<p.PageBits-1), page(to)
		if to == p.High {
			end = n // nothing follows
		}
		if end-first >= leastRun {
			out = append(out, Segment{First: first, Pages: end - first, Block: block})
		}
	}
	at := p.Base
	for i := range p.Table.Ranges {
		r := &p.Table.Ranges[i]
		if r.Start > at {
			add(at, r.Start, 0)
		}
		add(r.Start, r.End, r.Row+1)
		at = r.End
	}
	return out
}

// cut returns the runs of at least so many pages, and the segments between
// them.
func cut(runs []Segment, n, least int) []Segment {
	var out []Segment
	at := 0
	between := func(until int) {
		if until > at {
			out = append(out, Segment{First: at, Pages: until - at, Table: make([]uint32, 0)})
		}
	}
	for _, r := range runs {
		if r.Pages < least {
			continue
		}
		between(r.First)
		out = append(out, r)
		at = r.First + r.Pages
	}
	between(n)
	return out
}
