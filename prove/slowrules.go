package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// This file proves the loop over a descriptor's rules, one operation at a time: what the code makes
// of a rule must be what the rule means, ruleValue.

// rules proves the loop over the rules: each operation takes the loop from one
// rule to the next one with what the rule says of its register in slotNew and r13, or
// ends the step. The register is a variable, below 17.
func (p *slowProof) rules(pc uint64) error {
	for op := uint64(ruleEnd); op <= ruleExpr; op++ {
		if err := p.rule(pc, op); err != nil {
			return fmt.Errorf("rule operation %d: %w", op, err)
		}
	}
	return nil
}

// ruleSizes are the bytes of a rule with its operands, by operation.
var ruleSizes = [...]int64{ruleEnd: 1, ruleOffset8: 2, ruleOffset: 9, ruleUndefined: 1, ruleSame: 1, ruleValOffset: 9,
	ruleRegister: 2, ruleExpr: 6}

// operand returns size bytes of the descriptor, off bytes behind the rule's beginning.
func (p *slowProof) operand(off int64, size uint8) term {
	return p.t.load(p.t.plus(p.v.slow.desc, off), size)
}

// rule proves the loop over the rules for one operation.
func (p *slowProof) rule(pc uint64, op uint64) error {
	t, v := p.t, &p.v
	s := p.rulesState(pc)
	// slotNew keeps the values of rules before this one.
	m := p.x.may
	m.newKept = true
	// The first byte of a rule is the operation in its upper 3 bits, the register in the lower 5.
	m.first = t.or(t.con(op<<5), v.slow.rule)
	named := t.con(0) // an expression's code
	switch op {
	case ruleExpr:
		named = t.con(1)
	case ruleRegister:
		// The operand is another register's number.
		m.indices = append(m.indices[:1:1], index{p.operand(1, 1), t.con(1)})
	}
	m.callTo, m.call = p.callExpr(p.operand(2, 4), named, v.slow.cfa), p.callRead
	// The code may read no further than this rule's operands.
	m.descEnd = func(*state) int64 { return ruleSizes[op] }
	defer p.x.allow(m)()
	return p.run(s, p.stops(cutRule, cutFinal), func(e *ending) error {
		// The end mark has no register: what follows is the copying.
		if op == ruleEnd {
			if err := p.asks(e.state, noTerm); err != nil {
				return err
			}
			return p.beginCopies(e)
		}
		value, status, err := p.ruleValue(e.state, op)
		if err != nil {
			return err
		}
		// Without a return address, the step fails; any other register just gets no value.
		if value == noTerm && op != ruleUndefined {
			fatal, err := p.holds(e.state, t.eq(v.slow.rule, t.con(abi.RIP)))
			if err != nil {
				return err
			}
			if fatal {
				if err := p.only(e.state); err != nil {
					return err
				}
				return p.fails(e, status)
			}
		}
		return p.nextRule(e, value, ruleSizes[op])
	})
}

// nextRule checks that a path goes on with the next rule, behind one of size bytes that gives its register
// a value, or none if it is noTerm.
func (p *slowProof) nextRule(e *ending, value term, size int64) error {
	t, v := p.t, &p.v
	// No register of the caller may be written before all rules are done.
	if e.kind != endStop || !p.begins(e.pc, cutRule) || len(e.regs) > 0 {
		return fmt.Errorf("%#x: not the next rule", e.pc)
	}
	// The loop at that place is proven for each operation.
	p.owed.rules.add(e.pc)
	list := []want{{"the CFA", e.reg[r12], v.slow.cfa}, {"the descriptor", e.reg[rBP], t.plus(v.slow.desc, size)}}
	// A register without a value loses its bit of valid registers.
	if value == noTerm {
		list = append(list, want{"the registers that are valid", e.reg[r13], t.clearBit(v.slow.state, v.slow.rule)})
		if len(e.event) > 0 {
			return fmt.Errorf("%#x: a value for a register that has none", e.pc)
		}
	} else {
		// One store, at the register's word in slotNew.
		if len(e.event) != 1 || e.event[0].kind != evNew {
			return fmt.Errorf("%#x: %d values for one register", e.pc, len(e.event))
		}
		// Two bits in r13: valid for the caller, and at 32 bits above it, to be copied.
		list = append(list, want{"the registers that are valid", e.reg[r13], t.setBit(t.setBit(v.slow.state, v.slow.rule),
			t.plus(v.slow.rule, 32))},
			want{"the place of the value", e.event[0].addr, t.scaled(t.plus(p.x.sp, frameBase+slotNew), v.slow.rule, 8)},
			want{"the value", e.event[0].v, value})
	}
	if err := p.require(e.state, list...); err != nil {
		return err
	}
	return p.keepsRules(e.state)
}

