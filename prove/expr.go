package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file proves compiled expressions: DW_OP operations come from the table, instructions from
// the file, and both must do the same, operation by operation.

// expression proves the code of an expression that a descriptor names. Its proof is needed once for
// each pair of code and expression.
func (p *proof) expression(job exprJob) error {
	x := exprProof{p: p, e: &p.table.Exprs[job.id], joints: map[int]joint{}}
	if err := x.prove(job.addr); err != nil {
		return fmt.Errorf("expression %d at %#x: %w", job.id, job.addr, err)
	}
	p.result.Expressions++
	return nil
}

// exprProof runs an expression and its code side by side. Both are straight between
// the operations that branches lead to; there, both go on with new variables for the
// stack, so that a proof is as long as the expression. The top of the stack is in rax,
// entry i below it in slotExpr+8*i.
// Expressions are few, and shared by rows; each pair is proven once.
type exprProof struct {
	p      *proof
	e      *dwarfcfa.Expr // an expression of p.table
	joints map[int]joint  // by the operation that a branch leads to
	s      *state         // the machine after the code that was run so far
	stack  []term         // values of the expression's stack, the top last
	ended  bool           // a condition known to hold leads away: the rest is not reached in order
	now    int            // the operation being proven
}

// joint is a place that branches lead to.
type joint struct {
	pc    uint64 // the address in the code
	depth int
}

// exprEvent is the next effect of the code, which the expression must have,
// too.
type exprEvent uint8

const (
	exprFork   exprEvent = iota // a conditional jump: other is the state after it
	exprJump                    // an unconditional one
	exprRead                    // a word is read: other is the state if it cannot be
	exprReturn                  // a return
	exprReach                   // the place where a branch leads to
	exprKnown                   // a conditional jump that is decided
)

// prove runs the operations in order, and at each joint goes on with new variables.
func (x *exprProof) prove(pc uint64) error {
	p := x.p
	x.s = x.enter(pc)
	// DW_CFA_expression and DW_CFA_val_expression push the CFA before the first operation.
	if x.e.Pushed {
		x.stack = append(x.stack, p.v.slow.cfa)
	}
	// reached: the code before leads here in order, not only by a branch.
	reached := true
	for i := 0; i <= len(x.e.Ops); i++ {
		// A joint ends the state before it, and begins a new one.
		if j, ok := x.joints[i]; ok {
			if reached {
				if err := x.reach(i, j); err != nil {
					return err
				}
			}
			x.begin(j)
			reached, x.ended = true, false
		}
		// Dead operations have no code that a path reaches; a joint ends that.
		if !reached {
			continue
		}
		if i == len(x.e.Ops) {
			return x.finish()
		}
		op := &x.e.Ops[i]
		x.now = i
		if err := x.op(op); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		reached = op.Code != dwarfcfa.OpSkip && !x.ended
	}
	return nil
}

// enter returns the state at an expression's first instruction, or at a joint.
func (x *exprProof) enter(pc uint64) *state {
	p := x.p
	t := p.t
	s := p.newState(pc)
	// exprPad bytes and the return address lie between the walk's frame and this one.
	s.reg[rSP] = t.plus(p.x.sp, frameBase-exprPad-8)
	s.frame.ret = frameBase - exprPad - 8
	s.reg[rBX], s.reg[r14], s.reg[r12] = p.v.args.regs, p.v.args.mem, p.v.slow.cfa
	// The callee-saved registers must come back as they are now.
	s.frame.keep = s.reg
	s.stack = append(s.stack, cell{frameBase + slotBase, 8, p.v.walk.base})
	s.assume(t.eq(p.v.args.regs, t.con(0)), true) // it is called in the slow path
	return s
}

