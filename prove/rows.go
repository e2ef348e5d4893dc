package prove

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// rowProof proves the heads of rows with their tails, and compares descriptors with rows.
type rowProof struct {
	*proof
	compared map[descKey]bool // descriptors that are the row
}

// row proves the head of a row with its tail: the step on the fast path for every
// state of the loop, or with the state as it was the way to the slow path with a
// descriptor of the row.
func (p *rowProof) row(at uint64, r *dwarfcfa.Row) error {
	t := p.t
	w := p.v.shared
	s := p.stateOf(&w, at)
	m := p.x.may
	m.pcSlot = t.scaled(w.pcs, w.cursor, 8)
	defer p.x.allow(m)()
	return p.run(s, p.stops(cutSlot, cutLookup, cutNear), func(e *ending) error {
		if e.kind != endStop || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a step", e.pc)
		}
		if e.wrote(evPC) {
			return p.fastStep(e, r)
		}
		if !p.begins(e.pc, cutSlot) || len(e.event) > 0 {
			return fmt.Errorf("%#x: neither a step nor the slow path", e.pc)
		}
		return p.toSlow(e, r)
	})
}

// cfaOf returns the CFA of a row on rsp or rbp as a host address.
func (p *rowProof) cfaOf(r *dwarfcfa.Row) (cfa term, ok bool) {
	w := p.v.shared
	c := r.CFA
	if c.Kind != dwarfcfa.CFARegOffset || c.Offset < -maxOffset || c.Offset > maxOffset {
		return 0, false
	}
	switch c.Reg {
	case abi.RSP:
		return p.t.plus(w.rsp, c.Offset), true
	case abi.RBP:
		return p.t.plus(p.t.add(w.rbp, w.delta), c.Offset), true
	}
	return 0, false
}

// fastStep checks a step that the fast path has taken.
func (p *rowProof) fastStep(e *ending, r *dwarfcfa.Row) error {
	t := p.t
	w := p.v.shared
	cfa, ok := p.cfaOf(r)
	if !ok || r.Flags != 0 {
		return fmt.Errorf("%#x: the fast path takes a row that it cannot take", e.pc)
	}
	if err := p.inWindow(e, r, cfa); err != nil {
		return err
	}
	l := w
	saved := uint64(0)
	var rip term
	for reg, rule := range r.Regs {
		place := (*term)(nil)
		switch {
		case reg == abi.RBP:
			place = &l.rbp
		case reg == abi.RIP:
			place = &rip
		default:
			for i := range placeOf {
				if placeOf[i].dwarf == reg {
					place = &l.place[i]
				}
			}
		}
		switch {
		case reg == abi.RSP:
			if rule.Kind != dwarfcfa.RuleValOffset || rule.Offset != 0 {
				return fmt.Errorf("%#x: the row has another rsp", e.pc)
			}
		case place == nil:
			if rule.Kind != dwarfcfa.RuleUndefined {
				return fmt.Errorf("%#x: the row has a value for %s", e.pc, abi.RegName(reg))
			}
		case rule.Kind == dwarfcfa.RuleOffset:
			*place = t.load(t.plus(cfa, rule.Offset), 8)
			saved |= 1 << reg
		case rule.Kind != dwarfcfa.RuleSameValue || reg == abi.RIP:
			return fmt.Errorf("%#x: the rule of %s is none of the fast path", e.pc, abi.RegName(reg))
		}
	}
	l.rsp = cfa
	l.mask = p.maskAfter(e.reg[rCX], saved&^needed)
	l.cursor = t.plus(w.cursor, 1)
	l.rel = t.sub(rip, w.base)
	last := e.event[len(e.event)-1]
	if last.kind != evPC {
		return fmt.Errorf("%#x: memory is read after the pc is written", e.pc)
	}
	if err := p.require(e.state, want{"the pc for the caller", last.v, rip}); err != nil {
		return err
	}
	end, err := p.holds(e.state, t.eq(l.cursor, t.con(0)))
	if err != nil {
		return err
	}
	if end {
		if !p.begins(e.pc, cutSlot) {
			return fmt.Errorf("%#x: not the end of a segment", e.pc)
		}
		p.owed.segmentEnds.add(e.pc)
	} else {
		if p.begins(e.pc, cutSlot) {
			return fmt.Errorf("%#x: not a lookup", e.pc)
		}
		p.owed.lookups.add(e.pc)
	}
	return p.matches(e.state, &l)
}

// maskAfter returns the mask of valid registers after a step. In a walk those that are needed
// are in it, and the upper half of rcx is 0: what rcx is then may be said in two ways.
func (p *rowProof) maskAfter(got term, saved uint64) term {
	with := p.t.or(p.v.shared.mask, p.t.con(saved))
	if low := p.t.low(with, 4); got == low {
		return low
	}
	return with
}

