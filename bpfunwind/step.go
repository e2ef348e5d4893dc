package bpfunwind

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file takes rows apart into the few forms that the program knows. What does not fit is stepOther, and the walk
// ends there with NoRecord.

// step is what a row of a table says of the registers that the program follows: callee-saved ones, rsp
// and the return address. Steps are compared with ==.
type step struct {
	kind   stepKind
	cfa    cfa               // stepFrame
	places [numColumns]place // stepFrame
	// stepFrame: registers that a call may change are saved, too, and the program does not follow them
	stale bool
}

// stepKind is the kind of a step.
type stepKind uint8

const (
	stepNoRow  stepKind = iota // the table has no row
	stepEnd                    // the outermost frame
	stepOther                  // a row that no step can tell
	stepSignal                 // all registers are in the kernel's struct sigcontext, 40 bytes above rsp
	stepFrame
)

// Columns of a step after the six callee-saved registers.
const (
	columnRSP = len(saved) + iota
	columnRIP
	numColumns
)

// cfa is how the canonical frame address is found.
type cfa struct {
	form cfaForm
	reg  uint16 // DWARF number
	off  int64  // bytes
	add  int64
}

// cfaForm is the form of a CFA.
type cfaForm uint8

const (
	cfaOffset cfaForm = iota // reg + off
	cfaDeref                 // the word at reg + off, plus add
	cfaPLT                   // reg + off, plus 8 if pc&15 >= add: entries of procedure linkage tables
)

// place is where the caller's value of a register is.
type place struct {
	kind placeKind
	reg  uint16 // DWARF number
	off  int64  // bytes
}

// placeKind is the kind of a place.
type placeKind uint8

const (
	placeLost           placeKind = iota
	placeRegister                 // in register reg
	placeCFA                      // is CFA + off
	placeWordAtCFA                // in memory at CFA + off
	placeWordAtRegister           // in memory at reg + off
)

func (p place) isWord() bool { return p.kind == placeWordAtCFA || p.kind == placeWordAtRegister }

// stepOf returns the step of a row. Its kind is stepOther if the row says more than a step can.
func stepOf(t *dwarfcfa.Table, row *dwarfcfa.Row) step {
	other := step{kind: stepOther}
	switch {
	case row.Flags&dwarfcfa.RowNotCompiled != 0:
		return other
	case row.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined:
		return step{kind: stepEnd}
	case row.Flags&dwarfcfa.RowSignal != 0:
		if isSigcontext(t, row) {
			return step{kind: stepSignal}
		}
		return other
	}
	c, ok := cfaOf(t, row.CFA)
	if !ok {
		return other
	}
	s := step{kind: stepFrame, cfa: c}
	for i := range s.places {
		if s.places[i], ok = placeOf(t, row, register(i)); !ok {
			return other
		}
	}
	for reg, rule := range row.Regs {
		if isVolatile(reg) && rule.Kind != dwarfcfa.RuleUndefined && rule.Kind != dwarfcfa.RuleSameValue {
			s.stale = true
		}
	}
	return s
}

// register returns the register of a column.
func register(column int) int {
	switch column {
	case columnRSP:
		return abi.RSP
	case columnRIP:
		return abi.RIP
	}
	return saved[column]
}

// placeOf returns where a row has the caller's value of a register.
func placeOf(t *dwarfcfa.Table, row *dwarfcfa.Row, reg int) (place, bool) {
	rule := row.Regs[reg]
	switch rule.Kind {
	case dwarfcfa.RuleUndefined:
		return place{kind: placeLost}, true
	case dwarfcfa.RuleSameValue:
		return place{kind: placeRegister, reg: uint16(reg)}, true
	case dwarfcfa.RuleRegister:
		return place{kind: placeRegister, reg: rule.Reg}, true
	case dwarfcfa.RuleOffset:
		return place{kind: placeWordAtCFA, off: rule.Offset}, true
	case dwarfcfa.RuleValOffset:
		return place{kind: placeCFA, off: rule.Offset}, true
	case dwarfcfa.RuleExpression:
		base, off, ok := registerPlus(t.Exprs[rule.Expr].Ops)
		return place{kind: placeWordAtRegister, reg: base, off: off}, ok
	}
	return place{}, false
}

