package codeflow

import "github.com/ehasm/ehasm/internal/analysis/x86"

// This file knows three system calls: exit and exit_group do not return, and clone returns a second time on another
// stack. Their numbers are those of arch/x86/entry/syscalls/syscall_64.tbl.

// System calls of Linux on x86-64.
const (
	sysClone     = 56
	sysExit      = 60
	sysExitGroup = 231
	sysClone3    = 435
)

// syscallNumber returns the number of the system call at pc, if the code before it sets rax to a constant; otherwise
// -1.
func (l *listing) syscallNumber(pc uint64) int64 {
	const far = 16
	for range far {
		k, ok := l.prev(pc)
		if !ok || l.lead[l.pos(pc)] != 0 {
			break // other code may come here
		}
		in := &l.ins[k]
		if in.Op == x86.OpCALL || in.Op == x86.OpJMP || in.Op == x86.OpSYSCALL {
			break
		}
		if in.Writes&x86.RAX.Mask() != 0 {
			if in.Op == x86.OpMOV && in.Args[0].Kind == x86.KGPR && in.Args[1].Kind == x86.KImm {
				return in.Imm // also of mov $56,%al, behind xor %eax,%eax
			}
			break
		}
		pc = l.pcs[k]
	}
	return -1
}

// exitsBySyscall reports whether the system call at pc ends the thread or the process.
func (l *listing) exitsBySyscall(pc uint64) bool {
	n := l.syscallNumber(pc)
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
func (m *machine) cloned(pc uint64, in *x86.Inst, s *State) (target, next *State) {
	k, ok := m.code.prev(pc)
	if !ok || m.code.lead[m.code.pos(m.code.pcs[k])] != 0 {
		return s, s
	}
	if k, ok = m.code.prev(m.code.pcs[k]); !ok || m.code.ins[k].Op != x86.OpSYSCALL {
		return s, s
	}
	if n := m.code.syscallNumber(m.code.pcs[k]); n != sysClone && n != sysClone3 {
		return s, s
	}
	child := &State{}
	m.base(pc, child)
	if in.Cond == x86.CondE {
		return child, s
	}
	return s, child
}
