package codeflow

import (
	"maps"
	"slices"
	"strings"
)

// maxParts bounds a group, as maxCode does. Beyond them, states flow from one group to the next, which takes more
// passes.
const maxParts = 64

// findGroups joins the parts of a function that compilers and BOLT have moved apart (cold, warm): two functions are
// joined if one jumps into the middle of the other, or to its beginning and nothing else refers to that, or has landing
// pads in it. Tail calls join nothing, also of helpers in the middle of another function, to which calls lead.
func (p *Program) findGroups() {
	n := len(p.fns)
	p.group = make([]int32, n)
	p.joined = newAddrSet(p.img.lo, p.img.hi)
	size, count := make([]uint64, n), make([]int, n)
	for i := range p.fns {
		p.group[i], size[i], count[i] = int32(i), p.fns[i].Hi-p.fns[i].Lo, 1
	}
	root := func(i int) int {
		for int(p.group[i]) != i {
			p.group[i] = p.group[p.group[i]]
			i = int(p.group[i])
		}
		return i
	}
	joins := func(i int) bool {
		return !p.fns[i].Shared && !p.fns[i].Signal && !strings.HasPrefix(p.img.SectionOf(p.fns[i].Lo), ".plt")
	}
	join := func(i, g int) {
		a, b := root(i), root(g)
		if a == b || count[a]+count[b] > maxParts || size[a]+size[b] > maxCode || !joins(i) || !joins(g) {
			return
		}
		if b < a {
			a, b = b, a
		}
		p.group[b] = int32(a)
		size[a] += size[b]
		count[a] += count[b]
	}
	for i := range p.fns {
		for _, t := range p.sum[i].outs {
			if g := p.find(t); g >= 0 && g != i && t != p.fns[g].Lo && !p.called.has(t) {
				join(i, g)
			}
		}
		for _, s := range p.fns[i].Sites {
			if g := p.find(s.Pad); g >= 0 && g != i {
				join(i, g)
			}
		}
	}
	tailCall := func(t uint64) bool { return false }
	if p.opt.Begin != nil {
		rows := p.opt.Begin()
		tailCall = func(t uint64) bool {
			s, ok := rows.Begin(t)
			return ok && s.IsInitial()
		}
	}
	// A beginning that several functions jump to belongs to none of them: it may be a cold label without code, after which the next
	// function's part lies.
	const several = -1
	from := map[int]int{}
	for {
		clear(from)
		for i := range p.fns {
			for _, t := range p.sum[i].outs {
				g := p.find(t)
				if g < 0 || g == i || t != p.fns[g].Lo || p.referred(t) || tailCall(t) {
					continue
				}
				r := root(i)
				if was, ok := from[g]; ok && was != r {
					r = several
				}
				from[g] = r
			}
		}
		changed := false
		for _, g := range slices.Sorted(maps.Keys(from)) {
			r := from[g]
			if r != several && root(g) != r && root(r) == r {
				join(r, g)
				changed = changed || root(g) == root(r)
			}
		}
		if !changed {
			break
		}
	}
	for g, r := range from {
		if r != several && root(g) == root(r) {
			p.joined.set(p.fns[g].Lo)
		}
	}
	p.more = map[int32][]int{}
	for i := range p.fns {
		if r := root(i); r != i {
			p.group[i] = int32(r)
			if p.more[int32(r)] == nil {
				p.more[int32(r)] = []int{r}
			}
			p.more[int32(r)] = append(p.more[int32(r)], i)
		}
	}
	for _, m := range p.more {
		slices.Sort(m)
	}
}

// members returns the functions of group g, ascending.
func (p *Program) members(g int) []int {
	if m := p.more[int32(g)]; m != nil {
		return m
	}
	return []int{g}
}
