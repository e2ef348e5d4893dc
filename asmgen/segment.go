package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"
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
	// One pass: ranges and segments both ascend.
	weights := make([]int, len(p.Segments))
	first := 0
	for _, r := range p.Table.Ranges {
		page := int(uint64(r.Start-p.Base) >> p.PageBits)
		for page >= p.Segments[first].First+p.Segments[first].Pages {
			first++
		}
		weights[first]++
	}
	// One more for each, so that empty segments count.
	for i := range weights {
		weights[i]++
	}
	g.asm.bind(g.find.search)
	return g.searchSegments(0, weights)
}

// searchSegments emits the search among len(weights) segments from first on.
func (g *generator) searchSegments(first int, weights []int) error {
	a := g.asm
	// One segment left: jump to its row, or look its page up.
	if len(weights) == 1 {
		if s := &g.plan.Segments[first]; s.Table == nil {
			a.jump(obj.AJMP, g.block[s.Block])
		} else {
			g.layout.lookup(g.data.tables[first] - s.First)
		}
		return a.breakChunk()
	}
	total := 0
	for _, w := range weights {
		total += w
	}
	// The cut that comes closest to halving the weight.
	k, left := 1, weights[0]
	for k < len(weights)-1 && 2*left+weights[k] < total {
		left += weights[k]
		k++
	}
	below, from := weights[:k], weights[k:]
	// Compared with the pc relative to Base.
	border := int64(g.plan.Segments[first+k].First) << g.plan.PageBits
	a.op(x86.ACMPL, reg(rPC), imm(border))
	// A side that is one segment without a table needs no code: the conditional jump leads to its
	// row.
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