// registerPlus returns the register and the offset that an expression consists of.
func registerPlus(ops []dwarfcfa.ExprOp) (reg uint16, off int64, ok bool) {
	if len(ops) != 1 || ops[0].Code != dwarfcfa.OpReg {
		return 0, 0, false
	}
	return ops[0].Reg, ops[0].Arg, true
}

// cfaOf returns the CFA of a row.
func cfaOf(t *dwarfcfa.Table, rule dwarfcfa.CFARule) (cfa, bool) {
	switch rule.Kind {
	case dwarfcfa.CFARegOffset:
		return cfa{reg: rule.Reg, off: rule.Offset}, true
	case dwarfcfa.CFAExpr:
		ops := t.Exprs[rule.Expr].Ops
		if c, ok := derefCFA(ops); ok {
			return c, true
		}
		return pltCFA(ops)
	}
	return cfa{}, false
}

// derefCFA recognises reg+off, deref, and perhaps a constant that is added.
func derefCFA(ops []dwarfcfa.ExprOp) (c cfa, ok bool) {
	codes := []dwarfcfa.ExprCode{dwarfcfa.OpReg, dwarfcfa.OpDeref, dwarfcfa.OpConst, dwarfcfa.OpPlus}
	if len(ops) != 2 && len(ops) != len(codes) {
		return c, false
	}
	for i, op := range ops {
		if op.Code != codes[i] {
			return c, false
		}
	}
	c = cfa{form: cfaDeref, reg: ops[0].Reg, off: ops[0].Arg}
	if len(ops) > 2 {
		c.add = ops[2].Arg
	}
	return c, ops[1].Arg == 8
}

// pltCFA recognises what ld writes for entries of procedure linkage tables: a word is on the stack from the instruction
// at add on. The expression is rsp+8 + ((rip & 15) >= add) * 8 (binutils' bfd/elf64-x86-64.c,
// elf_x86_64_eh_frame_lazy_plt); entries have 16 bytes.
func pltCFA(ops []dwarfcfa.ExprOp) (c cfa, ok bool) {
	want := []dwarfcfa.ExprOp{{Code: dwarfcfa.OpReg}, {Code: dwarfcfa.OpReg, Reg: abi.RIP},
		{Code: dwarfcfa.OpConst, Arg: 15},
		{Code: dwarfcfa.OpAnd}, {Code: dwarfcfa.OpConst}, {Code: dwarfcfa.OpGe}, {Code: dwarfcfa.OpConst, Arg: 3},
		{Code: dwarfcfa.OpShl}, {Code: dwarfcfa.OpPlus}}
	const base, border = 0, 4
	if len(ops) != len(want) {
		return c, false
	}
	for i, op := range ops {
		w := want[i]
		if i == base {
			w.Reg, w.Arg = op.Reg, op.Arg
		}
		if i == border {
			w.Arg = op.Arg
		}
		if op != w {
			return c, false
		}
	}
	return cfa{form: cfaPLT, reg: ops[base].Reg, off: ops[base].Arg, add: ops[border].Arg}, true
}

// sigcontext has the registers in the order of the kernel's struct sigcontext (arch/x86/include/uapi/asm/sigcontext.h).
// In the frame of a signal handler's return r8 lies at rsp + sigcontextAt: behind uc_flags, uc_link and uc_stack of
// struct ucontext, 8, 8 and 24 bytes.
var sigcontext = [abi.NumRegs]int{abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15, abi.RDI,
	abi.RSI, abi.RBP, abi.RBX,
	abi.RDX, abi.RAX, abi.RCX, abi.RSP, abi.RIP}

const (
	sigcontextAt = 40
	sigRSP       = sigcontextAt + 8*15
)

// isSigcontext reports whether all registers are where struct sigcontext has them.
func isSigcontext(t *dwarfcfa.Table, row *dwarfcfa.Row) bool {
	c, ok := cfaOf(t, row.CFA)
	if !ok || c != (cfa{form: cfaDeref, reg: abi.RSP, off: sigRSP}) {
		return false
	}
	for i, reg := range sigcontext {
		p, ok := placeOf(t, row, reg)
		word := place{kind: placeWordAtRegister, reg: abi.RSP, off: sigcontextAt + 8*int64(i)}
		isCFA := reg == abi.RSP && p == place{kind: placeCFA} // which is that word
		if !ok || p != word && !isCFA {
			return false
		}
	}
	return true
}
