package asmgen

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// A row descriptor encodes a row for the slow path. It lies in the data:
//
//	byte   CFA kind, and descSignal
//	...    operand of the CFA kind
//	...    rules: byte op<<5 | register, operand; the return address first
//	byte   0
//
// Before the descriptor of a tail lie three bytes for _eh_elf: where the return
// address, rbp and rbx are saved, as multiples of 8 from the CFA, 0 for a register
// that keeps its value. A return address of 0 there means that they do not fit.
//
// Registers without a rule here: callee-saved ones keep value and validity, rsp
// becomes the CFA, all others become invalid.
const (
	descCFAGiven  = 0 // computed by the fast path, from rsp
	descCFAFromBP = 1 // computed by the fast path, from rbp
	descCFAReg    = 2 // byte register, int64 offset
	descCFAExpr   = 3 // int32 offset of the code from the text's begin
	descSignal    = 0x80

	ruleEnd       = 0
	ruleOffset8   = 1 // int8: saved at CFA + 8*operand
	ruleOffset    = 2 // int64: saved at CFA + operand
	ruleUndefined = 3
	ruleSame      = 4
	ruleValOffset = 5 // int64: is CFA + operand
	ruleRegister  = 6 // byte: is that register's value
	ruleExpr      = 7 // byte: 0 value, 1 saved there; int32 offset of the code
)

// descRef asks for the 32-bit offset of a label at a place in a descriptor.
type descRef struct {
	off int
	to  label
}

// Places of the bytes before the descriptor of a tail.
const (
	stepRA  = -3
	stepBP  = -2
	stepBX  = -1
	stepLen = 3
)

// stepBytes encodes what _eh_elf needs from a tail. All zeros: the words do not lie where a byte
// can say.
func stepBytes(r *dwarfcfa.Row) []byte {
	b := make([]byte, stepLen)
	for slot, reg := range map[int]int{stepRA: abi.RIP, stepBP: abi.RBP, stepBX: abi.RBX} {
		rule := r.Regs[reg]
		switch {
		case rule.Kind != dwarfcfa.RuleOffset:
		case rule.Offset%8 != 0 || rule.Offset < -8*128:
			return make([]byte, stepLen)
		default:
			b[stepLen+slot] = byte(rule.Offset / 8)
		}
	}
	return b
}

// descriptor encodes a row; head is where in the bytes the descriptor begins.
// given is descCFAGiven or descCFAFromBP, or -1 if the slow path computes the
// CFA.
func descriptor(r *dwarfcfa.Row, given int, expr func(dwarfcfa.ExprID) label) (b []byte, head int, refs []descRef) {
	le := binary.LittleEndian
	// The places of expressions' code are filled in when the text is laid out.
	code := func(b []byte, id dwarfcfa.ExprID) []byte {
		refs = append(refs, descRef{off: len(b), to: expr(id)})
		return append(b, 0, 0, 0, 0)
	}
	var signal byte
	if r.Flags&dwarfcfa.RowSignal != 0 {
		signal = descSignal
	}
	switch {
	case given >= 0:
		b = append(stepBytes(r), byte(given)|signal)
		head = stepLen
	case r.CFA.Kind == dwarfcfa.CFAExpr:
		b = code(append(b, descCFAExpr|signal), r.CFA.Expr)
	default:
		b = le.AppendUint64(append(b, descCFAReg|signal, byte(r.CFA.Reg)), uint64(r.CFA.Offset))
	}
	// Rules that are the default of their register are left out.
	rule := func(reg int, rule dwarfcfa.RegRule) {
		op := func(op byte) { b = append(b, op<<5|byte(reg)) }
		switch rule.Kind {
		case dwarfcfa.RuleUndefined:
			if abi.CalleeSaved&(1<<reg) != 0 || reg == abi.RSP {
				op(ruleUndefined)
			}
		case dwarfcfa.RuleSameValue:
			if abi.CalleeSaved&(1<<reg) == 0 {
				op(ruleSame)
			}
		case dwarfcfa.RuleOffset:
			if rule.Offset%8 == 0 && rule.Offset/8 >= -128 && rule.Offset/8 <= 127 {
				op(ruleOffset8)
				b = append(b, byte(rule.Offset/8))
				return
			}
			op(ruleOffset)
			b = le.AppendUint64(b, uint64(rule.Offset))
		case dwarfcfa.RuleValOffset:
			if reg == abi.RSP && rule.Offset == 0 {
				return
			}
			op(ruleValOffset)
			b = le.AppendUint64(b, uint64(rule.Offset))
		case dwarfcfa.RuleRegister:
			op(ruleRegister)
			b = append(b, byte(rule.Reg))
		case dwarfcfa.RuleValExpression:
			op(ruleExpr)
			b = code(append(b, 0), rule.Expr)
		case dwarfcfa.RuleExpression:
			op(ruleExpr)
			b = code(append(b, 1), rule.Expr)
		}
	}
	rule(abi.RIP, r.Regs[abi.RIP])
	for reg := range abi.RIP {
		rule(reg, r.Regs[reg])
	}
	return append(b, ruleEnd), head, refs
}
