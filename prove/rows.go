package prove

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// row proves the head of a row with its tail, from the invariant of a lookup on: the step on the
// fast path for every state, or the way to the slow path with the state unchanged and a descriptor
// of the row in rdi.
func (p *rowProof) row(head uint64, r *dwarfcfa.Row) error {
	t := p.t
	w := p.v.shared
	s := p.stateOf(&w, head)
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

// cfaOf returns the CFA of a row on rsp or rbp as a host address. ok is false for other rows, and
// for offsets beyond what the window's proof allows.
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

// fastStep checks a step that the fast path has taken: reads inside the window, the caller's
// registers, the pc handed to the caller, and that the code goes on at a lookup, or at the
// segment's end after its last step.
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
	// l is the invariant of the next lookup: this one's, with what the row changes.
	l := w
	rip, saved, err := p.restored(e, r, cfa, &l)
	if err != nil {
		return err
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
	switch atEnd := p.begins(e.pc, cutSlot); {
	case end && atEnd:
		p.owed.segmentEnds.add(e.pc)
	case end:
		return fmt.Errorf("%#x: not the end of a segment", e.pc)
	case atEnd:
		return fmt.Errorf("%#x: not a lookup", e.pc)
	default:
		p.owed.lookups.add(e.pc)
	}
	return p.matches(e.state, &l)
}

// restored puts the caller's registers into l as a row of the fast path has them. saved are the registers that it
// reads from memory.
func (p *rowProof) restored(e *ending, r *dwarfcfa.Row, cfa term, l *loop) (rip term, saved uint64, err error) {
	for reg, rule := range r.Regs {
		var into *term
		switch reg {
		case abi.RBP:
			into = &l.rbp
		case abi.RIP:
			into = &rip
		// The other homes are those of loop.home; a register without one cannot be restored
		// here.
		default:
			for i := range homeOf {
				if homeOf[i].dwarf == reg {
					into = &l.home[i]
				}
			}
		}
		switch {
		case reg == abi.RSP:
			if rule.Kind != dwarfcfa.RuleValOffset || rule.Offset != 0 {
				return 0, 0, fmt.Errorf("%#x: the row has another rsp", e.pc)
			}
		case into == nil:
			if rule.Kind != dwarfcfa.RuleUndefined {
				return 0, 0, fmt.Errorf("%#x: the row has a value for %s", e.pc, abi.RegName(reg))
			}
		case rule.Kind == dwarfcfa.RuleOffset:
			*into = p.t.load(p.t.plus(cfa, rule.Offset), 8)
			saved |= 1 << reg
		case rule.Kind != dwarfcfa.RuleSameValue || reg == abi.RIP:
			return 0, 0, fmt.Errorf("%#x: the rule of %s is none of the fast path", e.pc, abi.RegName(reg))
		}
	}
	return rip, saved, nil
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
			if !slices.ContainsFunc(r.Regs[:], func(rule dwarfcfa.RegRule) bool {
				return rule.Kind == dwarfcfa.RuleOffset &&
					rule.Offset == -k
			}) {
				return fmt.Errorf("%#x: reads at %s, which no rule needs", e.pc, t.text(ev.addr))
			}
		default:
			return fmt.Errorf("%#x: an access at %s", e.pc, t.text(ev.addr))
		}
	}
	return nil
}

// toSlow checks the way to the slow path: the state is as it was, rdi is a descriptor
// of the row, and r10, if the descriptor takes it, the CFA.
func (p *rowProof) toSlow(e *ending, r *dwarfcfa.Row) error {
	w := p.v.shared
	if err := p.matches(e.state, &w); err != nil {
		return err
	}
	addr, ok := p.x.link(e.reg[rDI])
	if !ok {
		return fmt.Errorf("%#x: the descriptor is at %s", e.pc, p.t.text(e.reg[rDI]))
	}
	kind := p.im.at(addr, 1)
	if kind == nil {
		return fmt.Errorf("%#x: a descriptor at %#x is not in the data", e.pc, addr)
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
	key := descKey{addr, r, fast}
	if p.compared[key] {
		return nil
	}
	p.compared[key] = true
	if err := p.descriptor(addr, r, fast); err != nil {
		return fmt.Errorf("descriptor at %#x: %w", addr, err)
	}
	return nil
}
