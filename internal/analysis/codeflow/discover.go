package codeflow

import (
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// callNever reports whether the call at pc never returns.
func (f *flow) callNever(pc uint64, in *x86.Inst) bool {
	if f.never[pc] {
		return true
	}
	if f.helperFollows(pc + uint64(in.Len)) {
		return true
	}
	img := f.p.img
	if in.Args[0].Kind == x86.KRel {
		t := in.Target(pc)
		return f.p.noReturn.has(t) || len(img.called.exitsIf) > 0 && img.called.exitsIf[t] && f.exits(pc)
	}
	if in.Args[0].Kind == x86.KMem && in.Mem.Base == x86.RIP {
		a, _ := in.MemAddr(pc)
		return img.called.noRetGOT[a] || img.called.exitsGOT[a] && f.exits(pc)
	}
	return false
}

// jumpsByCall reports whether the call at pc is a jump inside its function.
func (f *flow) jumpsByCall(p *part, pc uint64, in *x86.Inst) bool {
	t := in.Target(pc)
	return in.Args[0].Kind == x86.KRel && t > p.fn.Lo && t < p.fn.Hi && f.p.img.replacesReturn(t)
}

// helperFollows reports whether calls lead to next, the address behind a call, and the code there returns to its
// caller: the call does not come back, since it would return with what belongs to the frame of the code before it.
func (f *flow) helperFollows(next uint64) bool {
	if f.beginner == nil || !f.p.called.has(next) {
		return false
	}
	g := f.p.find(next)
	return g >= 0 && f.p.fns[g].Lo != next && f.p.comesBack(next, 0)
}

// exits reports whether the first argument of the call at pc is a constant other than 0.
func (f *flow) exits(pc uint64) bool {
	for range 12 {
		k, ok := f.prev(pc)
		if !ok || f.lead[f.pos(pc)] != 0 {
			return false // other code may come here
		}
		in := &f.ins[k]
		if in.Writes&x86.RDI.Mask() != 0 {
			return in.Op == x86.OpMOV && in.Args[1].Kind == x86.KImm && in.Imm != 0
		}
		if in.Op == x86.OpCALL || in.Op == x86.OpJMP {
			return false
		}
		pc = f.pcs[k]
	}
	return false
}

// discover decodes the code that pc leads to.
func (f *flow) discover(pc uint64) {
	f.leader(pc)
	f.todo = append(f.todo[:0], pc)
	// Tables are read when all direct code is known, since more code shows more of their bounds.
	for {
		for len(f.todo) > 0 {
			pc := f.todo[len(f.todo)-1]
			f.todo = f.todo[:len(f.todo)-1]
			f.run(pc)
		}
		if len(f.jumps) == 0 {
			if !f.resolveHeld() {
				return
			}
			continue
		}
		k := f.jumps[0]
		f.jumps = f.jumps[1:]
		f.indirect(k)
	}
}

// run decodes from pc until control cannot go on to the next instruction.
func (f *flow) run(pc uint64) {
	p := f.partOf(pc)
	if p == nil {
		return
	}
	for lo := p.fn.Lo; pc-lo < uint64(len(p.code)) && f.instAt[int(pc-lo)+p.off] == 0; {
		if len(f.ins) < cap(f.ins) {
			f.ins = f.ins[:len(f.ins)+1]
		} else {
			f.ins = append(f.ins, x86.Inst{})
		}
		in := &f.ins[len(f.ins)-1]
		if x86.Decode(p.code[pc-lo:], in) != nil {
			f.ins = f.ins[:len(f.ins)-1]
			return
		}
		if in.Args[0].Kind == x86.KRel {
			t := in.Target(pc)
			in.Imm += int64(f.p.img.through(t) - t)
		}
		f.pcs = append(f.pcs, pc)
		f.instAt[int(pc-lo)+p.off] = int32(len(f.ins))
		switch classes[in.Op] {
		case classJump:
			if in.Args[0].Kind == x86.KRel {
				f.target(in.Target(pc))
			} else {
				f.jumps = append(f.jumps, int32(len(f.ins)-1))
			}
			return
		case classBranch, classXBegin:
			f.target(in.Target(pc))
		// Landing pads are reached by unwinding only.
		case classCall:
			if s := p.site(pc); s != nil {
				f.target(s.Pad)
			}
			if f.jumpsByCall(p, pc, in) {
				f.target(in.Target(pc))
				return
			}
			if f.callNever(pc, in) {
				return
			}
		case classRet, classEnd:
			return
		// The last tables whose addresses a register got: an indirect jump through it may use one.
		case classLea:
			if r := in.Args[0].Reg; in.Mem.Base == x86.RIP && r < 16 {
				at, _ := in.MemAddr(pc)
				if l := (tableAddr{at, p.i}); !slices.Contains(f.leas[r], l) {
					f.leas[r] = append(f.leas[r], l)
				}
			}
		}
		pc += uint64(in.Len)
	}
}

// target marks the target of a jump as a leader, to be decoded if it was not.
func (f *flow) target(pc uint64) {
	o := f.pos(pc)
	if o < 0 {
		return
	}
	if f.lead[o] == 0 {
		f.lead[o] = -1
		if f.instAt[o] > 0 {
			f.split = append(f.split, pc)
		}
	}
	if f.instAt[o] == 0 {
		f.todo = append(f.todo, pc)
	}
}

// indirect looks for the table of the indirect jump with index k, and notes its targets.
func (f *flow) indirect(k int32) {
	t := f.tableForm(k)
	var ts []uint64
	if t.addr != 0 {
		if ts = f.readTable(&t); ts != nil {
			f.byAddr[tableAddr{t.addr, f.partOf(f.pcs[k]).i}] = ts
			f.setTable(k, ts)
		}
	}
	if t.base >= 0 && (t.far || ts == nil) {
		f.held = append(f.held, held{k, t.base})
	}
}

func (f *flow) setTable(k int32, ts []uint64) {
	f.table[f.pcs[k]] = ts
	for _, t := range ts {
		f.target(t)
	}
}
