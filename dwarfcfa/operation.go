package dwarfcfa

import "fmt"

// This file is the one table of expression operations: names, effects on the stack and values, for the decoder, the
// evaluator and the dumps.

// operation describes an ExprCode.
type operation struct {
	name string
	// pops is how many entries it pops, pushes how many it pushes; OpPick has op.Arg
	// more of both.
	pops, pushes int
	// value computes the pushed value from the popped entries: b is the top, a the entry
	// below it, whether popped or not. ok is false if there is no value. value is nil for
	// operations that the evaluator itself does: they move entries, read registers and
	// memory, or branch.
	value func(a, b uint64) (v uint64, ok bool)
}

// operations has an entry for each ExprCode.
var operations = [NumExprCodes]operation{
	OpConst:  {name: "const", pushes: 1},
	OpAddr:   {name: "addr", pushes: 1},
	OpReg:    {name: "reg", pushes: 1},
	OpDup:    {name: "dup", pops: 1, pushes: 2},
	OpDrop:   {name: "drop", pops: 1},
	OpPick:   {name: "pick", pops: 1, pushes: 2},
	OpSwap:   {name: "swap", pops: 2, pushes: 2},
	OpRot:    {name: "rot", pops: 3, pushes: 3},
	OpDeref:  {name: "deref", pops: 1, pushes: 1},
	OpBranch: {name: "branch", pops: 1},
	OpSkip:   {name: "skip"},

	OpAbs:   onOne("abs", func(b uint64) uint64 { return min(b, -b) }), // signed
	OpNeg:   onOne("neg", func(b uint64) uint64 { return -b }),
	OpNot:   onOne("not", func(b uint64) uint64 { return ^b }),
	OpAnd:   onTwo("and", func(a, b uint64) uint64 { return a & b }),
	OpOr:    onTwo("or", func(a, b uint64) uint64 { return a | b }),
	OpXor:   onTwo("xor", func(a, b uint64) uint64 { return a ^ b }),
	OpPlus:  onTwo("plus", func(a, b uint64) uint64 { return a + b }),
	OpMinus: onTwo("minus", func(a, b uint64) uint64 { return a - b }),
	OpMul:   onTwo("mul", func(a, b uint64) uint64 { return a * b }),
	// the most negative over -1 wraps
	OpDiv:  division("div", func(a, b uint64) uint64 { return uint64(int64(a) / int64(b)) }),
	OpMod:  division("mod", func(a, b uint64) uint64 { return a % b }),
	OpShl:  onTwo("shl", func(a, b uint64) uint64 { return a << b }),
	OpShr:  onTwo("shr", func(a, b uint64) uint64 { return a >> b }),
	OpShra: onTwo("shra", func(a, b uint64) uint64 { return uint64(int64(a) >> b) }),
	OpEq:   comparison("eq", func(a, b int64) bool { return a == b }),
	OpNe:   comparison("ne", func(a, b int64) bool { return a != b }),
	OpLt:   comparison("lt", func(a, b int64) bool { return a < b }),
	OpLe:   comparison("le", func(a, b int64) bool { return a <= b }),
	OpGt:   comparison("gt", func(a, b int64) bool { return a > b }),
	OpGe:   comparison("ge", func(a, b int64) bool { return a >= b }),
}

// onOne and onTwo make operations on one and on two entries that always have a value.
func onOne(name string, f func(b uint64) uint64) operation {
	return operation{name: name, pops: 1, pushes: 1, value: func(_, b uint64) (uint64, bool) { return f(b), true }}
}

func onTwo(name string, f func(a, b uint64) uint64) operation {
	return operation{name: name, pops: 2, pushes: 1, value: func(a, b uint64) (uint64, bool) { return f(a, b), true }}
}

// division has no value if b is zero; a step takes that as an unreadable word (docs/abi.md).
func division(name string, f func(a, b uint64) uint64) operation {
	return operation{name: name, pops: 2, pushes: 1, value: func(a, b uint64) (uint64, bool) {
		if b == 0 {
			return 0, false
		}
		return f(a, b), true
	}}
}

