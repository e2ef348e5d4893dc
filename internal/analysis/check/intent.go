package check

import (
	"slices"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file tells code that breaks the rules by intent from wrong tables: changes of context, returns to elsewhere,
// jumps by ret. Each function here stands for programs that had false findings.

// leavesStack reports whether an instruction goes, with another stack, to where no table tells: the end of longjmp and
// its like, which have loaded another context's registers, or of OCaml's caml_raise_exn, whose ret leads to a handler.
func (c *function) leavesStack(pc uint64, in *x86.Inst, s *codeflow.State) bool {
	r := s.Regs[x86.RSP]
	return (in.Op == x86.OpRET || in.Op == x86.OpJMP && in.Args[0].Kind != x86.KRel && !c.r.Switches(pc)) &&
		r.Kind == codeflow.Base && r.Reg != 0
}

// intended marks the open findings of registers and of the return address: the code has loaded another context's.
func (c *function) intended() {
	for _, r := range c.open {
		if r.w.kind == KindClobbered || r.w.kind == KindSaved || r.w.kind == KindReturn {
			r.f.Class = ClassContext
		}
	}
}

// callersFrame marks the open findings of rows that describe the caller's frame from the function's first instruction
// on: the function changes its return address, as libgcc's __morestack does, and has no frame for it.
func (c *function) callersFrame() {
	for _, r := range c.open {
		if f := &r.f; f.Kind == KindCFA && f.PC == f.Start && f.Class == ClassTable && r.row.Row.CFA.Offset > 8 {
			f.Class = ClassReturn
		}
	}
}

// aside is where a register is copied to: a vector register, or memory.
type aside struct {
	kind x86.Kind
	reg  uint8
	mem  x86.Mem
}

// restores notes the registers that the function copies to memory or to a vector register, while they have their
// caller's values, and loads from there again. It has no private calling convention, then. Behind the load they are as
// they were.
func (c *function) restores() {
	var copied [16]aside
	c.r.Each(func(pc uint64, in *x86.Inst, s *codeflow.State, _ codeflow.Basis) {
		to, from := &in.Args[0], &in.Args[1]
		if in.Op != x86.OpMOV && in.Op != x86.OpMOVQ {
			return
		}
		if h := from.Reg; from.Kind == x86.KGPR && from.Size == 8 &&
			s.Regs[h] == (codeflow.Value{Kind: codeflow.Entry, Reg: h}) {
			copied[h] = aside{to.Kind, to.Reg, in.Mem}
		}
		if to.Kind == x86.KGPR && (from.Kind == x86.KVec || from.Kind == x86.KMem) &&
			copied[to.Reg] == (aside{from.Kind, from.Reg, in.Mem}) {
			c.rep.saved |= 1 << to.Reg & codeflow.CalleeSaved
			c.rep.findings = slices.DeleteFunc(c.rep.findings, func(f Finding) bool {
				return f.Kind == KindClobbered && f.PC == pc+uint64(in.Len) && f.Register == regName(to.Reg)
			})
		}
	})
}

// topSet reports whether the instruction before pc writes the word at rsp, so that a ret at pc jumps there, as in
// retpolines.
func (c *function) topSet(pc uint64) bool {
	// Instructions have at most 15 bytes; of those that end at pc, only a reached one counts.
	for d := uint64(1); d <= 15; d++ {
		if in := c.r.Inst(pc - d); in != nil && uint64(in.Len) == d {
			return in.Op == x86.OpPUSH || in.MemWrite && in.Mem.Base == x86.RSP && in.Mem.Index == x86.None && in.Mem.Disp == 0
		}
	}
	return false
}

// takesStack reports whether an instruction moves the row's CFA register to rsp: the end of __builtin_eh_return, whose
// row describes the frame that it returns to.
func takesStack(in *x86.Inst, row *dwarfcfa.Row) bool {
	to, from := &in.Args[0], &in.Args[1]
	return in.Op == x86.OpMOV && to.Kind == x86.KGPR && to.Reg == uint8(x86.RSP) && from.Kind == x86.KGPR &&
		row.CFA.Kind == dwarfcfa.CFARegOffset && row.CFA.Reg < 16 && hardware[row.CFA.Reg] == from.Reg
}

// returnsElsewhere reports whether rsp is above the return address at a ret, and the row says that the ret takes the
// top of the stack. That is right: the code has dropped its own return address, or a ret and no call led to it.
func returnsElsewhere(row *dwarfcfa.Row, s *codeflow.State) bool {
	r := s.Regs[x86.RSP]
	return r.Kind == codeflow.Base && r.Reg == 0 && r.Off > -8 &&
		row.CFA == dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: 7, Offset: 8}
}
