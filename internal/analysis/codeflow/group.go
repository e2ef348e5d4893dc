package codeflow

import (
	"iter"
	"slices"
	"strings"
)

// This file finds which functions are parts of one. Parts are interpreted together, since states flow between them in
// the middle of a frame, where no table row is needed to begin.

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
	u := union{p, make([]uint64, n), make([]int, n)}
	for i := range p.fns {
		p.group[i], u.size[i], u.count[i] = int32(i), p.fns[i].Hi-p.fns[i].Lo, 1
	}
	u.joinMiddles()
	p.stray = newAddrSet(p.img.lo, p.img.hi)
	u.findStrays()
	from := u.joinBeginnings()
	for g, r := range from {
		if r >= 0 && u.root(g) == u.root(int(r)) {
			p.joined.set(p.fns[g].Lo)
		}
	}
	p.more = map[int32][]int{}
	for i := range p.fns {
		if r := u.root(i); r != i {
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

// union joins functions in Program.group, which is a forest meanwhile: a group's first function is its root.
type union struct {
	p     *Program
	size  []uint64 // by root: bytes of code
	count []int    // by root: functions
}

// root returns the group of function i, and halves the way to it for later questions.
func (u *union) root(i int) int {
	group := u.p.group
	for int(group[i]) != i {
		group[i] = group[group[i]]
		i = int(group[i])
	}
	return i
}

// joins reports whether function i may belong to a group of several.
func (u *union) joins(i int) bool {
	fn := &u.p.fns[i]
	return !fn.Shared && !fn.Signal && !strings.HasPrefix(u.p.img.SectionOf(fn.Lo), ".plt")
}

// join makes one group of two. The smaller number becomes the root, so that the groups do not depend on the order of
// joins. Groups over maxParts or maxCode are not made: see there. The union is by number, not by size; root's halving
// keeps the paths short enough.
func (u *union) join(i, g int) {
	a, b := u.root(i), u.root(g)
	if a == b || u.count[a]+u.count[b] > maxParts || u.size[a]+u.size[b] > maxCode || !u.joins(i) || !u.joins(g) {
		return
	}
	if b < a {
		a, b = b, a
	}
	u.p.group[b] = int32(a)
	u.size[a] += u.size[b]
	u.count[a] += u.count[b]
}

// joinMiddles joins functions with those into whose middle they jump, and with those of their landing pads.
func (u *union) joinMiddles() {
	p := u.p
	for i := range p.fns {
		for _, t := range p.sum[i].outs {
			if g := p.find(t); g >= 0 && g != i && t != p.fns[g].Lo && !p.called.has(t) {
				u.join(i, g)
			}
		}
		for _, s := range p.fns[i].Sites {
			if g := p.find(s.Pad); g >= 0 && g != i {
				u.join(i, g)
			}
		}
	}
}

// several stands for the group of an address to which several groups jump, and noGroup for one to which none does. The
// code to which several jump belongs to none of them: GCC makes cold labels without code, and behind this label lies
// the next function's cold part.
const (
	noGroup = -1
	several = -2
)

// joinBeginnings joins functions with those to whose beginning nothing but they jump, until there are no more. It
// returns the jumping group, several or noGroup, by the function that is jumped to.
func (u *union) joinBeginnings() []int32 {
	p, tailCall := u.p, u.p.tailCalls()
	from := make([]int32, len(p.fns))
	for {
		for g := range from {
			from[g] = noGroup
		}
		for i, g := range p.jumpsToBeginnings() {
			if t := p.fns[g].Lo; p.referred(t) || tailCall(t) || p.stray.has(t) {
				continue
			}
			r := int32(u.root(i))
			if was := from[g]; was != noGroup && was != r {
				r = several
			}
			from[g] = r
		}
		changed := false
		for g := range from {
			r := int(from[g])
			if r >= 0 && u.root(g) != r && u.root(r) == r {
				u.join(r, g)
				changed = changed || u.root(g) == u.root(r)
			}
		}
		if !changed {
			return from
		}
	}
}

// findStrays notes in Program.stray the beginnings of code that runs on past its end and to which other code jumps, if
// no row of that code has the CFA of its first row. GCC makes both for what cannot happen: the code is a cold part that
// its function never enters, and the jump, the default of a switch that has none, leads to a cold label without code.
func (u *union) findStrays() {
	p := u.p
	if p.opt.Begin == nil {
		return
	}
	rows := p.opt.Begin()
	for i, g := range p.jumpsToBeginnings() {
		t := p.fns[g].Lo
		if !p.sum[g].falls || u.root(g) == u.root(i) || p.isCalled(t) || p.stray.has(t) {
			continue
		}
		if first, ok := rows.Begin(t); ok && !first.IsInitial() && !hasFrame(rows, &p.fns[i], first.Regs[rsp]) {
			p.stray.set(t)
		}
	}
}

// jumpsToBeginnings yields pairs of functions of which the first jumps to the beginning of the second.
func (p *Program) jumpsToBeginnings() iter.Seq2[int, int] {
	return func(yield func(i, g int) bool) {
		for i := range p.fns {
			for _, t := range p.sum[i].outs {
				if g := p.find(t); g >= 0 && g != i && t == p.fns[g].Lo && !yield(i, g) {
					return
				}
			}
		}
	}
}

// hasFrame reports whether a row of fn has the CFA at the distance from rsp that sp tells.
func hasFrame(rows Beginner, fn *Function, sp Value) bool {
	for pc := fn.Lo; pc < fn.Hi; pc++ {
		if s, ok := rows.Begin(pc); ok && s.Regs[rsp] == sp {
			return true
		}
	}
	return false
}

// tailCalls returns a function that reports whether a row says that a jump to t is a tail call.
func (p *Program) tailCalls() func(t uint64) bool {
	if p.opt.Begin == nil {
		return func(uint64) bool { return false }
	}
	rows := p.opt.Begin()
	return func(t uint64) bool {
		s, ok := rows.Begin(t)
		return ok && s.IsInitial()
	}
}

// members returns the functions of group g, ascending.
func (p *Program) members(g int) []int {
	if m := p.more[int32(g)]; m != nil {
		return m
	}
	return []int{g}
}