// begin goes on at a joint with new variables.
func (x *exprProof) begin(j joint) {
	p := x.p
	x.s = x.enter(j.pc)
	x.stack = x.stack[:0]
	for i := range j.depth {
		// Any value: what holds from here on holds for all ways to this place.
		v := p.t.variable("entry", ^uint64(0))
		x.stack = append(x.stack, v)
		if i == j.depth-1 {
			x.s.reg[rAX] = v
		} else {
			p.setSlot(x.s, slotExpr+8*int64(i), v)
		}
	}
}

// holdsStack checks that a state has the stack of the expression.
func (x *exprProof) holdsStack(s *state, stack []term) error {
	p := x.p
	// A branch out of a subroutine would leave its return address on the stack.
	if len(s.outer) > 0 {
		return fmt.Errorf("%#x: inside a subroutine", s.pc)
	}
	list := []want{{"rbx", s.reg[rBX], p.v.args.regs}, {"r14", s.reg[r14], p.v.args.mem},
		{"r12", s.reg[r12], p.v.slow.cfa},
		{"rsp", s.reg[rSP], p.t.plus(p.x.sp, s.frame.ret)}, {"the base", p.slot(s, slotBase), p.v.walk.base}}
	for i, v := range stack {
		if i == len(stack)-1 {
			list = append(list, want{"the top of the stack", s.reg[rAX], v})
		} else {
			list = append(list, want{fmt.Sprintf("entry %d of the stack", i), p.slot(s, slotExpr+8*int64(i)), v})
		}
	}
	for _, r := range calleeSaved {
		list = append(list, want{fmt.Sprintf("register %d", r), s.reg[r], s.frame.keep[r]})
	}
	if err := x.onlyStack(s); err != nil {
		return err
	}
	return p.require(s, list...)
}

// onlyStack checks that the code has written nothing but the stack of expressions.
func (x *exprProof) onlyStack(s *state) error {
	if len(s.event) > 0 || len(s.regs) > 0 {
		return fmt.Errorf("%#x: an expression writes", s.pc)
	}
	// Slots of other parts of the frame belong to the walk.
	for _, c := range s.stack {
		if slot := c.off - frameBase; c.off+int64(c.size) > s.frame.ret && slot != slotBase &&
			(slot < slotExpr || slot+int64(c.size) > slotExpr+8*dwarfcfa.MaxExprStack) {
			return fmt.Errorf("%#x: an expression writes slot %d of the frame", s.pc, slot)
		}
	}
	return nil
}

// next runs the code up to the next event. stop is a place that branches lead to, or 0.
func (x *exprProof) next(stop uint64) (ev exprEvent, cond lit, other *state, err error) {
	p := x.p
	// A step at a time, until the code does something that the expression must do as well.
	for n := 0; n < maxPathSteps; n++ {
		s := x.s
		if stop != 0 && s.pc == stop {
			return exprReach, lit{}, nil, nil
		}
		i, ok := decode(p.im.text(s.pc))
		if !ok {
			return 0, lit{}, nil, fmt.Errorf("%#x: no instruction of generated code", s.pc)
		}
		// The step may add a condition: the one that decides.
		before := len(s.conds)
		pc, fl := s.pc, s.fl
		m := p.x.may
		m.call = p.callRead
		restore := p.x.allow(m)
		more, end, err := p.x.step(s)
		restore()
		switch {
		case err != nil:
			return 0, lit{}, nil, &pathError{pc, err}
		case end != nil:
			if end.kind == endRet {
				return exprReturn, lit{}, nil, nil
			}
			return 0, lit{}, nil, fmt.Errorf("%#x: a jump to %s", pc, p.t.text(end.target))
		case i.op == iJmp:
			return exprJump, lit{}, nil, nil
		// Two states: a jump on an open condition, or a read that may fail.
		case len(more) == 2:
			x.s = more[0]
			ev := exprFork
			if i.op == iCall {
				ev = exprRead
			}
			return ev, more[1].conds[before], more[1], nil
		// A decided jump has one state; flags and condition before the step tell which way.
		case i.op == iJcc:
			l, _ := fl.condition(p.x.t, i.cc)
			truth, _ := p.x.decide(s, l.t)
			if truth == l.neg { // not taken
				return exprKnown, lit{l.t, !l.neg}, nil, nil
			}
			return exprKnown, l, nil, nil
		}
	}
	return 0, lit{}, nil, fmt.Errorf("%#x: code without end", x.s.pc)
}

