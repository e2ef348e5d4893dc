package dwarfcfa

// ExprOp is one operation of a DWARF expression (DWARF 5 §2.5) in the form all
// later stages use: literals, registers and branches are decoded, aliases
// (DW_OP_litN, DW_OP_bregN, ...) folded.
type ExprOp struct {
	Code ExprCode
	Reg  uint16 // OpReg: DWARF number, below NumRegs
	Arg  int64  // OpConst, OpAddr: the value; OpReg: offset added; OpPick: index; OpDeref: bytes 1, 2, 4 or 8
	// OpBranch, OpSkip: index of the operation to go on with; always larger than the own index, at most len(Ops)
	Jump int
}

// ExprCode is the operation of an ExprOp.
type ExprCode uint8

// All arithmetic is on 64-bit words and wraps (DWARF 5 §2.5.1.4). "a" is the
// entry below the top, "b" the top.
const (
	OpConst ExprCode = iota // push Arg (DW_OP_lit*, const*)
	OpAddr                  // push Arg + load bias (DW_OP_addr)
	OpReg                   // push Reg + Arg (DW_OP_breg*, bregx; DW_OP_reg*, regx as libgcc reads them)
	OpDup                   // push a copy of the top
	OpDrop                  // pop
	OpPick                  // push a copy of entry Arg counted from the top (DW_OP_pick; over is pick 1)
	OpSwap                  // exchange the two topmost
	OpRot                   // the top becomes third, the others move up
	OpDeref                 // pop an address, push the low Arg bytes of the word there (DW_OP_deref, deref_size)
	OpAbs                   // |b|, signed
	OpNeg                   // -b
	OpNot                   // ^b
	OpAnd                   // a & b
	OpOr                    // a | b
	OpXor                   // a ^ b
	OpPlus                  // a + b
	OpMinus                 // a - b
	OpMul                   // a * b
	OpDiv                   // a / b, signed; b = 0: no value; overflow wraps
	OpMod                   // a % b, unsigned; b = 0: no value
	OpShl                   // a << b; 0 from 64 on
	OpShr                   // a >> b, zero fill; 0 from 64 on
	OpShra                  // a >> b, sign fill; the sign from 64 on
	OpEq                    // a == b: 1, else 0; comparisons are signed
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpBranch // pop; not zero: go to Jump (DW_OP_bra)
	OpSkip   // go to Jump (DW_OP_skip)

	NumExprCodes // their number
)

// MaxExprOps and MaxExprStack bound what is compiled; expressions beyond are
// not compiled.
const (
	MaxExprOps   = 256 // checked while decoding; compilers' expressions have about ten
	MaxExprStack = 16  // entries have fixed places in the generated code's frame
)

// Expr is a decoded and checked expression: branches go forward, the stack
// depth at every operation is one number whatever path leads there, it never
// underflows nor exceeds MaxExprStack, and at the end the top is the result.
type Expr struct {
	Ops    []ExprOp
	Pushed bool   // the CFA is on the stack at the start (register rules, DWARF 5 §6.4.2.3)
	Raw    []byte // the bytes in the section, for dumps
}