// comparison makes a signed comparison, which pushes 1 or 0 (DWARF 5 section 2.5.1.5).
func comparison(name string, f func(a, b int64) bool) operation {
	return onTwo(name, func(a, b uint64) uint64 {
		if f(int64(a), int64(b)) {
			return 1
		}
		return 0
	})
}

func (c ExprCode) String() string {
	if c < NumExprCodes {
		return operations[c].name
	}
	return fmt.Sprintf("operation %d", uint8(c))
}

// Effect returns how many stack entries an operation pops and how many it pushes.
func (op *ExprOp) Effect() (pops, pushes int) {
	o := &operations[op.Code]
	if op.Code == OpPick {
		return o.pops + int(op.Arg), o.pushes + int(op.Arg)
	}
	return o.pops, o.pushes
}

// operandKind says which operands follow an encoding.
type operandKind uint8

const (
	operandNone operandKind = iota
	operandU8
	operandS8
	operandU16
	operandS16
	operandU32
	operandS32
	operandU64
	operandS64
	operandAddr
	operandULEB
	operandSLEB
	operandReg       // a register
	operandRegOffset // a register and an offset
	operandJump      // a distance from the end of the operand
	operandUnknown   // not read
)

// encoding describes an encoding of an operation (DWARF 5 §7.7.1).
type encoding struct {
	name     string // without DW_OP_; "": none
	operands operandKind
	compiled bool   // op is what it means; else it cannot be compiled
	op       ExprOp // without its operands
}

// encodings has the encodings by their first byte.
var encodings = makeEncodings()