// fork takes the next event, which must be a conditional jump on a condition. holds is
// the state of the jump where the condition holds, or nil if it is known not to; where
// it is known to, that is the only state, and the operations that follow are skipped.
func (x *exprProof) fork(c term, neg bool) (holds *state, err error) {
	l := literal(x.p.x.t, c, neg)
	// Three cases must agree: known to hold, known not to hold, open.
	truth, known := x.p.x.decide(x.s, l.t)
	ev, got, other, err := x.next(0)
	if err != nil {
		return nil, err
	}
	switch {
	case known && ev == exprKnown && (truth != l.neg) && got == l:
		x.ended = true
		return x.s, nil
	case known && ev == exprKnown && (truth == l.neg) && got == (lit{l.t, !l.neg}):
		return nil, nil
	case !known && ev == exprFork && got == l:
		return other, nil
	}
	return nil, fmt.Errorf("%#x: not a jump on %s", x.s.pc, x.p.t.text(c))
}

// failing checks that a state leads to the end without a value.
func (x *exprProof) failing(s *state, status abi.Status) error {
	p := x.p
	if s == nil {
		return nil
	}
	// The code after a failure is short: run it to its return.
	ends, err := p.x.run(s, nil)
	if err != nil {
		return err
	}
	for i := range ends {
		e := &ends[i]
		// The carry tells the caller that there is no value; rdx says why.
		carry, ok := e.fl.condition(p.x.t, 2)
		if e.kind != endRet || !ok || carry != (lit{p.t.con(1), false}) {
			return fmt.Errorf("%#x: an expression without a value has one", e.pc)
		}
		if err := x.onlyStack(e.state); err != nil {
			return err
		}
		if err := p.require(e.state, want{"the status", e.reg[rDX], p.statusTerm(status)},
			want{"the base", p.slot(e.state, slotBase), p.v.walk.base}); err != nil {
			return err
		}
	}
	return nil
}

// finish checks that the code returns the top of the stack with the carry clear.
func (x *exprProof) finish() error {
	ev, _, _, err := x.next(0)
	if err != nil {
		return err
	}
	carry, ok := x.s.fl.condition(x.p.x.t, 2)
	if ev != exprReturn || !ok || carry != (lit{x.p.t.con(0), false}) {
		return fmt.Errorf("%#x: not a return with a value", x.s.pc)
	}
	// Only the top is the result; entries below it are left over.
	return x.holdsStack(x.s, x.stack[len(x.stack)-1:])
}

// reach runs up to the place of operation i.
func (x *exprProof) reach(i int, j joint) error {
	ev, _, _, err := x.next(j.pc)
	if err != nil {
		return err
	}
	if ev != exprReach || j.depth != len(x.stack) {
		return fmt.Errorf("%#x: does not reach operation %d", x.s.pc, i)
	}
	return x.holdsStack(x.s, x.stack)
}

// branch notes that a state goes on at operation i.
func (x *exprProof) branch(s *state, i int, stack []term) error {
	j, ok := x.joints[i]
	// Branches go forward only, so that the proof ends.
	if i <= x.now {
		return fmt.Errorf("a branch back to operation %d", i)
	}
	if !ok {
		j = joint{s.pc, len(stack)}
		x.joints[i] = j
	}
	// All branches to an operation must agree on its place and on the depth of the stack.
	if j.pc != s.pc || j.depth != len(stack) {
		return fmt.Errorf("%#x: a branch to another place than %#x", s.pc, j.pc)
	}
	return x.holdsStack(s, stack)
}

// push and pop work on the expression's stack, not on the machine's.
func (x *exprProof) push(v term) { x.stack = append(x.stack, v) }

