package codeflow

import (
	"math"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file follows private calling conventions: a function that loses callee-saved registers, or returns with rsp
// elsewhere, changes what its callers may assume. Callers are interpreted again with what was found, and may breach in
// turn.

// breach says how a function's return deviates from the psABI.
type breach struct {
	lost    uint16 // mask of callee-saved registers that it does not restore
	returns bool   // a return was seen
	by      int32  // bytes that a return leaves rsp above CFA, such as 16 for ret $16; or unknownMove
}

const unknownMove = math.MinInt32

// privateRounds bounds how often callers are interpreted again, and so through how many calls a lost register is
// followed.
const privateRounds = 16

// odd reports whether there is a deviation.
func (b *breach) odd() bool { return b.lost != 0 || b.by != 0 }

// at adds a return that loses registers and leaves rsp by bytes above the CFA.
func (b *breach) at(lost uint16, by int32) {
	b.lost |= lost
	if b.returns && b.by != by {
		by = unknownMove
	}
	b.returns, b.by = true, by
}

// atReturn adds the return that a ret or an indirect jump in a state makes, if it goes to the return address. Where rsp
// goes counts only in states that follow from an entry: a row may call another frame's word the return address.
func (b *breach) atReturn(in *x86.Inst, s *State, basis Basis) {
	to, above := Value{}, int32(0) // where it goes, and the bytes that it adds to rsp
	switch a := &in.Args[0]; {
	case in.Op == x86.OpRET:
		to, above = s.top(), 8+int32(in.Imm)
		if s.Regs[rsp] == baseAt(0, -8) { // whatever was written there: it returns to its caller
			to = entryOf(RA)
		}
	case gpr64(a):
		to = s.Regs[a.Reg]
	case a.Kind == x86.KMem:
		if base, off, ok := s.addr(in); ok {
			to = s.Slot(base, off)
		}
	}
	if to != entryOf(RA) {
		return
	}
	by := int32(unknownMove)
	if r := s.Regs[rsp]; r.Kind == Base && r.Reg == 0 {
		by = r.Off + above
	}
	if basis != FromEntry {
		by = 0
	}
	b.at(s.lost(), by)
}

// returned adjusts the state after the call at pc of a function with a breach.
func (m *machine) returned(pc uint64, b breach, s *State) {
	s.clobber(b.lost)
	switch {
	case b.by == unknownMove:
		m.base(pc, s)
	case b.by != 0:
		s.move(b.by)
		s.dropBelow()
	}
}

// private finds the functions with a breach, their own or of a function that they go on to (onward, by function), and
// sets p.breaks. It returns the groups that call a function whose breach is new or has changed.
func (p *Program) private(breaches []breach, onward [][]uint64) []int {
	now := map[uint64]breach{}
	for i := range breaches {
		if breaches[i].odd() {
			now[p.fns[i].Lo] = breaches[i]
		}
	}
	// It ends: lost only grows, and by changes at most from 0 to a number and on to unknownMove.
	for changed := len(now) > 0; changed; {
		changed = false
		for i := range p.fns {
			for _, t := range onward[i] {
				b, ok := now[t]
				if !ok {
					if b, ok = p.within(breaches, t); !ok {
						continue
					}
				}
				is := breaches[i]
				if was, ok := now[p.fns[i].Lo]; ok {
					is = was
				}
				next := is
				next.lost |= b.lost
				if b.by != 0 && b.by != is.by && is.by != unknownMove {
					if next.by = b.by; is.returns || is.by != 0 || len(onward[i]) > 1 {
						next.by = unknownMove
					}
				}
				if next != is {
					now[p.fns[i].Lo] = next
					changed = true
				}
			}
		}
	}
	news := map[uint64]bool{}
	for a, m := range now {
		if p.breaks[a] != m {
			news[a] = true
		}
	}
	for a := range p.breaks {
		if _, ok := now[a]; !ok {
			news[a] = true
		}
	}
	p.breaks = now
	if len(news) == 0 {
		return nil
	}
	p.returns.Clear()
	list := map[int]bool{}
	for i := range p.fns {
		for _, t := range p.sum[i].callees {
			if news[t] {
				list[int(p.group[i])] = true
				break
			}
		}
	}
	return sortedKeys(list)
}

// within returns the breach of the function that contains pc, not at its entry. Only the function's own returns count:
// where parts of many functions lie side by side, pc need not lead to what the function goes on to.
func (p *Program) within(breaches []breach, pc uint64) (breach, bool) {
	if g := p.find(pc); g >= 0 && p.fns[g].Lo != pc {
		return breaches[g], breaches[g].odd()
	}
	return breach{}, false
}

// computed reports whether the call at pc, in code without a table, goes to a computed sum such as a base plus an entry
// of a table of distances. This call leads to a label of the same hand-written code, which may have its own convention.
func (l *listing) computed(pc uint64, in *x86.Inst) bool {
	to := &in.Args[0]
	if p := l.partOf(pc); !gpr64(to) || l.rows != nil || p == nil || !p.fn.Shared {
		return false
	}
	// Instructions before the call. A sum that is further away counts as no such call.
	const far = 12
	for range far {
		k, ok := l.prev(pc)
		if !ok || l.ins[k].Op == x86.OpCALL || l.ins[k].Op == x86.OpJMP || ends(l.ins[k].Op) {
			return false
		}
		if q := &l.ins[k]; q.Writes>>to.Reg&1 != 0 {
			return q.Op == x86.OpADD && gpr64(&q.Args[0]) && gpr64(&q.Args[1]) ||
				q.Op == x86.OpLEA && q.Mem.Base <= x86.R15 && q.Mem.Index <= x86.R15
		}
		pc = l.pcs[k]
	}
	return false
}

// saves returns the mask of registers whose entry value is on the stack. A callee with its own convention may change
// only these: its caller could not restore others.
func (s *State) saves() (m uint16) {
	for i := range s.slots[:s.n] {
		if v := s.slots[i].v; v.Kind == Entry && v.Reg < 16 {
			m |= 1 << v.Reg
		}
	}
	return m
}