// makeEncodings returns how each operation of an expression is encoded, and what it means (DWARF 5 table 7.9).
func makeEncodings() [256]encoding {
	table := [256]encoding{
		dwOpAddr:       {"addr", operandAddr, true, ExprOp{Code: OpAddr}},
		dwOpDeref:      {"deref", operandNone, true, ExprOp{Code: OpDeref, Arg: 8}},
		dwOpConst1u:    {"const1u", operandU8, true, ExprOp{Code: OpConst}},
		dwOpConst1s:    {"const1s", operandS8, true, ExprOp{Code: OpConst}},
		dwOpConst2u:    {"const2u", operandU16, true, ExprOp{Code: OpConst}},
		dwOpConst2s:    {"const2s", operandS16, true, ExprOp{Code: OpConst}},
		dwOpConst4u:    {"const4u", operandU32, true, ExprOp{Code: OpConst}},
		dwOpConst4s:    {"const4s", operandS32, true, ExprOp{Code: OpConst}},
		dwOpConst8u:    {"const8u", operandU64, true, ExprOp{Code: OpConst}},
		dwOpConst8s:    {"const8s", operandS64, true, ExprOp{Code: OpConst}},
		dwOpConstu:     {"constu", operandULEB, true, ExprOp{Code: OpConst}},
		dwOpConsts:     {"consts", operandSLEB, true, ExprOp{Code: OpConst}},
		dwOpDup:        {"dup", operandNone, true, ExprOp{Code: OpDup}},
		dwOpDrop:       {"drop", operandNone, true, ExprOp{Code: OpDrop}},
		dwOpOver:       {"over", operandNone, true, ExprOp{Code: OpPick, Arg: 1}},
		dwOpPick:       {"pick", operandU8, true, ExprOp{Code: OpPick}},
		dwOpSwap:       {"swap", operandNone, true, ExprOp{Code: OpSwap}},
		dwOpRot:        {"rot", operandNone, true, ExprOp{Code: OpRot}},
		dwOpAbs:        {"abs", operandNone, true, ExprOp{Code: OpAbs}},
		dwOpAnd:        {"and", operandNone, true, ExprOp{Code: OpAnd}},
		dwOpDiv:        {"div", operandNone, true, ExprOp{Code: OpDiv}},
		dwOpMinus:      {"minus", operandNone, true, ExprOp{Code: OpMinus}},
		dwOpMod:        {"mod", operandNone, true, ExprOp{Code: OpMod}},
		dwOpMul:        {"mul", operandNone, true, ExprOp{Code: OpMul}},
		dwOpNeg:        {"neg", operandNone, true, ExprOp{Code: OpNeg}},
		dwOpNot:        {"not", operandNone, true, ExprOp{Code: OpNot}},
		dwOpOr:         {"or", operandNone, true, ExprOp{Code: OpOr}},
		dwOpPlus:       {"plus", operandNone, true, ExprOp{Code: OpPlus}},
		dwOpPlusUconst: {"plus_uconst", operandULEB, true, ExprOp{Code: OpConst}}, // and OpPlus
		dwOpShl:        {"shl", operandNone, true, ExprOp{Code: OpShl}},
		dwOpShr:        {"shr", operandNone, true, ExprOp{Code: OpShr}},
		dwOpShra:       {"shra", operandNone, true, ExprOp{Code: OpShra}},
		dwOpXor:        {"xor", operandNone, true, ExprOp{Code: OpXor}},
		dwOpBra:        {"bra", operandJump, true, ExprOp{Code: OpBranch}},
		dwOpEq:         {"eq", operandNone, true, ExprOp{Code: OpEq}},
		dwOpGe:         {"ge", operandNone, true, ExprOp{Code: OpGe}},
		dwOpGt:         {"gt", operandNone, true, ExprOp{Code: OpGt}},
		dwOpLe:         {"le", operandNone, true, ExprOp{Code: OpLe}},
		dwOpLt:         {"lt", operandNone, true, ExprOp{Code: OpLt}},
		dwOpNe:         {"ne", operandNone, true, ExprOp{Code: OpNe}},
		dwOpSkip:       {"skip", operandJump, true, ExprOp{Code: OpSkip}},
		dwOpRegx:       {"regx", operandReg, true, ExprOp{Code: OpReg}},
		dwOpBregx:      {"bregx", operandRegOffset, true, ExprOp{Code: OpReg}},
		dwOpDerefSize:  {"deref_size", operandU8, true, ExprOp{Code: OpDeref}},
		dwOpNop:        {name: "nop", compiled: true},
	}
	// The three ranges of 32: literals, registers, and registers with an offset.
	for i := range 32 {
		table[dwOpLit0+i] = encoding{fmt.Sprintf("lit%d", i), operandNone, true, ExprOp{Code: OpConst, Arg: int64(i)}}
		table[dwOpReg0+i] = encoding{fmt.Sprintf("reg%d", i), operandNone, true, ExprOp{Code: OpReg, Reg: uint16(i)}}
		table[dwOpBreg0+i] = encoding{fmt.Sprintf("breg%d", i), operandSLEB, true, ExprOp{Code: OpReg, Reg: uint16(i)}}
	}
	// Operations without a meaning in unwind information still have their names in dumps.
	for op, name := range map[uint8]string{
		0x18: "xderef", 0x91: "fbreg", 0x93: "piece", 0x95: "xderef_size", 0x97: "push_object_address",
		0x98: "call2", 0x99: "call4", 0x9a: "call_ref", 0x9b: "form_tls_address", 0x9c: "call_frame_cfa",
		0x9d: "bit_piece", 0x9e: "implicit_value", 0x9f: "stack_value", 0xa0: "implicit_pointer", 0xa1: "addrx",
		0xa2: "constx", 0xa3: "entry_value", 0xa4: "const_type", 0xa5: "regval_type", 0xa6: "deref_type",
		0xa7: "xderef_type", 0xa8: "convert", 0xa9: "reinterpret", 0xf1: "GNU_encoded_addr", 0xf3: "GNU_entry_value",
	} {
		table[op].name = name
	}
	for op := range table {
		if !table[op].compiled {
			table[op].operands = operandUnknown
		}
	}
	return table
}