// inWindow checks the comparisons that a step has passed: the CFA is below high, and
// where a word may lie below rsp, or the CFA is on rbp, what lies as low as the lowest
// word is not below low. TestWindow proves that the words are readable then.
func (p *rowProof) inWindow(e *ending, r *dwarfcfa.Row, cfa term) error {
	t := p.t
	w := p.v.shared
	if below, err := p.holds(e.state, t.ult(cfa, w.high)); err != nil || !below {
		return fmt.Errorf("%#x: reads although the CFA is not below the window's end: %v", e.pc, err)
	}
	checked := int64(0) // how far below the CFA the window is known to reach
	if r.CFA.Reg == abi.RSP && r.CFA.Offset > 0 {
		checked = r.CFA.Offset
	}
	for _, c := range e.conds {
		n := t.nodes[c.t]
		if n.op != tSlt || !c.neg || n.b != w.low {
			continue
		}
		if d, ok := t.value(t.sub(cfa, n.a)); ok && d <= maxOffset {
			checked = max(checked, int64(d))
		}
	}
	for _, ev := range e.event {
		switch ev.kind {
		case evPC:
		case evRead:
			d, ok := t.value(t.sub(cfa, ev.addr))
			k := int64(d)
			if !ok || ev.size != 8 || k < 8 || k > checked || k > maxOffset {
				return fmt.Errorf("%#x: reads at %s, which no comparison puts into the window", e.pc, t.text(ev.addr))
			}
			// The window of _eh_elf without a callback is half of the address space.
			if !slices.ContainsFunc(r.Regs[:], func(rule dwarfcfa.RegRule) bool { return rule.Kind == dwarfcfa.RuleOffset && rule.Offset == -k }) {
				return fmt.Errorf("%#x: reads at %s, which no rule needs", e.pc, t.text(ev.addr))
			}
		default:
			return fmt.Errorf("%#x: an access at %s", e.pc, t.text(ev.addr))
		}
	}
	return nil
}

// descKey says which row a descriptor was compared with.
type descKey struct {
	addr uint64
	row  *dwarfcfa.Row
	fast bool
}

// toSlow checks the way to the slow path: the state is as it was, rdi is a descriptor
// of the row, and r10, if the descriptor takes it, the CFA.
func (p *rowProof) toSlow(e *ending, r *dwarfcfa.Row) error {
	w := p.v.shared
	if err := p.matches(e.state, &w); err != nil {
		return err
	}
	at, ok := p.x.link(e.reg[rDI])
	if !ok {
		return fmt.Errorf("%#x: the descriptor is at %s", e.pc, p.t.text(e.reg[rDI]))
	}
	kind := p.im.at(at, 1)
	if kind == nil {
		return fmt.Errorf("%#x: a descriptor at %#x is not in the data", e.pc, at)
	}
	fast := kind[0]&^descSignal <= descCFAFromBP
	if fast {
		cfa, ok := p.cfaOf(r)
		if !ok {
			return fmt.Errorf("%#x: a CFA is given for a row that has another", e.pc)
		}
		if err := p.require(e.state, want{"the CFA", e.reg[r10], cfa}); err != nil {
			return err
		}
		p.owed.slowFast.add(e.pc)
	} else {
		p.owed.slowRow.add(e.pc)
	}
	key := descKey{at, r, fast}
	if p.compared[key] {
		return nil
	}
	p.compared[key] = true
	if err := p.descriptor(at, r, fast); err != nil {
		return fmt.Errorf("descriptor at %#x: %w", at, err)
	}
	return nil
}

// descReader reads the bytes of a descriptor.
type descReader struct {
	p    *rowProof
	addr uint64
	ok   bool
}

func (d *descReader) bytes(n uint64) uint64 {
	b := d.p.im.at(d.addr, n)
	d.addr += n
	if b == nil {
		d.ok = false
		return 0
	}
	v := uint64(0)
	for i := range b {
		v |= uint64(b[i]) << (8 * i)
	}
	return v
}

