package codeflow

import "github.com/ehasm/ehasm/internal/analysis/x86"

// This file counts arguments on the stack at calls: at a landing pad they are gone, since the unwinder drops them
// (libgcc's uw_install_context adds DW_CFA_GNU_args_size to rsp).

// argsAt returns how many bytes of arguments are on the stack at a call: as the table says (DW_CFA_GNU_args_size),
// otherwise as many as the code pushed for it.
func (l *listing) argsAt(p *part, pc, next uint64) int32 {
	if l.rows != nil {
		n := int32(0)
		for _, x := range p.fn.ArgSizes {
			if x.PC > pc {
				break
			}
			n = x.Bytes
		}
		return n
	}
	pushed := l.pushedBefore(p, pc)
	if pushed == 0 {
		return 0
	}
	k := l.inst(pc)
	if l.callNever(pc, &l.ins[k]) {
		return pushed
	}
	return l.poppedAfter(next, pushed)
}

// pushedBefore counts the bytes pushed for a call since the call before it. It looks at 40 instructions before the
// call: more than any call's arguments take.
func (l *listing) pushedBefore(p *part, pc uint64) (pushed int32) {
	run := int32(0)
	last := uint64(0)
	for cur, n := pc, 0; n < 40; n++ {
		i, ok := l.before(p, cur)
		if !ok {
			break
		}
		in := &l.ins[i]
		cur = l.pcs[i]
		switch in.Op {
		case x86.OpPUSH:
			adjoins := last == cur+uint64(in.Len)
			// A push of a callee-saved register in the first 40 bytes is the prologue's, not an argument.
			if a := in.Args[0]; a.Kind == x86.KGPR && CalleeSaved>>a.Reg&1 != 0 && cur < p.fn.Lo+40 {
				if adjoins {
					pushed -= run // an adjacent push only aligns the stack
				}
				return pushed
			}
			if !adjoins {
				run = 0
			}
			last = cur
			run += 8
			pushed += 8
			if cur == p.fn.Lo {
				return pushed - run
			}
		case x86.OpADD, x86.OpSUB:
			if a := in.Args[0]; a.Kind == x86.KGPR && a.Reg == rsp {
				if in.Op == x86.OpSUB && in.Imm <= 8 && pushed > 0 {
					pushed += int32(in.Imm)
				}
				return pushed
			}
		case x86.OpCALL, x86.OpJMP, x86.OpRET, x86.OpPOP, x86.OpUD2, x86.OpLEAVE:
			return pushed
		}
	}
	return pushed
}

// poppedAfter returns how many bytes the code after a call pops, at most pushed. What the code after a normal return
// pops tells arguments from alignment. The pop follows the call within a few instructions; what is not found counts as
// alignment, which stays.
func (l *listing) poppedAfter(next uint64, pushed int32) (n int32) {
	for range 8 {
		i := l.inst(next)
		if i < 0 {
			break
		}
		in := &l.ins[i]
		a := in.Args[0]
		switch in.Op {
		case x86.OpADD:
			if a.Kind == x86.KGPR && a.Reg == rsp && in.Imm > 0 {
				if n+int32(in.Imm) <= pushed {
					n += int32(in.Imm)
				}
				return n
			}
		case x86.OpPOP:
			if a.Kind != x86.KGPR || CalleeSaved>>a.Reg&1 != 0 || n+8 > pushed {
				return n
			}
			n += 8
		case x86.OpJMP, x86.OpRET, x86.OpCALL, x86.OpJCC:
			return n
		}
		next += uint64(in.Len)
	}
	return n
}
