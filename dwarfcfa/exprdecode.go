package dwarfcfa

import "slices"

// Operation encodings, DWARF 5 §7.7.1. Ranges (lit, reg, breg) are named by
// their first.
const (
	dwOpAddr       = 0x03
	dwOpDeref      = 0x06
	dwOpConst1u    = 0x08
	dwOpConst1s    = 0x09
	dwOpConst2u    = 0x0a
	dwOpConst2s    = 0x0b
	dwOpConst4u    = 0x0c
	dwOpConst4s    = 0x0d
	dwOpConst8u    = 0x0e
	dwOpConst8s    = 0x0f
	dwOpConstu     = 0x10
	dwOpConsts     = 0x11
	dwOpDup        = 0x12
	dwOpDrop       = 0x13
	dwOpOver       = 0x14
	dwOpPick       = 0x15
	dwOpSwap       = 0x16
	dwOpRot        = 0x17
	dwOpAbs        = 0x19
	dwOpAnd        = 0x1a
	dwOpDiv        = 0x1b
	dwOpMinus      = 0x1c
	dwOpMod        = 0x1d
	dwOpMul        = 0x1e
	dwOpNeg        = 0x1f
	dwOpNot        = 0x20
	dwOpOr         = 0x21
	dwOpPlus       = 0x22
	dwOpPlusUconst = 0x23
	dwOpShl        = 0x24
	dwOpShr        = 0x25
	dwOpShra       = 0x26
	dwOpXor        = 0x27
	dwOpBra        = 0x28
	dwOpEq         = 0x29
	dwOpGe         = 0x2a
	dwOpGt         = 0x2b
	dwOpLe         = 0x2c
	dwOpLt         = 0x2d
	dwOpNe         = 0x2e
	dwOpSkip       = 0x2f
	dwOpLit0       = 0x30
	dwOpReg0       = 0x50
	dwOpBreg0      = 0x70
	dwOpRegx       = 0x90
	dwOpBregx      = 0x92
	dwOpDerefSize  = 0x94
	dwOpNop        = 0x96
)

// plainOp returns the operation of an encoding without operands, with how many
// entries it pops and pushes.
func plainOp(op uint8) (code ExprCode, pops, pushes int, ok bool) {
	switch op {
	case dwOpDup:
		return OpDup, 1, 2, true
	case dwOpDrop:
		return OpDrop, 1, 0, true
	case dwOpSwap:
		return OpSwap, 2, 2, true
	case dwOpRot:
		return OpRot, 3, 3, true
	case dwOpAbs:
		return OpAbs, 1, 1, true
	case dwOpNeg:
		return OpNeg, 1, 1, true
	case dwOpNot:
		return OpNot, 1, 1, true
	case dwOpAnd:
		return OpAnd, 2, 1, true
	case dwOpDiv:
		return OpDiv, 2, 1, true
	case dwOpMinus:
		return OpMinus, 2, 1, true
	case dwOpMod:
		return OpMod, 2, 1, true
	case dwOpMul:
		return OpMul, 2, 1, true
	case dwOpOr:
		return OpOr, 2, 1, true
	case dwOpPlus:
		return OpPlus, 2, 1, true
	case dwOpShl:
		return OpShl, 2, 1, true
	case dwOpShr:
		return OpShr, 2, 1, true
	case dwOpShra:
		return OpShra, 2, 1, true
	case dwOpXor:
		return OpXor, 2, 1, true
	case dwOpEq:
		return OpEq, 2, 1, true
	case dwOpGe:
		return OpGe, 2, 1, true
	case dwOpGt:
		return OpGt, 2, 1, true
	case dwOpLe:
		return OpLe, 2, 1, true
	case dwOpLt:
		return OpLt, 2, 1, true
	case dwOpNe:
		return OpNe, 2, 1, true
	}
	return 0, 0, 0, false
}

// exprDecoder decodes one expression in a single pass over its bytes. Since
// branches only lead forward, all that leads to an operation has been seen
// when the pass gets there; bytes that nothing leads to are stepped over.
type exprDecoder struct {
	c       cursor
	ops     []ExprOp
	depth   int
	pending []pendingJump
}

// pendingJump is a branch whose target the pass has not reached.
type pendingJump struct {
	target int // offset in the expression
	op     int // index of the branch
	depth  int // of the stack when it is taken
}

