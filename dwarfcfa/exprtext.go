package dwarfcfa

import (
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// regName returns the name of a DWARF register (x86-64 psABI figure 3.36), or ""
// if it has none.
func regName(reg uint64) string {
	// First numbers of the groups.
	const (
		xmm0, st0, mm0, rflags = 17, 33, 41, 49
		xmm16, k0              = 67, 118
	)
	// Numbers 49 to 66; empty texts are reserved.
	rest := [...]string{"rflags", "es", "cs", "ss", "ds", "fs", "gs", "", "", "fs.base", "gs.base", "", "", "tr", "ldtr",
		"mxcsr", "fcw", "fsw"}
	switch {
	case reg < NumRegs:
		return abi.RegName(int(reg))
	case reg < st0:
		return fmt.Sprintf("xmm%d", reg-xmm0)
	case reg < mm0:
		return fmt.Sprintf("st(%d)", reg-st0)
	case reg < rflags:
		return fmt.Sprintf("mm%d", reg-mm0)
	case reg < rflags+uint64(len(rest)):
		return rest[reg-rflags]
	case reg >= xmm16 && reg < xmm16+16:
		return fmt.Sprintf("xmm%d", reg-xmm16+16)
	case reg >= k0 && reg < k0+8:
		return fmt.Sprintf("k%d", reg-k0)
	}
	return ""
}

// regText names a register as readelf does: "r6 (rbp)".
func regText(reg uint64) string { return fmt.Sprintf("r%d%s", reg, regSuffix(reg)) }

// regSuffix is the name of a register in parentheses after a space, "" if it has none.
func regSuffix(reg uint64) string {
	if name := regName(reg); name != "" {
		return " (" + name + ")"
	}
	return ""
}

// exprOpName returns the DW_OP_* name of an encoding (DWARF 5 §7.7.1).
func exprOpName(op uint8) string {
	if n := encodings[op].name; n != "" {
		return "DW_OP_" + n
	}
	return fmt.Sprintf("DW_OP_%#02x", op)
}

// ExprText renders the bytes of an expression in readelf's notation. At an
// operation whose operands it does not know, it stops after the operation's
// name.
func ExprText(raw []byte) string {
	var parts []string
	// Operands are read as the decoder reads them; a failure stays in c.
	c := &cursor{data: raw}
	for !c.done() {
		start := c.pos
		op := c.u8()
		s := exprOpName(op)
		e := &encodings[op]
		switch n, reg := e.read(c); {
		// The length of such operands is not known, so nothing behind them can be read.
		case e.operands == operandUnknown:
			return strings.Join(append(parts, fmt.Sprintf("%s ... (%x)", s, raw[start:])), "; ")
		case e.operands == operandReg:
			s += fmt.Sprintf(": %d%s", reg, regSuffix(reg))
		case e.operands == operandRegOffset:
			s += fmt.Sprintf(": %d%s %d", reg, regSuffix(reg), n)
		// Targets count from the end of the operand.
		case e.operands == operandJump:
			s += fmt.Sprintf(": %d (addr: %x)", n, c.pos+int(n))
		case e.operands == operandAddr:
			s += fmt.Sprintf(": %x", uint64(n))
		case e.operands == operandU64, e.operands == operandULEB:
			s += fmt.Sprintf(": %d", uint64(n))
		case e.operands != operandNone:
			if e.op.Code == OpReg {
				s += regSuffix(reg)
			}
			s += fmt.Sprintf(": %d", n)
		// reg0 to reg31 and breg0 to breg31 have the register in the opcode.
		case e.op.Code == OpReg:
			s += regSuffix(reg)
		}
		if c.err != nil {
			s += " (truncated)"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}
