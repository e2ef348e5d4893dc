package codeflow

import "github.com/ehasm/ehasm/internal/analysis/x86"

// System calls of Linux on x86-64.
const (
	sysClone     = 56
	sysExit      = 60
	sysExitGroup = 231
	sysClone3    = 435
)

// syscallNumber returns the number of the system call at pc, if the code before it sets rax to a constant; otherwise
// -1.
func (f *flow) syscallNumber(pc uint64) int64 {
	const far = 16
	for range far {
		k, ok := f.prev(pc)
		if !ok || f.lead[f.pos(pc)] != 0 {
			break // other code may come here
		}
		in := &f.ins[k]
		if in.Op == x86.OpCALL || in.Op == x86.OpJMP || in.Op == x86.OpSYSCALL {
			break
		}
		if in.Writes&x86.RAX.Mask() != 0 {
			if in.Op == x86.OpMOV && in.Args[0].Kind == x86.KGPR && in.Args[1].Kind == x86.KImm {
				return in.Imm // also of mov $56,%al, behind xor %eax,%eax
			}
			break
		}
		pc = f.pcs[k]
	}
	return -1
}

// exitsBySyscall reports whether the system call at pc ends the thread or the process.
func (f *flow) exitsBySyscall(pc uint64) bool {
	n := f.syscallNumber(pc)
	return n == sysExit || n == sysExitGroup
}

// asksForChild reports whether two instructions are what follows a clone: test %rax,%rax; je or jne.
func asksForChild(test, jump *x86.Inst) bool {
	a, b := &test.Args[0], &test.Args[1]
	return test.Op == x86.OpTEST && a.Kind == x86.KGPR && a.Reg == uint8(x86.RAX) && *a == *b &&
		jump.Op == x86.OpJCC && (jump.Cond == x86.CondE || jump.Cond == x86.CondNE)
}

// cloned returns the states at the target of the conditional jump at pc and behind it. They differ if the jump asks
// which of two threads a clone has left: the child, where the result is 0, is on a new stack without a caller.
func (f *flow) cloned(pc uint64, in *x86.Inst, s *State) (target, next *State) {
	k, ok := f.prev(pc)
	if !ok || f.lead[f.pos(f.pcs[k])] != 0 {
		return s, s
	}
	if k, ok = f.prev(f.pcs[k]); !ok || f.ins[k].Op != x86.OpSYSCALL {
		return s, s
	}
	if n := f.syscallNumber(f.pcs[k]); n != sysClone && n != sysClone3 {
		return s, s
	}
	child := &State{}
	f.base(pc, child)
	if in.Cond == x86.CondE {
		return child, s
	}
	return s, child
}
