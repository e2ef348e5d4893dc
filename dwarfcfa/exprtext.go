package dwarfcfa

import (
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// regName returns the name of a DWARF register (x86-64 psABI figure 3.36), ""
// where it has none.
func regName(reg uint64) string {
	const (
		xmm0, st0, mm0, rflags = 17, 33, 41, 49
		xmm16, k0              = 67, 118
	)
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

func regSuffix(reg uint64) string {
	if name := regName(reg); name != "" {
		return " (" + name + ")"
	}
	return ""
}

// exprOpName returns the DW_OP_* name of an encoding (DWARF 5 §7.7.1).
func exprOpName(op uint8) string {
	switch {
	case op >= dwOpLit0 && op < dwOpLit0+32:
		return fmt.Sprintf("DW_OP_lit%d", op-dwOpLit0)
	case op >= dwOpReg0 && op < dwOpReg0+32:
		return fmt.Sprintf("DW_OP_reg%d", op-dwOpReg0)
	case op >= dwOpBreg0 && op < dwOpBreg0+32:
		return fmt.Sprintf("DW_OP_breg%d", op-dwOpBreg0)
	}
	names := map[uint8]string{
		dwOpAddr: "addr", dwOpDeref: "deref", dwOpConst1u: "const1u", dwOpConst1s: "const1s", dwOpConst2u: "const2u",
		dwOpConst2s: "const2s", dwOpConst4u: "const4u", dwOpConst4s: "const4s", dwOpConst8u: "const8u",
		dwOpConst8s: "const8s", dwOpConstu: "constu", dwOpConsts: "consts", dwOpDup: "dup", dwOpDrop: "drop",
		dwOpOver: "over", dwOpPick: "pick", dwOpSwap: "swap", dwOpRot: "rot", 0x18: "xderef", dwOpAbs: "abs",
		dwOpAnd: "and", dwOpDiv: "div", dwOpMinus: "minus", dwOpMod: "mod", dwOpMul: "mul", dwOpNeg: "neg",
		dwOpNot: "not", dwOpOr: "or", dwOpPlus: "plus", dwOpPlusUconst: "plus_uconst", dwOpShl: "shl", dwOpShr: "shr",
		dwOpShra: "shra", dwOpXor: "xor", dwOpBra: "bra", dwOpEq: "eq", dwOpGe: "ge", dwOpGt: "gt", dwOpLe: "le",
		dwOpLt: "lt", dwOpNe: "ne", dwOpSkip: "skip", dwOpRegx: "regx", 0x91: "fbreg", dwOpBregx: "bregx",
		0x93: "piece", dwOpDerefSize: "deref_size", 0x95: "xderef_size", dwOpNop: "nop", 0x97: "push_object_address",
		0x98: "call2", 0x99: "call4", 0x9a: "call_ref", 0x9b: "form_tls_address", 0x9c: "call_frame_cfa",
		0x9d: "bit_piece", 0x9e: "implicit_value", 0x9f: "stack_value", 0xa0: "implicit_pointer", 0xa1: "addrx",
		0xa2: "constx", 0xa3: "entry_value", 0xa4: "const_type", 0xa5: "regval_type", 0xa6: "deref_type",
		0xa7: "xderef_type", 0xa8: "convert", 0xa9: "reinterpret", 0xf1: "GNU_encoded_addr", 0xf3: "GNU_entry_value",
	}
	if n, ok := names[op]; ok {
		return "DW_OP_" + n
	}
	return fmt.Sprintf("DW_OP_%#02x", op)
}

// ExprText renders the bytes of an expression in readelf's notation. Where it
// meets an operation whose operands it does not know, it stops with its name.
func ExprText(raw []byte) string {
	var parts []string
	c := &cursor{data: raw}
	for !c.done() {
		start := c.pos
		op := c.u8()
		s := exprOpName(op)
		switch {
		case op >= dwOpReg0 && op < dwOpReg0+32:
			s += regSuffix(uint64(op - dwOpReg0))
		case op >= dwOpBreg0 && op < dwOpBreg0+32:
			s += regSuffix(uint64(op-dwOpBreg0)) + fmt.Sprintf(": %d", c.sleb())
		case op == dwOpAddr:
			s += fmt.Sprintf(": %x", c.u64())
		case op == dwOpConst1u, op == dwOpPick, op == dwOpDerefSize:
			s += fmt.Sprintf(": %d", c.u8())
		case op == dwOpConst1s:
			s += fmt.Sprintf(": %d", int8(c.u8()))
		case op == dwOpConst2u:
			s += fmt.Sprintf(": %d", c.u16())
		case op == dwOpConst2s:
			s += fmt.Sprintf(": %d", int16(c.u16()))
		case op == dwOpConst4u:
			s += fmt.Sprintf(": %d", c.u32())
		case op == dwOpConst4s:
			s += fmt.Sprintf(": %d", int32(c.u32()))
		case op == dwOpConst8u:
			s += fmt.Sprintf(": %d", c.u64())
		case op == dwOpConst8s:
			s += fmt.Sprintf(": %d", int64(c.u64()))
		case op == dwOpConstu, op == dwOpPlusUconst:
			s += fmt.Sprintf(": %d", c.uleb())
		case op == dwOpConsts:
			s += fmt.Sprintf(": %d", c.sleb())
		case op == dwOpRegx:
			reg := c.uleb()
			s += fmt.Sprintf(": %d%s", reg, regSuffix(reg))
		case op == dwOpBregx:
			reg := c.uleb()
			s += fmt.Sprintf(": %d%s %d", reg, regSuffix(reg), c.sleb())
		case op == dwOpBra, op == dwOpSkip:
			distance := int16(c.u16())
			s += fmt.Sprintf(": %d (addr: %x)", distance, c.pos+int(distance))
		default:
			if _, _, _, plain := plainOp(op); !plain && op < dwOpLit0 || op >= dwOpReg0+32 {
				if op != dwOpDeref && op != dwOpOver && op != dwOpNop {
					return strings.Join(append(parts, fmt.Sprintf("%s ... (%x)", s, raw[start:])), "; ")
				}
			}
		}
		if c.err != nil {
			s += " (truncated)"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}
