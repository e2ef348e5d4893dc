package asmgen

import (
	"fmt"
	"math"

	"github.com/twitchyliquid64/golang-asm/obj"
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file compiles DWARF expressions to code. Depths are checked when they are decoded (dwarfcfa), so the code has no
// checks of its stack.

// exprPad keeps readWord's view of the stack the same whether the slow path or
// an expression calls it.
const exprPad = 8

// exprCode compiles DWARF expressions (DWARF 5 §2.5) to subroutines of the slow
// path. Depths are known at every operation, so a stack entry has one place: the
// top is in rax, entry i below it in slotExpr+8*i. A subroutine returns the result
// in rax with carry clear, or carry set and a status in edx.
type exprCode struct {
	g      *generator
	depth  int           // entries on the stack
	labels map[int]label // by index of the operation that a branch leads to
	depths map[int]int   // depth there
}

// expression emits the subroutine of one expression. The error means that the decoder let an expression through which
// it should not have.
func (g *generator) expression(e *dwarfcfa.Expr, entry label) error {
	a := g.asm
	c := exprCode{g: g, labels: map[int]label{}, depths: map[int]int{}}
	a.bind(entry)
	if e.Pushed {
		c.push()
		a.op(x86.AMOVQ, reg(sCFA), reg(x86.REG_AX))
	}
	// Operations behind an unconditional jump are dead unless a branch leads to them.
	reached := true
	for i, op := range e.Ops {
		if l, ok := c.labels[i]; ok {
			a.bind(l)
			if reached && c.depth != c.depths[i] {
				return fmt.Errorf("%w: expression with stack depths %d and %d at operation %d", ErrAssemble, c.depth, c.depths[i],
					i)
			}
			c.depth, reached = c.depths[i], true
		}
		if !reached {
			continue
		}
		if err := c.op(op, i); err != nil {
			return err
		}
		reached = op.Code != dwarfcfa.OpSkip
	}
	if l, ok := c.labels[len(e.Ops)]; ok {
		a.bind(l)
	}
	a.op0(x86.ACLC)
	a.op0(obj.ARET)
	return nil
}

// exprFailures emits the ends of expressions that have no value. All expressions share them.
func (g *generator) exprFailures() {
	a := g.asm
	for _, f := range []struct {
		label  label
		status abi.Status
	}{{g.slow.exprInvalid, abi.StatusBadRegister}, {g.slow.exprUnreadable, abi.StatusUnreadable}} {
		a.bind(f.label)
		a.op(x86.AMOVL, imm(int64(f.status)), reg(x86.REG_DX))
		a.op0(x86.ASTC)
		a.op0(obj.ARET)
	}
}

// slot returns the place of entry i of the stack, unless it is the top.
func slot(i int) obj.Addr {
	return mem(x86.REG_SP, 8+exprPad+slotExpr+8*int64(i))
}

// push makes room for a new top, which the caller puts into rax.
func (c *exprCode) push() {
	if c.depth > 0 {
		c.g.asm.op(x86.AMOVQ, reg(x86.REG_AX), slot(c.depth-1))
	}
	c.depth++
}

// pop drops the top. It changes no flags.
func (c *exprCode) pop() {
	c.depth--
	if c.depth > 0 {
		c.g.asm.op(x86.AMOVQ, slot(c.depth-1), reg(x86.REG_AX))
	}
}

// branchTo notes the depth at a later operation and returns its label.
func (c *exprCode) branchTo(i int) label {
	l, ok := c.labels[i]
	if !ok {
		l = c.g.asm.newLabel()
		c.labels[i], c.depths[i] = l, c.depth
	}
	return l
}

// op emits operation i. The top stays in rax from one operation to the next.
func (c *exprCode) op(op dwarfcfa.ExprOp, i int) error {
	a := c.g.asm
	ax, cx, dx := reg(x86.REG_AX), reg(x86.REG_CX), reg(x86.REG_DX)
	switch op.Code {
	case dwarfcfa.OpConst:
		c.push()
		a.op(x86.AMOVQ, imm(op.Arg), ax)
	case dwarfcfa.OpAddr:
		c.push()
		a.op(x86.AMOVQ, imm(op.Arg-int64(c.g.plan.Base)-1), ax) // the base in the frame is load bias + plan base + 1
		a.op(x86.AADDQ, mem(x86.REG_SP, 8+exprPad+slotBase), ax)
	case dwarfcfa.OpReg:
		c.push()
		c.register(op)
	case dwarfcfa.OpDup:
		c.push()
	case dwarfcfa.OpDrop:
		c.pop()
	case dwarfcfa.OpPick:
		c.push()
		a.op(x86.AMOVQ, slot(c.depth-2-int(op.Arg)), ax)
	case dwarfcfa.OpSwap:
		a.op(x86.AMOVQ, slot(c.depth-2), cx)
		a.op(x86.AMOVQ, ax, slot(c.depth-2))
		a.op(x86.AMOVQ, cx, ax)
	case dwarfcfa.OpRot:
		a.op(x86.AMOVQ, slot(c.depth-2), cx)
		a.op(x86.AMOVQ, slot(c.depth-3), dx)
		a.op(x86.AMOVQ, ax, slot(c.depth-3))
		a.op(x86.AMOVQ, dx, slot(c.depth-2))
		a.op(x86.AMOVQ, cx, ax)
	case dwarfcfa.OpDeref:
		return c.deref(op.Arg)
	// (x ^ s) - s, with s = -1 for a negative x and 0 otherwise.
	case dwarfcfa.OpAbs:
		a.op(x86.AMOVQ, ax, cx)
		a.op(x86.ASARQ, imm(63), cx)
		a.op(x86.AXORQ, cx, ax)
		a.op(x86.ASUBQ, cx, ax)
	case dwarfcfa.OpNeg:
		a.op1(x86.ANEGQ, ax)
	case dwarfcfa.OpNot:
		a.op1(x86.ANOTQ, ax)
	case dwarfcfa.OpBranch:
		a.op(x86.ATESTQ, ax, ax)
		c.pop()
		a.jump(x86.AJNE, c.branchTo(op.Jump))
	case dwarfcfa.OpSkip:
		a.jump(obj.AJMP, c.branchTo(op.Jump))
	default:
		return c.binary(op, i)
	}
	return nil
}

// register pushes a register's value plus an offset.
func (c *exprCode) register(op dwarfcfa.ExprOp) {
	a := c.g.asm
	ax := reg(x86.REG_AX)
	if op.Reg != abi.RSP && op.Reg != abi.RIP { // those two are valid in every step
		a.op(x86.ATESTL, imm(1<<op.Reg), mem(sRegs, int64(abi.RegsValid)))
		a.jump(x86.AJEQ, c.g.slow.exprInvalid)
	}
	a.op(x86.AMOVQ, mem(sRegs, regOff(int(op.Reg))), ax)
	c.addConst(op.Arg)
}

// addConst adds a constant to the top.
func (c *exprCode) addConst(v int64) {
	a := c.g.asm
	switch {
	case v == 0:
	case v >= math.MinInt32 && v <= math.MaxInt32:
		a.op(x86.AADDQ, imm(v), reg(x86.REG_AX))
	default:
		a.op(x86.AMOVQ, imm(v), reg(x86.REG_CX))
		a.op(x86.AADDQ, reg(x86.REG_CX), reg(x86.REG_AX))
	}
}

// deref replaces the top, an address, by its low size bytes. A read that fails ends the expression.
func (c *exprCode) deref(size int64) error {
	a := c.g.asm
	ax := reg(x86.REG_AX)
	a.op(x86.AMOVQ, ax, reg(x86.REG_SI))
	a.call(c.g.slow.readWord)
	a.jump(x86.AJCS, c.g.slow.exprUnreadable)
	switch size {
	case 1:
		a.op(x86.AMOVBLZX, ax, ax)
	case 2:
		a.op(x86.AMOVWLZX, ax, ax)
	case 4:
		a.op(x86.AMOVL, ax, ax)
	case 8:
	default:
		return fmt.Errorf("%w: expression reads %d bytes", ErrAssemble, size)
	}
	return nil
}

// binary emits an operation on a, the entry below the top, and b, the top.
func (c *exprCode) binary(op dwarfcfa.ExprOp, i int) error {
	a := c.g.asm
	ax, cx, dx := reg(x86.REG_AX), reg(x86.REG_CX), reg(x86.REG_DX)
	below := slot(c.depth - 2)
	// Comparisons are signed: DWARF 5 section 2.5.1.5.
	compare := func(set obj.As) {
		a.op(x86.ACMPQ, below, ax)
		a.op1(set, ax)
		a.op(x86.AMOVBLZX, ax, ax)
	}
	operands := func() { // rax = a, rcx = b
		a.op(x86.AMOVQ, ax, cx)
		a.op(x86.AMOVQ, below, ax)
	}
	switch op.Code {
	case dwarfcfa.OpAnd:
		a.op(x86.AANDQ, below, ax)
	case dwarfcfa.OpOr:
		a.op(x86.AORQ, below, ax)
	case dwarfcfa.OpXor:
		a.op(x86.AXORQ, below, ax)
	case dwarfcfa.OpPlus:
		a.op(x86.AADDQ, below, ax)
	case dwarfcfa.OpMul:
		a.op(x86.AIMULQ, below, ax)
	case dwarfcfa.OpMinus:
		operands()
		a.op(x86.ASUBQ, cx, ax)
	case dwarfcfa.OpDiv, dwarfcfa.OpMod:
		operands()
		c.divide(op.Code == dwarfcfa.OpMod)
	case dwarfcfa.OpShl:
		operands()
		c.shift(x86.ASHLQ)
	case dwarfcfa.OpShr:
		operands()
		c.shift(x86.ASHRQ)
	case dwarfcfa.OpShra:
		operands()
		a.op(x86.AMOVL, imm(63), dx)
		a.op(x86.ACMPQ, cx, dx)
		// counts above 63 shift like 63
		a.op(x86.ACMOVQHI, dx, cx)
		a.op(x86.ASARQ, cx, ax)
	case dwarfcfa.OpEq:
		compare(x86.ASETEQ)
	case dwarfcfa.OpNe:
		compare(x86.ASETNE)
	case dwarfcfa.OpLt:
		compare(x86.ASETLT)
	case dwarfcfa.OpLe:
		compare(x86.ASETLE)
	case dwarfcfa.OpGt:
		compare(x86.ASETGT)
	case dwarfcfa.OpGe:
		compare(x86.ASETGE)
	default:
		return fmt.Errorf("%w: expression operation %v at %d", ErrAssemble, op.Code, i)
	}
	c.depth--
	return nil
}

// divide emits rax / rcx, signed, or the unsigned rest, as DWARF 5, 2.5.1.4 has them. Division by zero has no result.
func (c *exprCode) divide(rest bool) {
	a := c.g.asm
	ax, cx, dx := reg(x86.REG_AX), reg(x86.REG_CX), reg(x86.REG_DX)
	a.op(x86.ATESTQ, cx, cx)
	a.jump(x86.AJEQ, c.g.slow.exprUnreadable)
	a.op(x86.AXORL, dx, dx)
	if rest {
		a.divide(x86.ADIVQ, x86.REG_CX)
		a.op(x86.AMOVQ, dx, ax)
		return
	}
	// The quotient may overflow, which idiv traps, if the divisor is -1: then both are negated.
	a.op(x86.ACMPQ, cx, imm(-1))
	a.op1(x86.ASETEQ, dx)
	a.op1(x86.ANEGQ, dx)
	a.op(x86.AXORQ, dx, ax)
	a.op(x86.ASUBQ, dx, ax)
	a.op(x86.AXORQ, dx, cx)
	a.op(x86.ASUBQ, dx, cx)
	a.op0(x86.ACQO)
	a.divide(x86.AIDIVQ, x86.REG_CX)
}

// shift emits a logical shift of rax by rcx bits: 0 from 64 bits on, where the instruction takes the low six bits.
func (c *exprCode) shift(instruction obj.As) {
	a := c.g.asm
	ax, cx := reg(x86.REG_AX), reg(x86.REG_CX)
	a.op(instruction, cx, ax)
	a.op(x86.ACMPQ, cx, imm(64))
	a.op(x86.ASBBQ, cx, cx) // all ones below 64
	a.op(x86.AANDQ, cx, ax)
}
