package codeflow

import "github.com/ehasm/ehasm/internal/analysis/x86"

// This file finds short ways to a finding, to print them: a breadth-first search over jumps.

// Jump is a step of a path: from an instruction to another than the next one, or, with a From of 0, to where control
// enters.
type Jump struct{ From, To uint64 }

// Paths holds, for each reached instruction of a function and the parts that belong to it, a path with the fewest
// jumps.
type Paths struct {
	jumps []pathJump
	last  map[uint64]int32 // by address: index of the last jump before it
}

type pathJump struct {
	Jump
	before int32 // index of the jump before; -1 if control enters
}

// Paths finds paths that begin where the function does. For code that these do not reach, they begin where other
// functions enter, or where nothing leads to.
func (r *Result) Paths() *Paths {
	t := &Paths{last: map[uint64]int32{}}
	t.from(&r.f.code, r.f.code.parts[0].fn.Lo)
	for k := range r.f.code.parts {
		q := &r.f.code.parts[k]
		for _, begin := range [][]uint64{r.f.p.extOf[q.i], q.begun, {q.fn.Lo}} {
			for _, pc := range begin {
				t.from(&r.f.code, pc)
			}
		}
	}
	return t
}

// from adds the instructions to which control comes from pc.
func (t *Paths) from(l *listing, pc uint64) {
	next := len(t.jumps)
	t.jumps = append(t.jumps, pathJump{Jump{0, pc}, -1})
	for ; next < len(t.jumps); next++ {
		t.straight(l, int32(next))
	}
}

// straight goes on from the jump with index j to where control can't go on to the next instruction.
func (t *Paths) straight(l *listing, j int32) {
	for pc := t.jumps[j].To; ; {
		k := l.inst(pc)
		if _, seen := t.last[pc]; seen || k < 0 {
			return
		}
		t.last[pc] = j
		in := &l.ins[k]
		to := func(target uint64) { t.jumps = append(t.jumps, pathJump{Jump{pc, target}, j}) }
		for _, target := range l.switches.table[pc] {
			to(target)
		}
		if in.Args[0].Kind == x86.KRel && in.Op != x86.OpCALL {
			to(in.Target(pc))
		}
		if s := l.partOf(pc).site(pc); s != nil && in.Op == x86.OpCALL {
			to(s.Pad)
		}
		if l.stops(pc, in) {
			return
		}
		pc += uint64(in.Len)
	}
}

// To returns the path to the instruction at pc; nil if there is none.
func (t *Paths) To(pc uint64) []Jump {
	j, ok := t.last[pc]
	if !ok {
		return nil
	}
	n := 0
	for k := j; k >= 0; k = t.jumps[k].before {
		n++
	}
	path := make([]Jump, n)
	for ; j >= 0; j = t.jumps[j].before {
		n--
		path[n] = t.jumps[j].Jump
	}
	return path
}