// pop removes the top; the reader has checked that there is one.
func (x *exprProof) pop() term {
	v := x.stack[len(x.stack)-1]
	x.stack = x.stack[:len(x.stack)-1]
	return v
}

// op executes one operation of the expression, and runs the code up to the same
// point if the operation needs a decision.
func (x *exprProof) op(op *dwarfcfa.ExprOp) error {
	p := x.p
	t := p.t
	n := len(x.stack)
	switch op.Code {
	case dwarfcfa.OpConst:
		x.push(t.con(uint64(op.Arg)))
	case dwarfcfa.OpAddr: // the load bias is base less what base is made of
		x.push(t.plus(p.v.walk.base, op.Arg-int64(p.base)-1))
	case dwarfcfa.OpReg:
		return x.register(op)
	case dwarfcfa.OpDup:
		x.push(x.stack[n-1])
	case dwarfcfa.OpPick:
		x.push(x.stack[n-1-int(op.Arg)])
	case dwarfcfa.OpDrop:
		x.pop()
	case dwarfcfa.OpSwap:
		x.stack[n-1], x.stack[n-2] = x.stack[n-2], x.stack[n-1]
	case dwarfcfa.OpRot:
		x.stack[n-1], x.stack[n-2], x.stack[n-3] = x.stack[n-2], x.stack[n-3], x.stack[n-1]
	case dwarfcfa.OpDeref:
		return x.deref(op)
	case dwarfcfa.OpAbs:
		// (v ^ m) - m, with m the sign in all bits: no branch, and right for the smallest number.
		v := x.pop()
		m := t.shift(tSar, v, t.con(63))
		x.push(t.sub(t.xor(v, m), m))
	case dwarfcfa.OpNeg:
		x.push(t.neg(x.pop()))
	case dwarfcfa.OpNot:
		x.push(t.not(x.pop()))
	case dwarfcfa.OpBranch:
		// DW_OP_bra jumps if the top is not 0.
		v := x.pop()
		taken, err := x.fork(t.eq(v, t.con(0)), true)
		if err != nil || taken == nil {
			return err
		}
		return x.branch(taken, op.Jump, x.stack)
	// DW_OP_skip is a jump in any case.
	case dwarfcfa.OpSkip:
		ev, _, _, err := x.next(0)
		if err != nil || ev != exprJump {
			return fmt.Errorf("%#x: not a jump: %v", x.s.pc, err)
		}
		return x.branch(x.s, op.Jump, x.stack)
	default:
		b := x.pop()
		a := x.pop()
		v, err := x.binary(op.Code, a, b)
		x.push(v)
		return err
	}
	return nil
}

// register pushes a register plus a constant. If the register is not valid, the expression fails.
func (x *exprProof) register(op *dwarfcfa.ExprOp) error {
	p := x.p
	if op.Reg != abi.RSP && op.Reg != abi.RIP { // those two are valid in every step
		invalid, err := x.fork(p.t.bit(p.v.old.valid, p.t.con(uint64(op.Reg))), true)
		if err != nil {
			return err
		}
		if err := x.failing(invalid, abi.StatusBadRegister); err != nil {
			return err
		}
	}
	x.push(p.t.plus(p.v.old.regOf[op.Reg], op.Arg))
	return nil
}

// deref replaces the top by the word of the target there. If that cannot be read, the expression fails.
func (x *exprProof) deref(op *dwarfcfa.ExprOp) error {
	p := x.p
	addr := x.pop()
	// The code calls a subroutine to read a word, which may fail.
	ev, cond, other, err := x.next(0)
	if err != nil {
		return err
	}
	if ev != exprRead || cond != (lit{p.readable(addr), true}) {
		return fmt.Errorf("%#x: not a read at %s", x.s.pc, p.t.text(addr))
	}
	unreadable, err := x.afterRead(other) // the caller tells by the carry
	if err != nil {
		return err
	}
	if err := x.failing(unreadable, abi.StatusUnreadable); err != nil {
		return err
	}
	// Arg is the number of bytes: DW_OP_deref_size keeps the low ones.
	x.push(p.t.low(p.wordAt(addr), uint8(op.Arg)))
	return nil
}