// descriptor checks that a descriptor, read as slowCFA and slowRules prove that the
// code reads it, is the row.
func (p *rowProof) descriptor(at uint64, r *dwarfcfa.Row, fast bool) error {
	d := descReader{p, at, true}
	head := d.bytes(1)
	if (head&descSignal != 0) != (r.Flags&dwarfcfa.RowSignal != 0) {
		return fmt.Errorf("exact of the caller")
	}
	c := r.CFA
	switch kind := head &^ descSignal; {
	case kind == descCFAGiven && c.Kind == dwarfcfa.CFARegOffset && c.Reg == abi.RSP:
	case kind == descCFAFromBP && c.Kind == dwarfcfa.CFARegOffset && c.Reg == abi.RBP:
	case kind == descCFAReg:
		reg, off := d.bytes(1), d.bytes(8)
		if c.Kind != dwarfcfa.CFARegOffset || reg != uint64(c.Reg) || int64(off) != c.Offset || reg >= numRegs { // slowHead takes it to be below
			return fmt.Errorf("the CFA is register %d%+d", reg, int64(off))
		}
	case kind == descCFAExpr && c.Kind == dwarfcfa.CFAExpr && !p.table.Exprs[c.Expr].Pushed:
		if err := p.exprAt(d.bytes(4), c.Expr); err != nil {
			return err
		}
	default:
		return fmt.Errorf("a CFA of kind %d", kind)
	}
	var rules [numRegs]dwarfcfa.RegRule
	for i := range rules {
		rules[i].Kind = dwarfcfa.RuleUndefined
		if abi.CalleeSaved&(1<<i) != 0 {
			rules[i].Kind = dwarfcfa.RuleSameValue
		}
	}
	rules[abi.RSP].Kind = dwarfcfa.RuleValOffset
	var given [numRegs]bool
	for n := 0; ; n++ {
		b := d.bytes(1)
		if !d.ok {
			return fmt.Errorf("it is not in the data")
		}
		op, reg := b>>5, b&31
		if reg >= numRegs { // the end, too: slowRule takes the register to be below
			return fmt.Errorf("a rule for register %d", reg)
		}
		if op == ruleEnd {
			break
		}
		// A register given once: a second rule would not undo the first.
		if given[reg] {
			return fmt.Errorf("two rules for register %d", reg)
		}
		given[reg] = true
		rule, err := p.ruleAt(&d, op, r.Regs[reg])
		if err != nil {
			return fmt.Errorf("%s: %w", abi.RegName(int(reg)), err)
		}
		if rule.Kind == dwarfcfa.RuleUndefined && reg == abi.RIP {
			return fmt.Errorf("no return address")
		}
		rules[reg] = rule
	}
	if !given[abi.RIP] || !d.ok {
		return fmt.Errorf("no return address")
	}
	for i := range rules {
		got, want := rules[i], r.Regs[i]
		for _, rule := range []*dwarfcfa.RegRule{&got, &want} {
			if rule.Kind == dwarfcfa.RuleRegister && int(rule.Reg) == i {
				*rule = dwarfcfa.RegRule{Kind: dwarfcfa.RuleSameValue}
			}
		}
		if got != want {
			return fmt.Errorf("the rule of %s", abi.RegName(i))
		}
	}
	if fast {
		return p.stepBytes(at, r)
	}
	return nil
}

// ruleAt reads the operand of a rule. want is the table's rule, for the expression.
func (p *rowProof) ruleAt(d *descReader, op uint64, want dwarfcfa.RegRule) (rule dwarfcfa.RegRule, err error) {
	switch op {
	case ruleOffset8:
		rule.Kind, rule.Offset = dwarfcfa.RuleOffset, 8*int64(int8(d.bytes(1)))
	case ruleOffset:
		rule.Kind, rule.Offset = dwarfcfa.RuleOffset, int64(d.bytes(8))
	case ruleUndefined:
		rule.Kind = dwarfcfa.RuleUndefined
	case ruleSame:
		rule.Kind = dwarfcfa.RuleSameValue
	case ruleValOffset:
		rule.Kind, rule.Offset = dwarfcfa.RuleValOffset, int64(d.bytes(8))
	case ruleRegister:
		rule.Kind, rule.Reg = dwarfcfa.RuleRegister, uint16(d.bytes(1))
		if rule.Reg >= numRegs {
			return rule, fmt.Errorf("in register %d", rule.Reg)
		}
	case ruleExpr:
		rule.Kind = dwarfcfa.RuleExpression
		if d.bytes(1) == 0 {
			rule.Kind = dwarfcfa.RuleValExpression
		}
		off := d.bytes(4)
		if want.Kind != dwarfcfa.RuleExpression && want.Kind != dwarfcfa.RuleValExpression {
			return rule, fmt.Errorf("an expression")
		}
		rule.Expr = want.Expr
		return rule, p.exprAt(off, want.Expr)
	}
	return rule, nil
}

// stepBytes checks the three bytes before a descriptor, by which _eh_elf asks its
// callback: where the return address, rbp and rbx are saved, in words from the CFA, or
// 0 for the same value. A return address of 0 says that they do not fit.
func (p *rowProof) stepBytes(at uint64, r *dwarfcfa.Row) error {
	b := p.im.at(at-3, 3)
	if b == nil {
		return fmt.Errorf("it is not in the data")
	}
	if b[0] == 0 {
		return nil // stepFrom: a walk of one step does the row
	}
	for i, reg := range [3]int{abi.RIP, abi.RBP, abi.RBX} {
		rule := r.Regs[reg]
		switch {
		case b[i] == 0 && rule.Kind == dwarfcfa.RuleSameValue:
		case b[i] != 0 && rule.Kind == dwarfcfa.RuleOffset && rule.Offset == 8*int64(int8(b[i])):
		default:
			return fmt.Errorf("the byte for %s before it", abi.RegName(reg))
		}
	}
	if rsp := r.Regs[abi.RSP]; rsp.Kind != dwarfcfa.RuleValOffset || rsp.Offset != 0 {
		return fmt.Errorf("the bytes before it know no rsp but the CFA")
	}
	return nil
}

// exprAt records that a descriptor names the code of an expression, by its distance
// from _eh_elf.
func (p *rowProof) exprAt(off uint64, id dwarfcfa.ExprID) error {
	at := p.im.symbols[abi.SymbolStep].Value + off
	if off >= 1<<31 {
		return fmt.Errorf("an expression at %#x", at)
	}
	p.owed.exprs.add(exprJob{at, id})
	return nil
}