// ruleValue returns what a rule says on a path: the register's value, or noTerm and the
// status for which the step fails if it is the return address.
func (p *slowProof) ruleValue(s *state, op uint64) (value, status term, err error) {
	t, v := p.t, &p.v
	switch op {
	case ruleOffset8:
		return p.savedAt(s, t.scaled(v.slow.cfa, t.sext(p.operand(1, 1), 1), 8))
	case ruleOffset:
		return p.savedAt(s, t.add(v.slow.cfa, p.operand(1, 8)))
	case ruleUndefined:
		return noTerm, noTerm, p.asks(s, noTerm)
	case ruleSame:
		return p.oldValue(s, v.slow.rule)
	case ruleValOffset:
		return t.add(v.slow.cfa, p.operand(1, 8)), noTerm, p.asks(s, noTerm)
	case ruleRegister:
		return p.oldValue(s, p.operand(1, 1))
	}
	// What is left is ruleExpr: the expression fails, gives the value, or gives its address.
	lost, err := p.holds(s, p.exprFails())
	if err == nil && lost {
		// A failed expression leaves no value to read from.
		err = p.asks(s, noTerm)
	}
	if err != nil || lost {
		return noTerm, v.slow.exprStatus, err
	}
	// The operand's second byte tells a value from an address.
	isValue, err := p.holds(s, t.eq(p.operand(1, 1), t.con(0)))
	if err == nil && isValue {
		err = p.asks(s, noTerm)
	}
	if err != nil || isValue {
		return v.slow.exprValue, noTerm, err
	}
	return p.savedAt(s, v.slow.exprValue)
}

// savedAt returns the word of the target at an address, which the path must have asked for.
func (p *slowProof) savedAt(s *state, addr term) (value, status term, err error) {
	if err := p.asks(s, addr); err != nil {
		return noTerm, noTerm, err
	}
	ok, err := p.holds(s, p.readable(addr))
	// The read may fail: then there is no value.
	if !ok {
		return noTerm, p.statusTerm(abi.StatusUnreadable), err
	}
	return p.wordAt(addr), noTerm, err
}

// oldValue returns what register r of this frame holds, noTerm with the status if it is not valid.
func (p *slowProof) oldValue(s *state, r term) (value, status term, err error) {
	if err := p.asks(s, noTerm); err != nil {
		return noTerm, noTerm, err
	}
	// The registers of this frame are still in memory, unchanged.
	ok, err := p.holds(s, p.t.bit(p.v.old.valid, p.t.and(r, p.t.con(31))))
	if !ok {
		return noTerm, p.statusTerm(abi.StatusBadRegister), err
	}
	return p.t.load(p.t.scaled(p.v.args.regs, r, 8), 8), noTerm, err
}

// asks checks that a path has asked for no word but the one at an address, and for that once. A
// read leaves a condition of vecReadable on the path; count those.
func (p *slowProof) asks(s *state, addr term) error {
	times := 0
	for _, c := range s.conds {
		switch n := p.t.nodes[c.t]; {
		case n.op != tVec || n.k != vecReadable:
		case n.a != addr:
			return fmt.Errorf("%#x: reads at %s, which no rule needs", s.pc, p.t.text(n.a))
		default:
			times++
		}
	}
	if times > 1 {
		return fmt.Errorf("%#x: reads at %s %d times", s.pc, p.t.text(addr), times)
	}
	return nil
}

// beginCopies checks where the rules end: the mask of the caller goes to memory, and
// r13 has the registers to be copied.
func (p *slowProof) beginCopies(e *ending) error {
	if e.kind != endStop || !p.begins(e.pc, cutFinal) {
		return fmt.Errorf("%#x: not the end of the rules", e.pc)
	}
	p.owed.copies.add(e.pc)
	// Of the caller's registers only the mask has been written.
	valid, ok := e.regs.only(abi.RegsValid, 4)
	if !ok || len(e.event) > 0 {
		return fmt.Errorf("%#x: registers are written before they are all known", e.pc)
	}
	if err := p.require(e.state, want{"the mask of valid registers", valid, p.t.low(p.v.slow.state, 4)},
		want{"the registers that have a value", e.reg[r13], p.t.shrConst(p.v.slow.state, 32)}); err != nil {
		return err
	}
	return p.keepsRules(e.state)
}
