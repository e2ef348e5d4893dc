package codeflow

import (
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file decodes the code of a group, block by block, as control leads to it. A linear pass would decode data as
// well, and miss instructions inside others, as hand-written code has.

// callNever reports whether the call at pc never returns.
func (l *listing) callNever(pc uint64, in *x86.Inst) bool {
	if l.never[pc] {
		return true
	}
	if l.helperFollows(pc + uint64(in.Len)) {
		return true
	}
	img := l.p.img
	if in.Args[0].Kind == x86.KRel {
		t := in.Target(pc)
		return l.p.noReturn.has(t) || len(img.called.exitsIf) > 0 && img.called.exitsIf[t] && l.exits(pc)
	}
	if in.Args[0].Kind == x86.KMem && in.Mem.Base == x86.RIP {
		a, _ := in.MemAddr(pc)
		return img.called.noRetGOT[a] || img.called.exitsGOT[a] && l.exits(pc)
	}
	return false
}

// jumpsByCall reports whether the call at pc is a jump inside its function.
func (l *listing) jumpsByCall(p *part, pc uint64, in *x86.Inst) bool {
	t := in.Target(pc)
	return in.Args[0].Kind == x86.KRel && t > p.fn.Lo && t < p.fn.Hi && l.p.img.replacesReturn(t)
}

// helperFollows reports whether calls lead to next, the address behind a call, and the code there returns to its
// caller: the call does not come back, since it would return with what belongs to the frame of the code before it. Only
// with rows: without them, a label behind a call need be no function.
func (l *listing) helperFollows(next uint64) bool {
	if l.rows == nil || !l.p.called.has(next) {
		return false
	}
	g := l.p.find(next)
	return g >= 0 && l.p.fns[g].Lo != next && l.p.comesBack(next, 0)
}

// exits reports whether the first argument of the call at pc is a constant other than 0. error(3) and error_at_line(3)
// return only if their first argument, the status, is 0.
func (l *listing) exits(pc uint64) bool {
	// Compilers load the status a few instructions before. One that is further away counts as 0: the call may come
	// back.
	for range 12 {
		k, ok := l.prev(pc)
		if !ok || l.lead[l.pos(pc)] != 0 {
			return false // other code may come here
		}
		in := &l.ins[k]
		if in.Writes&x86.RDI.Mask() != 0 {
			return in.Op == x86.OpMOV && in.Args[1].Kind == x86.KImm && in.Imm != 0
		}
		if in.Op == x86.OpCALL || in.Op == x86.OpJMP {
			return false
		}
		pc = l.pcs[k]
	}
	return false
}

// discover decodes the code that pc leads to. It repeats until neither direct code nor tables show new targets.
func (l *listing) discover(pc uint64) {
	l.leader(pc)
	l.todo = append(l.todo[:0], pc)
	// Tables are read when all direct code is known, since more code shows more of their bounds.
	for {
		for len(l.todo) > 0 {
			pc := l.todo[len(l.todo)-1]
			l.todo = l.todo[:len(l.todo)-1]
			l.run(pc)
		}
		if len(l.switches.jumps) == 0 {
			if !l.resolveHeld() {
				return
			}
			continue
		}
		k := l.switches.jumps[0]
		l.switches.jumps = l.switches.jumps[1:]
		l.indirect(k)
	}
}

// run decodes from pc until control cannot go on to the next instruction.
func (l *listing) run(pc uint64) {
	p := l.partOf(pc)
	if p == nil {
		return
	}
	for lo := p.fn.Lo; pc-lo < uint64(len(p.code)) && l.instAt[int(pc-lo)+p.off] == 0; {
		if len(l.ins) < cap(l.ins) {
			l.ins = l.ins[:len(l.ins)+1]
		} else {
			l.ins = append(l.ins, x86.Inst{})
		}
		in := &l.ins[len(l.ins)-1]
		if x86.Decode(p.code[pc-lo:], in) != nil {
			l.ins = l.ins[:len(l.ins)-1]
			return
		}
		if in.Args[0].Kind == x86.KRel {
			t := in.Target(pc)
			in.Imm += int64(l.p.img.through(t) - t)
		}
		l.pcs = append(l.pcs, pc)
		l.instAt[int(pc-lo)+p.off] = int32(len(l.ins))
		switch classes[in.Op] {
		case classJump:
			if in.Args[0].Kind == x86.KRel {
				l.target(in.Target(pc))
			} else {
				l.switches.jumps = append(l.switches.jumps, int32(len(l.ins)-1))
			}
			return
		case classBranch, classXBegin:
			l.target(in.Target(pc))
		// Landing pads are reached by unwinding only.
		case classCall:
			if s := p.site(pc); s != nil {
				l.target(s.Pad)
			}
			if l.jumpsByCall(p, pc, in) {
				l.target(in.Target(pc))
				return
			}
			if l.callNever(pc, in) {
				return
			}
		case classRet, classEnd:
			return
		// The last tables whose addresses a register got: an indirect jump through it may use one.
		case classLea:
			if r := in.Args[0].Reg; in.Mem.Base == x86.RIP && r < 16 {
				addr, _ := in.MemAddr(pc)
				if t := (tableAddr{addr, p.i}); !slices.Contains(l.switches.leas[r], t) {
					l.switches.leas[r] = append(l.switches.leas[r], t)
				}
			}
		}
		pc += uint64(in.Len)
	}
}

// target marks the target of a jump as a leader, to be decoded if it was not.
func (l *listing) target(pc uint64) {
	o := l.pos(pc)
	if o < 0 {
		return
	}
	if l.lead[o] == 0 {
		l.lead[o] = -1
		if l.instAt[o] > 0 {
			l.split = append(l.split, pc)
		}
	}
	if l.instAt[o] == 0 {
		l.todo = append(l.todo, pc)
	}
}

// indirect looks for the table of the indirect jump with index k, and notes its targets. A table whose base is not
// known yet, since another block sets the register, is held until all direct code is known.
func (l *listing) indirect(k int32) {
	t := l.tableForm(k)
	var ts []uint64
	if t.addr != 0 {
		if ts = l.readTable(&t); ts != nil {
			l.switches.byAddr[tableAddr{t.addr, l.partOf(l.pcs[k]).i}] = ts
			l.setTable(k, ts)
		}
	}
	if t.base >= 0 && (t.far || ts == nil) {
		l.switches.held = append(l.switches.held, held{k, t.base})
	}
}

// setTable notes the targets of jump k; what lies there is decoded next.
func (l *listing) setTable(k int32, ts []uint64) {
	l.switches.table[l.pcs[k]] = ts
	for _, t := range ts {
		l.target(t)
	}
}