// decodeExpr decodes and checks an expression; pushed says that the CFA is on
// the stack at the start. An error means that the expression cannot be
// compiled.
func decodeExpr(raw []byte, pushed bool) ([]ExprOp, error) {
	d := exprDecoder{c: cursor{data: raw}}
	if pushed {
		d.depth = 1
	}
	reachable := true
	for {
		if !reachable {
			if len(d.pending) == 0 {
				return nil, cause(ErrBadEncoding, "an expression that leads nowhere")
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

func (d *exprDecoder) emit(op ExprOp, pops, pushes int) error {
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

func (d *exprDecoder) push(op ExprOp) error {
	if d.c.err != nil {
		return d.c.err
	}
	return d.emit(op, 0, 1)
}

func (d *exprDecoder) pushReg(reg uint64, offset int64) error {
	if d.c.err == nil && reg >= NumRegs {
		return cause(ErrUnsupported, "an expression uses register %d", reg)
	}
	return d.push(ExprOp{Code: OpReg, Reg: uint16(reg), Arg: offset})
}

// step decodes one operation. next is false where control does not go on to
// the following one.
func (d *exprDecoder) step() (next bool, err error) {
	c := &d.c
	op := c.u8()
	if code, pops, pushes, ok := plainOp(op); ok {
		return true, d.emit(ExprOp{Code: code}, pops, pushes)
	}
	switch {
	case op >= dwOpLit0 && op < dwOpLit0+32:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(op - dwOpLit0)})
	case op >= dwOpReg0 && op < dwOpReg0+32:
		return true, d.pushReg(uint64(op-dwOpReg0), 0)
	case op >= dwOpBreg0 && op < dwOpBreg0+32:
		return true, d.pushReg(uint64(op-dwOpBreg0), c.sleb())
	}
	switch op {
	case dwOpAddr:
		return true, d.push(ExprOp{Code: OpAddr, Arg: int64(c.u64())})
	case dwOpConst1u:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(c.u8())})
	case dwOpConst1s:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(int8(c.u8()))})
	case dwOpConst2u:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(c.u16())})
	case dwOpConst2s:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(int16(c.u16()))})
	case dwOpConst4u:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(c.u32())})
	case dwOpConst4s:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(int32(c.u32()))})
	case dwOpConst8u, dwOpConst8s:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(c.u64())})
	case dwOpConstu:
		return true, d.push(ExprOp{Code: OpConst, Arg: int64(c.uleb())})
	case dwOpConsts:
		return true, d.push(ExprOp{Code: OpConst, Arg: c.sleb()})
	case dwOpRegx:
		return true, d.pushReg(c.uleb(), 0)
	case dwOpBregx:
		reg := c.uleb()
		return true, d.pushReg(reg, c.sleb())
	case dwOpOver:
		return true, d.emit(ExprOp{Code: OpPick, Arg: 1}, 2, 3)
	case dwOpPick:
		n := int(c.u8())
		if c.err != nil {
			return false, c.err
		}
		return true, d.emit(ExprOp{Code: OpPick, Arg: int64(n)}, n+1, n+2)
	case dwOpDeref:
		return true, d.emit(ExprOp{Code: OpDeref, Arg: 8}, 1, 1)
	case dwOpDerefSize:
		n := c.u8()
		if c.err != nil {
			return false, c.err
		}
		if n != 1 && n != 2 && n != 4 && n != 8 {
			return false, cause(ErrUnsupported, "an expression reads %d bytes", n)
		}
		return true, d.emit(ExprOp{Code: OpDeref, Arg: int64(n)}, 1, 1)
	case dwOpPlusUconst:
		n := c.uleb()
		if c.err != nil {
			return false, c.err
		}
		if err := d.emit(ExprOp{Code: OpConst, Arg: int64(n)}, 0, 1); err != nil {
			return false, err
		}
		return true, d.emit(ExprOp{Code: OpPlus}, 2, 1)
	case dwOpNop:
		return true, nil
	case dwOpBra:
		return true, d.branch(OpBranch, 1)
	case dwOpSkip:
		return false, d.branch(OpSkip, 0)
	}
	return false, cause(ErrUnsupported, "expression operation %s", exprOpName(op))
}

func (d *exprDecoder) branch(code ExprCode, pops int) error {
	distance := int(int16(d.c.u16()))
	if d.c.err != nil {
		return d.c.err
	}
	target := d.c.pos + distance
	switch {
	case distance < 0:
		return cause(ErrUnsupported, "a backward branch in an expression")
	case target > len(d.c.data):
		return cause(ErrBadEncoding, "a branch out of an expression")
	}
	if err := d.emit(ExprOp{Code: code}, pops, 0); err != nil {
		return err
	}
	d.pending = append(d.pending, pendingJump{target, len(d.ops) - 1, d.depth})
	return nil
}

// asCFA returns the CFA rule that a CFA expression amounts to: an expression
// that is no more than a register and an offset is that.
func asCFA(id ExprID, ops []ExprOp) CFARule {
	if len(ops) == 1 && ops[0].Code == OpReg {
		return CFARule{Kind: CFARegOffset, Reg: ops[0].Reg, Offset: ops[0].Arg}
	}
	return CFARule{Kind: CFAExpr, Expr: id}
}

// asRule returns the rule that a rule with an expression amounts to: at CFA+n,
// CFA+n itself, or a register.
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
