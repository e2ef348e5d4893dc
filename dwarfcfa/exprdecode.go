package dwarfcfa

import "slices"

// Operation encodings, DWARF 5 §7.7.1. Ranges (lit, reg, breg) are named by
// their first.
const (
	dwOpAddr       = 0x03 // 8 bytes of address
	dwOpDeref      = 0x06 // the word at the top
	dwOpConst1u    = 0x08 // constants of 1 to 8 bytes, unsigned and signed
	dwOpConst1s    = 0x09
	dwOpConst2u    = 0x0a
	dwOpConst2s    = 0x0b
	dwOpConst4u    = 0x0c
	dwOpConst4s    = 0x0d
	dwOpConst8u    = 0x0e
	dwOpConst8s    = 0x0f
	dwOpConstu     = 0x10 // ULEB128
	dwOpConsts     = 0x11 // SLEB128
	dwOpDup        = 0x12 // the top again
	dwOpDrop       = 0x13 // the top goes
	dwOpOver       = 0x14 // the second entry again
	dwOpPick       = 0x15 // 1 byte: index of the entry
	dwOpSwap       = 0x16 // top and second change places
	dwOpRot        = 0x17 // the top goes below the third
	dwOpAbs        = 0x19
	dwOpAnd        = 0x1a // binary ones: the right operand is the top
	dwOpDiv        = 0x1b // signed
	dwOpMinus      = 0x1c
	dwOpMod        = 0x1d // unsigned
	dwOpMul        = 0x1e
	dwOpNeg        = 0x1f
	dwOpNot        = 0x20
	dwOpOr         = 0x21
	dwOpPlus       = 0x22
	dwOpPlusUconst = 0x23 // ULEB128 is added
	dwOpShl        = 0x24
	dwOpShr        = 0x25 // logical
	dwOpShra       = 0x26 // arithmetic
	dwOpXor        = 0x27 // exclusive or
	dwOpBra        = 0x28 // 2 bytes: jump if not 0
	dwOpEq         = 0x29 // comparisons are signed; 1 or 0
	dwOpGe         = 0x2a
	dwOpGt         = 0x2b
	dwOpLe         = 0x2c
	dwOpLt         = 0x2d
	dwOpNe         = 0x2e
	dwOpSkip       = 0x2f // 2 bytes: jump
	dwOpLit0       = 0x30 // 0 to 31
	dwOpReg0       = 0x50
	dwOpBreg0      = 0x70 // register, SLEB128 is added
	dwOpRegx       = 0x90 // ULEB128: register
	dwOpBregx      = 0x92 // ULEB128 register, SLEB128
	dwOpDerefSize  = 0x94 // 1 byte: how many bytes
	dwOpNop        = 0x96
)

// read reads the operands that follow an encoding: the register that it is about, and the number. A failure sticks in
// the cursor.
func (e *encoding) read(c *cursor) (n int64, reg uint64) {
	// The register in the opcode, for those that have one.
	reg = uint64(e.op.Reg)
	switch e.operands {
	case operandU8:
		n = int64(c.u8())
	case operandS8:
		n = int64(int8(c.u8()))
	case operandU16:
		n = int64(c.u16())
	// Jumps are signed, and decode refuses those that go back.
	case operandS16, operandJump:
		n = int64(int16(c.u16()))
	case operandU32:
		n = int64(c.u32())
	case operandS32:
		n = int64(int32(c.u32()))
	case operandU64, operandS64, operandAddr:
		n = int64(c.u64())
	case operandULEB:
		n = int64(c.uleb())
	case operandSLEB:
		n = c.sleb()
	case operandReg:
		reg = c.uleb()
	case operandRegOffset:
		reg = c.uleb()
		n = c.sleb()
	}
	return n, reg
}

// exprDecoder decodes one expression in a single pass over its bytes. Since branches only go forward, the pass has seen
// all predecessors of an operation when it gets there; it steps over unreachable bytes. So the depth of the stack is
// known at each operation, generated code needs no checks, and every expression ends. Compilers write no backward
// branches into unwind tables.
type exprDecoder struct {
	c       cursor
	ops     []ExprOp      // decoded so far
	depth   int           // entries on the stack before the next operation
	pending []pendingJump // branches to operations further on
	moved   bool          // no loader adds the load bias to an address
}

// pendingJump is a branch whose target the pass has not reached.
type pendingJump struct {
	target int // offset in the expression
	op     int // index of the branch
	depth  int // of the stack when it is taken
}

// decodeExpr decodes and checks an expression; pushed says that the CFA is on
// the stack at the start, moved that its addresses are numbers, in an object that may be loaded anywhere. An error
// means that the expression cannot be compiled.
func decodeExpr(raw []byte, pushed, moved bool) ([]ExprOp, error) {
	d := exprDecoder{c: cursor{data: raw}, moved: moved}
	if pushed {
		d.depth = 1
	}
	reachable := true
	for {
		// Behind an unconditional branch, go on at the nearest place that a branch leads to.
		if !reachable {
			if len(d.pending) == 0 {
				return nil, cause(ErrBadEncoding, "an expression without an end")
			}
			next := slices.MinFunc(d.pending, func(a, b pendingJump) int { return a.target - b.target })
			d.c.pos, d.depth = next.target, next.depth
		}
		if err := d.join(); err != nil {
			return nil, err
		}
		if d.c.pos == len(raw) {
			break
		}
		var err error
		if reachable, err = d.step(); err != nil {
			return nil, err
		}
		if len(d.ops) > MaxExprOps {
			return nil, cause(ErrUnsupported, "an expression of more than %d operations", MaxExprOps)
		}
	}
	if d.depth < 1 {
		return nil, cause(ErrBadEncoding, "an expression without a result")
	}
	return d.ops, nil
}

