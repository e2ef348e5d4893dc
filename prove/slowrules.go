package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// slowRules proves the loop over the rules: each operation takes the loop from one
// rule to the next one with what the rule says of its register in slotNew and r13, or
// ends the step. The register is a variable, below 17.
func (p *prover) slowRules(pc uint64) error {
	for op := uint64(ruleEnd); op <= ruleExpr; op++ {
		if err := p.slowRule(pc, op); err != nil {
			return fmt.Errorf("rule operation %d: %w", op, err)
		}
	}
	return nil
}

// ruleSizes are the bytes of a rule.
var ruleSizes = [...]int64{ruleEnd: 1, ruleOffset8: 2, ruleOffset: 9, ruleUndefined: 1, ruleSame: 1, ruleValOffset: 9, ruleRegister: 2, ruleExpr: 6}

func (p *prover) slowRule(pc uint64, op uint64) error {
	t, v := p.t, &p.v
	d := func(off int64, size uint8) term { return t.load(t.plus(v.desc, off), size) }
	s := p.rulesState(pc)
	p.x.newKept = true
	p.x.first = t.or(t.con(op<<5), v.rule)
	operand := d(1, 1)
	indices := p.x.indices
	named := t.con(0)
	switch op {
	case ruleExpr:
		named = t.con(1)
	case ruleRegister:
		p.x.indices = append(indices[:1:1], index{operand, t.con(1)})
	}
	p.x.callTo, p.x.call = p.callExpr(d(2, 4), named, v.cfa), p.callRead
	p.x.descEnd = func(*state) int64 { return ruleSizes[op] }
	defer func() {
		p.x.first, p.x.callTo, p.x.call, p.x.indices, p.x.descEnd = noTerm, nil, nil, indices, nil
		p.x.newKept = false
	}()
	return p.run(s, p.stops(cutRule, cutFinal), func(e *ending) error {
		if op == ruleEnd {
			if err := p.asks(e.state, noTerm); err != nil {
				return err
			}
			return p.beginFinal(e)
		}
		value, status, n, err := p.ruleValue(e.state, op, d)
		if err != nil {
			return err
		}
		if value == noTerm && op != ruleUndefined {
			fatal, err := p.holds(e.state, t.eq(v.rule, t.con(abi.RIP)))
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
		if e.kind != endStop || !p.begins(e.pc, cutRule) || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not the next rule", e.pc)
		}
		p.nexts.add(e.pc)
		list := []want{{"the CFA", e.reg[r12], v.cfa}, {"the descriptor", e.reg[rBP], t.plus(v.desc, n)}}
		if value == noTerm {
			list = append(list, want{"the registers that are valid", e.reg[r13], t.clearBit(v.state, v.rule)})
			if len(e.event) > 0 {
				return fmt.Errorf("%#x: a value for a register that has none", e.pc)
			}
		} else {
			if len(e.event) != 1 || e.event[0].kind != evNew {
				return fmt.Errorf("%#x: %d values for one register", e.pc, len(e.event))
			}
			list = append(list, want{"the registers that are valid", e.reg[r13], t.setBit(t.setBit(v.state, v.rule), t.plus(v.rule, 32))},
				want{"the place of the value", e.event[0].addr, t.scaled(t.plus(p.x.sp, frameBase+slotNew), v.rule, 8)},
				want{"the value", e.event[0].v, value})
		}
		if err := p.require(e.state, list...); err != nil {
			return err
		}
		return p.keepsRules(e.state)
	})
}

// ruleValue returns what a rule says on a path: the register's value, or noTerm and the
// status for which the step fails if it is the return address; and how many bytes the
// rule takes.
func (p *prover) ruleValue(s *state, op uint64, d func(int64, uint8) term) (value, status term, n int64, err error) {
	t, v := p.t, &p.v
	saved := func(at term, n int64) (term, term, int64, error) {
		if err := p.asks(s, at); err != nil {
			return noTerm, noTerm, n, err
		}
		ok, err := p.holds(s, p.readable(at))
		if !ok {
			return noTerm, p.statusTerm(abi.StatusUnreadable), n, err
		}
		return p.wordAt(at), noTerm, n, err
	}
	register := func(r term, n int64) (term, term, int64, error) {
		if err := p.asks(s, noTerm); err != nil {
			return noTerm, noTerm, n, err
		}
		ok, err := p.holds(s, t.bit(v.valid, t.and(r, t.con(31))))
		if !ok {
			return noTerm, p.statusTerm(abi.StatusBadRegister), n, err
		}
		return t.load(t.scaled(v.regs, r, 8), 8), noTerm, n, err
	}
	switch op {
	case ruleOffset8:
		return saved(t.scaled(v.cfa, t.sext(d(1, 1), 1), 8), 2)
	case ruleOffset:
		return saved(t.add(v.cfa, d(1, 8)), 9)
	case ruleUndefined:
		return noTerm, noTerm, 1, p.asks(s, noTerm)
	case ruleSame:
		return register(v.rule, 1)
	case ruleValOffset:
		return t.add(v.cfa, d(1, 8)), noTerm, 9, p.asks(s, noTerm)
	case ruleRegister:
		return register(d(1, 1), 2)
	}
	lost, err := p.holds(s, p.exprFails())
	if err == nil && lost {
		err = p.asks(s, noTerm)
	}
	if err != nil || lost {
		return noTerm, v.exprStatus, 6, err
	}
	isValue, err := p.holds(s, t.eq(d(1, 1), t.con(0)))
	if err == nil && isValue {
		err = p.asks(s, noTerm)
	}
	if err != nil || isValue {
		return v.exprValue, noTerm, 6, err
	}
	return saved(v.exprValue, 6)
}

// asks checks that a path has asked for no word but the one at an address, and for that once.
func (p *prover) asks(s *state, at term) error {
	times := 0
	for _, c := range s.conds {
		switch n := p.t.nodes[c.t]; {
		case n.op != tVec || n.k != vecReadable:
		case n.a != at:
			return fmt.Errorf("%#x: reads at %s, which no rule needs", s.pc, p.t.text(n.a))
		default:
			times++
		}
	}
	if times > 1 {
		return fmt.Errorf("%#x: reads at %s %d times", s.pc, p.t.text(at), times)
	}
	return nil
}

// beginFinal checks where the rules end: the mask of the caller goes to memory, and
// r13 has the registers to be copied.
func (p *prover) beginFinal(e *ending) error {
	if e.kind != endStop || !p.begins(e.pc, cutFinal) {
		return fmt.Errorf("%#x: not the end of the rules", e.pc)
	}
	p.finals.add(e.pc)
	valid, ok := onlyCell(e.regs, abi.RegsValid, 4)
	if !ok || len(e.event) > 0 {
		return fmt.Errorf("%#x: registers are written before they are all known", e.pc)
	}
	if err := p.require(e.state, want{"the mask of valid registers", valid, p.t.low(p.v.state, 4)},
		want{"the registers that have a value", e.reg[r13], p.t.shrConst(p.v.state, 32)}); err != nil {
		return err
	}
	return p.keepsRules(e.state)
}