// afterRead runs the jump on carry after a read for the state in which the word is
// not readable; the other state is x.s, which runs it, too.
func (x *exprProof) afterRead(other *state) (*state, error) {
	p := x.p
	for _, s := range []*state{x.s, other} {
		pc := s.pc
		i, ok := decode(p.im.text(pc))
		// The subroutine tells by the carry, so a conditional jump follows.
		if !ok || i.op != iJcc {
			return nil, fmt.Errorf("%#x: the carry of a read is not looked at", pc)
		}
		if more, end, err := p.x.step(s); err != nil || end != nil || more != nil {
			return nil, fmt.Errorf("%#x: the carry of a read is not looked at: %v", pc, err)
		}
	}
	return other, nil
}

// binary computes an operation on a and b, b being the top.
func (x *exprProof) binary(code dwarfcfa.ExprCode, a, b term) (term, error) {
	p := x.p
	t := p.t
	switch code {
	case dwarfcfa.OpAnd:
		return t.and(a, b), nil
	case dwarfcfa.OpOr:
		return t.or(a, b), nil
	case dwarfcfa.OpXor:
		return t.xor(a, b), nil
	case dwarfcfa.OpPlus:
		return t.add(a, b), nil
	case dwarfcfa.OpMinus:
		return t.sub(a, b), nil
	case dwarfcfa.OpMul:
		return t.mul(a, b), nil
	case dwarfcfa.OpDiv, dwarfcfa.OpMod:
		return x.division(code, a, b)
	case dwarfcfa.OpShl, dwarfcfa.OpShr: // 0 from 64 on
		op := tShl
		if code == dwarfcfa.OpShr {
			op = tShr
		}
		// The processor takes counts modulo 64: the result is masked by count < 64.
		return t.and(t.shift(op, a, t.and(b, t.con(63))), t.neg(t.ult(b, t.con(64)))), nil
	case dwarfcfa.OpShra: // by 63 from 64 on
		// The smaller of the count and 63.
		count := t.ite(t.ult(t.con(63), b), t.con(63), b)
		return t.shift(tSar, a, t.and(count, t.con(63))), nil
	case dwarfcfa.OpEq:
		return t.eq(a, b), nil
	case dwarfcfa.OpNe:
		// The negated comparisons are literals, made terms of 0 and 1.
		return literal(p.x.t, t.eq(a, b), true).term(p.x.t), nil
	case dwarfcfa.OpLt:
		return t.slt(a, b), nil
	case dwarfcfa.OpGe:
		return literal(p.x.t, t.slt(a, b), true).term(p.x.t), nil
	case dwarfcfa.OpGt:
		return t.slt(b, a), nil
	case dwarfcfa.OpLe:
		return literal(p.x.t, t.slt(b, a), true).term(p.x.t), nil
	}
	return 0, fmt.Errorf("an operation %d that is not known", code)
}

// division is OpDiv or OpMod: without a value for a divisor of 0.
func (x *exprProof) division(code dwarfcfa.ExprCode, a, b term) (term, error) {
	p := x.p
	t := p.t
	// A divisor of 0 ends the expression, with the same status as memory that cannot be read.
	zero, err := x.fork(t.eq(b, t.con(0)), false)
	if err != nil {
		return 0, err
	}
	if err := x.failing(zero, abi.StatusUnreadable); err != nil {
		return 0, err
	}
	if x.ended {
		return t.con(0), nil
	}
	// DW_OP_mod is unsigned, DW_OP_div signed.
	if code == dwarfcfa.OpMod {
		return t.umod(a, b), nil
	}
	return t.sdiv(negated(p.x.t, a, b), divisor(p.x.t, b)), nil
}