// join resolves the branches that lead to the current position.
func (d *exprDecoder) join() error {
	rest := d.pending[:0]
	for _, p := range d.pending {
		switch {
		case p.target > d.c.pos:
			rest = append(rest, p)
		case p.target < d.c.pos:
			return cause(ErrBadEncoding, "a branch into the middle of an operation")
		case p.depth != d.depth:
			return cause(ErrUnsupported, "paths of an expression join with different stack depths")
		default:
			d.ops[p.op].Jump = len(d.ops)
		}
	}
	d.pending = rest
	return nil
}

// emit appends an operation and checks the depth of the stack.
func (d *exprDecoder) emit(op ExprOp) error {
	pops, pushes := op.Effect()
	if d.depth < pops {
		return cause(ErrBadEncoding, "an expression takes from an empty stack")
	}
	d.depth += pushes - pops
	if d.depth > MaxExprStack {
		return cause(ErrUnsupported, "an expression of more than %d stack entries", MaxExprStack)
	}
	d.ops = append(d.ops, op)
	return nil
}

// step decodes one operation. next reports whether control can go on to the
// following one.
func (d *exprDecoder) step() (next bool, err error) {
	code := d.c.u8()
	e := &encodings[code]
	if code == dwOpAddr && d.moved {
		e = &encodings[dwOpConst8u]
	}
	if !e.compiled {
		return false, cause(ErrUnsupported, "expression operation %s", exprOpName(code))
	}
	n, reg := e.read(&d.c)
	if d.c.err != nil {
		return false, d.c.err
	}
	op := e.op
	if e.operands != operandNone && e.operands != operandReg {
		op.Arg = n
	}
	switch {
	case code == dwOpNop:
		return true, nil
	case e.operands == operandJump:
		return op.Code != OpSkip, d.branch(op.Code, int(n))
	case op.Code == OpReg && reg >= NumRegs:
		return false, cause(ErrUnsupported, "an expression uses register %d", reg)
	case op.Code == OpReg:
		op.Reg = uint16(reg)
	case op.Code == OpDeref && n != 1 && n != 2 && n != 4 && n != 8 && e.operands != operandNone:
		return false, cause(ErrUnsupported, "an expression reads %d bytes", n)
	}
	if err := d.emit(op); err != nil {
		return false, err
	}
	if code == dwOpPlusUconst { // decoded as a constant and a plus
		return true, d.emit(ExprOp{Code: OpPlus})
	}
	return true, nil
}

// branch decodes a branch by a distance from here.
func (d *exprDecoder) branch(code ExprCode, distance int) error {
	target := d.c.pos + distance
	switch {
	case distance < 0:
		return cause(ErrUnsupported, "a backward branch in an expression")
	case target > len(d.c.data):
		return cause(ErrBadEncoding, "a branch out of an expression")
	}
	if err := d.emit(ExprOp{Code: code}); err != nil {
		return err
	}
	d.pending = append(d.pending, pendingJump{target, len(d.ops) - 1, d.depth}) // the target's index is set by join
	return nil
}

// asCFA returns the CFA rule equal to a CFA expression: an expression of a
// register and an offset becomes a CFARegOffset rule.
func asCFA(id ExprID, ops []ExprOp) CFARule {
	if len(ops) == 1 && ops[0].Code == OpReg {
		return CFARule{Kind: CFARegOffset, Reg: ops[0].Reg, Offset: ops[0].Arg}
	}
	return CFARule{Kind: CFAExpr, Expr: id}
}

// asRule returns the simpler rule that equals a rule with an expression, if there is one: saved at CFA+n, CFA+n
// itself, or a register. Such rows need no code for an expression.
func asRule(rule RegRule, ops []ExprOp) RegRule {
	offset, ok := offsetFromCFA(ops)
	switch {
	case rule.Kind == RuleExpression && ok:
		return RegRule{Kind: RuleOffset, Offset: offset}
	case rule.Kind == RuleValExpression && ok:
		return RegRule{Kind: RuleValOffset, Offset: offset}
	case rule.Kind == RuleValExpression && len(ops) == 1 && ops[0].Code == OpReg && ops[0].Arg == 0:
		return RegRule{Kind: RuleRegister, Reg: ops[0].Reg}
	}
	return rule
}

// offsetFromCFA reports whether an expression that starts with the CFA on the
// stack is the CFA plus a constant.
func offsetFromCFA(ops []ExprOp) (int64, bool) {
	switch {
	case len(ops) == 0:
		return 0, true
	case len(ops) == 2 && ops[0].Code == OpConst && ops[1].Code == OpPlus:
		return ops[0].Arg, true
	}
	return 0, false
}
