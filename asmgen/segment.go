package asmgen

import (
	"encoding/binary"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/asmgen/plan"
)

// segmented reports whether a pc's segment is searched for before its page. A segment
// without a table is, alone or not.
func (g *generator) segmented() bool {
	s := g.plan.Segments
	return len(s) > 1 || len(s) == 1 && s[0].Table == nil
}

// segmentSearch emits the search of the relative pc's segment, by comparisons with where
// segments begin.
func (g *generator) segmentSearch() error {
	if !g.segmented() {
		return nil
	}
	// A segment is the heavier the more ranges begin in it: the more code is there.
	p := g.plan
	weights := make([]int, len(p.Segments))
	at := 0
	for _, r := range p.Table.Ranges {
		page := int(uint64(r.Start-p.Base) >> p.PageBits)
		for page >= p.Segments[at].First+p.Segments[at].Pages {
			at++
		}
		weights[at]++
	}
	for i := range weights {
		weights[i]++
	}
	if p.SpanBits == 0 {
		g.asm.bind(g.search)
		return g.searchSegments(0, weights)
	}
	if g.beside == g.noInfo {
		return nil
	}
	g.asm.bind(g.beside)
	return g.searchSegments(0, weights)
}

// The tables over the segments: for each run of pages, the relative pcs between which there is a table of pages,
// and where the entry of page 0 would be, from the begin of all tables of pages on.
const (
	spanLow = iota
	spanHigh
	spanTable
	spanTables
)

// makeSpans appends the tables over the segments to the data, if there are to be any.
func (g *generator) makeSpans() {
	p := g.plan
	if p.SpanBits == 0 {
		return
	}
	g.spans, g.beside = len(g.data), g.noInfo
	for i := range p.Segments {
		if s := &p.Segments[i]; s.Table == nil && s.Block != 0 {
			g.beside = g.asm.newLabel()
			break
		}
	}
	n := g.plan.Spans()
	g.data = append(g.data, make([]byte, 4*spanTables*n)...)
	unit := g.layout.spanUnit()
	put := func(table, i, v int) {
		binary.LittleEndian.PutUint32(g.data[g.spans+4*(table*n+i):], uint32(int32(v)))
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		if s.Table == nil {
			continue
		}
		for k := s.First >> (p.SpanBits - p.PageBits); k <= (s.First+s.Pages-1)>>(p.SpanBits-p.PageBits); k++ {
			put(spanLow, k, s.First<<p.PageBits)
			put(spanHigh, k, (s.First+s.Pages)<<p.PageBits)
			put(spanTable, k, unit*(g.tables[i]-s.First))
		}
	}
}

// spanLookup emits the lookup of a pc by the tables over the segments. What is beside them goes on at g.beside.
func (g *generator) spanLookup() {
	a := g.asm
	pc, i := reg(rPC), reg(rTmp)
	field := func(table int) obj.Addr { return memIndex(rCFA, rTmp, 4, int64(g.spans+4*table*g.plan.Spans())) }
	if g.plan.Dispatch == plan.DispatchPacked {
		g.store(rPC, slotPC)
	}
	a.op(x86.AMOVL, pc, i)
	a.op(x86.ASHRL, imm(int64(g.plan.SpanBits)), i)
	a.leaData(0, rCFA)
	a.op(x86.ACMPL, pc, field(spanLow))
	a.jump(x86.AJCS, g.beside)
	a.op(x86.ACMPL, pc, field(spanHigh))
	a.jump(x86.AJCC, g.beside)
	g.layout.spanned(field(spanTable))
}

// tableOf emits the lookup in the table of a segment. With a table over the segments, none of its pcs comes here.
func (g *generator) tableOf(segment int) {
	if g.plan.SpanBits > 0 {
		g.asm.jump(obj.AJMP, g.noInfo)
		return
	}
	g.layout.lookup(g.tables[segment] - g.plan.Segments[segment].First)
}

// searchSegments emits the search among len(weights) segments from first on.
func (g *generator) searchSegments(first int, weights []int) error {
	a := g.asm
	if len(weights) == 1 {
		if s := &g.plan.Segments[first]; s.Table == nil {
			a.jump(obj.AJMP, g.block[s.Block])
		} else {
			g.tableOf(first)
		}
		return a.breakChunk()
	}
	total := 0
	for _, w := range weights {
		total += w
	}
	// The cut that comes closest to halves.
	k, left := 1, weights[0]
	for k < len(weights)-1 && 2*left+weights[k] < total {
		left += weights[k]
		k++
	}
	below, from := weights[:k], weights[k:]
	border := int64(g.plan.Segments[first+k].First) << g.plan.PageBits
	a.op(x86.ACMPL, reg(rPC), imm(border))
	if s := &g.plan.Segments[first]; k == 1 && s.Table == nil {
		a.jump(x86.AJCS, g.block[s.Block])
		return g.searchSegments(first+k, from)
	}
	if s := &g.plan.Segments[first+k]; len(from) == 1 && s.Table == nil {
		a.jump(x86.AJCC, g.block[s.Block])
		return g.searchSegments(first, below)
	}
	other := a.newLabel()
	a.jump(x86.AJCS, other)
	if err := g.searchSegments(first+k, from); err != nil {
		return err
	}
	a.bind(other)
	return g.searchSegments(first, below)
}
