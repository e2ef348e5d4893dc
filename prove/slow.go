package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// A descriptor of a row, as the slow path reads it.
const (
	descCFAGiven  = 0 // the CFA is in r10, from rsp
	descCFAFromBP = 1 // the same, from rbp
	descCFAReg    = 2 // byte register, int64 offset
	descCFAExpr   = 3 // int32 offset of the code from _eh_elf
	descSignal    = 0x80

	ruleEnd       = 0
	ruleOffset8   = 1 // int8: saved at CFA + 8*operand
	ruleOffset    = 2 // int64: saved at CFA + operand
	ruleUndefined = 3
	ruleSame      = 4
	ruleValOffset = 5 // int64: is CFA + operand
	ruleRegister  = 6 // byte: is that register's value
	ruleExpr      = 7 // byte: 0 value, 1 saved there; int32 offset of the code
)

// slowState returns the invariant of the slow path's parts: rbx and r14 hold the pointers,
// r12 the CFA, r13 what is valid in the caller and, from bit 32 on, what has a value
// in slotNew; the frame has what the end needs. eh_elf_regs_t has this frame's
// registers, all of them, until the end.
func (p *prover) slowState(pc uint64) *state {
	v := &p.v
	s := p.stateOf(p.slowFrame(), pc)
	s.reg[rBX], s.reg[r14], s.reg[r12], s.reg[rBP], s.reg[r13] = v.regs, v.mem, v.cfa, v.desc, v.state
	s.reg[r15] = v.scratch // not the caller's, which is in its slot
	p.setSlot(s, slotCursor, v.walk.cursor)
	p.setSlot(s, slotPCs, v.walk.pcs)
	s.assume(p.t.eq(v.regs, p.t.con(0)), true)
	for i, r := range slowSaved {
		p.setSlot(s, slotSaved+8*int64(i), p.any[r])
	}
	return s
}

// rulesState is slowState behind the CFA: what the rules have found is in slotNew.
func (p *prover) rulesState(pc uint64) *state {
	s := p.slowState(pc)
	s.stack = append(s.stack, cell{frameBase + slotExact, 4, p.v.exact})
	return s
}

// pastRules forgets the CFA and the place in the descriptor, which the end of the rules need not keep.
func (p *prover) pastRules(s *state) {
	for _, r := range [...]uint8{r12, r13, rBP} {
		s.reg[r] = p.t.variable("left by the rules", ^uint64(0))
	}
}

// keepsRules is keepsSlow behind the CFA.
func (p *prover) keepsRules(s *state) error {
	exact, _, _ := p.x.readCell(s.stack, frameBase+slotExact, 4)
	if err := p.require(s, want{"exact", exact, p.v.exact}); err != nil {
		return err
	}
	return p.keepsSlow(s)
}

var slowSaved = [5]uint8{rBX, r12, r13, r14, r15}

// slowFrame returns what stays as it is in the slow path.
func (p *prover) slowFrame() *loop {
	w := p.v.walk
	return &loop{
		rel: noTerm, mask: noTerm, cursor: noTerm, base: noTerm, pcs: noTerm, rsp: noTerm, delta: noTerm, rbp: noTerm, low: noTerm, high: noTerm, result: noTerm,
		place: [5]term{noTerm, noTerm, noTerm, noTerm, noTerm},
		first: w.first, regs: w.regs, mem: w.mem, slotBase: w.slotBase, sync: w.cursor, left: w.left, next: w.next,
	}
}

// keepsSlow checks the invariant but for r12, r13 and rbp.
func (p *prover) keepsSlow(s *state) error {
	v := &p.v
	list := []want{{"rbx of the machine", s.reg[rBX], v.regs}, {"r14 of the machine", s.reg[r14], v.mem},
		{"rsp of the machine", s.reg[rSP], p.t.plus(p.x.sp, frameBase)},
		{"the cursor", p.slot(s, slotCursor), v.walk.cursor}, {"the end of the pcs", p.slot(s, slotPCs), v.walk.pcs}}
	for i, r := range slowSaved {
		list = append(list, want{fmt.Sprintf("saved register %d", r), p.slot(s, slotSaved+8*int64(i)), p.any[r]})
	}
	for _, slot := range p.slowFrame().slots() {
		if slot.v != noTerm {
			list = append(list, want{fmt.Sprintf("slot %d of the frame", slot.off), p.slot(s, slot.off), slot.v})
		}
	}
	list = append(list, want{"the caller's rbp", p.cellAt(s, -8), v.callerRBP})
	if len(s.outer) > 0 {
		return fmt.Errorf("%#x: inside a subroutine", s.pc)
	}
	return p.require(s, list...)
}

func (p *prover) cellAt(s *state, off int64) term {
	if v, ok, _ := p.x.readCell(s.stack, off, 8); ok {
		return v
	}
	return noTerm
}

// fails checks a step that fails in the slow path.
func (p *prover) fails(e *ending, status term) error {
	if e.kind != endRet {
		return fmt.Errorf("%#x: not a return", e.pc)
	}
	v, ok := onlyCell(e.regs, abi.RegsStatus, 2)
	if !ok {
		return fmt.Errorf("%#x: a step that fails writes registers", e.pc)
	}
	return p.require(e.state, want{"the status", v, p.t.low(status, 2)},
		want{"the number of steps", e.reg[rAX], p.t.sub(p.v.walk.cursor, p.v.walk.first)})
}

func (p *prover) statusTerm(s abi.Status) term { return p.t.con(uint64(uint32(int32(s)))) }

// slowFromFast proves the way from a tail whose words are not all in the window to
// the descriptor, slowFromRow that from a row that is not fast: the registers go to
// memory unless they are there.
func (p *prover) slowFromFast(pc uint64) error { return p.slowFrom(pc, true) }
func (p *prover) slowFromRow(pc uint64) error  { return p.slowFrom(pc, false) }

func (p *prover) slowFrom(pc uint64, fast bool) error {
	t, v := p.t, &p.v
	w := v.walk
	s := p.stateOf(&w, pc)
	s.reg[rDI], s.reg[r10] = v.desc, v.cfaHost
	s.assume(t.eq(v.regs, t.con(0)), true)
	err := p.run(s, p.stops(cutCFA), func(e *ending) error {
		if e.kind != endStop {
			return fmt.Errorf("%#x: no descriptor is read", e.pc)
		}
		p.cfas.add(e.pc)
		synced, err := p.holds(e.state, t.eq(w.cursor, w.sync))
		if err != nil {
			return err
		}
		if synced {
			if len(e.regs) > 0 {
				return fmt.Errorf("%#x: registers are written twice", e.pc)
			}
		} else if err := p.require(e.state, p.inMemory(e.state, &w, noTerm)...); err != nil {
			return err
		}
		if err := p.only(e.state); err != nil {
			return err
		}
		list := []want{{"the descriptor", e.reg[rBP], v.desc}}
		if fast {
			list = append(list, want{"the CFA", e.reg[r12], t.sub(v.cfaHost, w.delta)})
		}
		// What is valid: in memory.
		valid, found, _ := p.x.readCell(e.regs, abi.RegsValid, 4)
		if !found {
			valid = v.valid
		}
		list = append(list, want{"the callee-saved registers that are valid", e.reg[r13], t.and(valid, t.con(uint64(abi.CalleeSaved)))})
		if err := p.require(e.state, list...); err != nil {
			return err
		}
		return p.keepsSlow(e.state)
	})
	if err != nil {
		return err
	}
	return p.stepFrom(pc, fast)
}

// slowCFA proves the reading of a descriptor's head: the CFA, or the step's failure.
func (p *prover) slowCFA(pc uint64) error {
	t, v := p.t, &p.v
	d := func(off int64, size uint8) term { return t.load(t.plus(v.desc, off), size) }
	head := d(0, 1)
	s := p.slowState(pc)
	saved := t.and(v.valid, t.con(uint64(abi.CalleeSaved)))
	s.reg[r13] = saved
	reg := d(1, 1)
	kind := t.and(head, t.con(descSignal-1))
	indices := p.x.indices
	p.x.indices = append(indices[:1:1], index{reg, t.eq(kind, t.con(descCFAReg))})
	p.x.callTo, p.x.call = p.callExpr(d(1, 4), t.ult(t.con(descCFAReg), kind), noTerm), nil
	decided := func(s *state, c term) bool {
		truth, known := p.x.decide(s, c)
		return known && truth
	}
	p.x.descEnd = func(s *state) int64 {
		switch {
		case decided(s, t.eq(kind, t.con(descCFAReg))):
			return 10
		case decided(s, t.ult(t.con(descCFAReg), kind)): // descCFAExpr
			return 5
		}
		return 1
	}
	defer func() { p.x.callTo, p.x.indices, p.x.descEnd = nil, indices, nil }()
	return p.run(s, p.stops(cutRule), func(e *ending) error {
		is := func(k uint64) bool { return decided(e.state, t.eq(kind, t.con(k))) }
		isNot := func(k uint64) bool {
			truth, known := p.x.decide(e.state, t.eq(kind, t.con(k)))
			return known && !truth
		}
		above, known := p.x.decide(e.state, t.ult(t.con(descCFAReg), kind))
		cfa, n, fail := v.cfa, int64(1), noTerm
		validBit := func(r term) (bool, error) { return p.holds(e.state, t.bit(v.valid, r)) }
		switch {
		case is(descCFAGiven):
		case is(descCFAReg):
			ok, err := validBit(t.and(reg, t.con(31)))
			if err != nil {
				return err
			}
			cfa, n = t.add(t.load(t.scaled(v.regs, reg, 8), 8), d(2, 8)), 10
			if !ok {
				fail = p.statusTerm(abi.StatusBadRegister)
			}
		case known && above && isNot(descCFAGiven) && isNot(descCFAReg): // descCFAExpr
			cfa, n = v.exprValue, 5
			if lost, err := p.holds(e.state, p.exprFails()); err != nil {
				return err
			} else if lost {
				fail = v.exprStatus
			}
		case known && !above && isNot(descCFAGiven) && isNot(descCFAReg): // descCFAFromBP
			ok, err := validBit(t.con(abi.RBP))
			if err != nil {
				return err
			}
			if !ok {
				fail = p.statusTerm(abi.StatusBadRegister)
			}
		default:
			return fmt.Errorf("%#x: reached by several kinds of CFA", e.pc)
		}
		if err := p.only(e.state); err != nil {
			return err
		}
		if fail != noTerm {
			return p.fails(e, fail)
		}
		if e.kind != endStop || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a rule", e.pc)
		}
		p.nexts.add(e.pc)
		exact, _, _ := p.x.readCell(e.stack, frameBase+slotExact, 4)
		state := t.or(saved, t.con(1<<abi.RSP|1<<(32+abi.RSP)))
		err := p.require(e.state, want{"the CFA", e.reg[r12], cfa}, want{"the descriptor", e.reg[rBP], t.plus(v.desc, n)},
			want{"exact", exact, t.shrConst(head, 7)}, want{"the registers that are valid", e.reg[r13], state},
			want{"rsp of the caller", p.slot(e.state, slotNew+8*abi.RSP), cfa})
		if err != nil {
			return err
		}
		return p.keepsSlow(e.state)
	})
}

// slowFinal proves a round of the loop that copies: one register of r13, the lowest,
// and r13 loses it. The first r13 has rsp (see slowCFA: no rule clears bit 39).
func (p *prover) slowFinal(pc uint64) error {
	t, v := p.t, &p.v
	s := p.rulesState(pc)
	p.x.newKept = true
	defer func() { p.x.newKept = false }()
	p.pastRules(s)
	s.reg[r13] = v.w
	s.assume(t.eq(v.w, t.con(0)), true)
	rest := t.and(v.w, t.low(t.plus(v.w, -1), 4))
	return p.run(s, p.stops(cutFinal, cutEnd), func(e *ending) error {
		if e.kind != endStop || len(e.regs) > 0 || len(e.event) != 1 || e.event[0].kind != evReg {
			return fmt.Errorf("%#x: not a copy of a register", e.pc)
		}
		i := t.firstBit(v.w)
		if err := p.require(e.state, want{"the register copied", e.event[0].addr, t.scaled(v.regs, i, 8)},
			want{"its value", e.event[0].v, t.load(t.scaled(t.plus(p.x.sp, frameBase+slotNew), i, 8), 8)},
			want{"the registers left", e.reg[r13], rest}); err != nil {
			return err
		}
		done, err := p.holds(e.state, t.eq(rest, t.con(0)))
		if err != nil {
			return err
		}
		if done == p.begins(e.pc, cutFinal) {
			return fmt.Errorf("%#x: the copying of registers goes on too long or ends too early", e.pc)
		}
		if done {
			p.ends.add(e.pc)
		} else {
			p.finals.add(e.pc)
		}
		return p.keepsRules(e.state)
	})
}

// slowEnd proves the end of a step of the slow path: exact, the pc, the next step.
func (p *prover) slowEnd(pc uint64) error {
	t, v := p.t, &p.v
	s := p.rulesState(pc)
	p.pastRules(s)
	p.x.pcSlot = t.scaled(v.walk.pcs, v.walk.cursor, 8)
	defer func() { p.x.pcSlot = noTerm }()
	return p.run(s, p.stops(cutSlot, cutLoad), func(e *ending) error {
		exact, ok := onlyCell(e.regs, abi.RegsExact, 2)
		if e.kind != endStop || !ok || len(e.event) != 1 || e.event[0].kind != evPC {
			return fmt.Errorf("%#x: not the end of a step", e.pc)
		}
		if err := p.require(e.state, want{"exact", exact, v.exact}, want{"the pc for the caller", e.event[0].v, v.regOf[abi.RIP]}); err != nil {
			return err
		}
		l := *p.slowFrame()
		l.cursor = t.plus(v.walk.cursor, 1)
		l.sync, l.pcs = l.cursor, v.walk.pcs
		if last, err := p.holds(e.state, t.eq(l.cursor, t.con(0))); err != nil {
			return err
		} else if !last {
			return p.atLoad(e, &l)
		}
		if !p.begins(e.pc, cutSlot) {
			return fmt.Errorf("%#x: not the end of a segment", e.pc)
		}
		p.segmentEnds.add(e.pc)
		return p.matches(e.state, &l)
	})
}

// readWord proves the reading of a word of the target: from the window if all its
// bytes are inside, else by the callback, else not at all.
func (p *prover) readWord(pc uint64) error {
	t, v := p.t, &p.v
	s := p.newState(pc)
	s.reg[rSP] = p.x.sp
	p.x.limit = stackLimit - readDepth
	defer func() { p.x.limit = stackLimit }()
	s.frame.keep = p.any
	s.reg[r14] = v.mem
	s.frame.keep[r14] = v.mem
	s.stack = append(s.stack, cell{0, 8, v.ret})
	s.assume(t.eq(v.regs, t.con(0)), true) // it is called in the slow path
	at := s.reg[rSI]
	field := func(off int64) term { return t.load(t.plus(v.mem, off), 8) }
	size, off := field(abi.MemorySize), t.sub(at, field(abi.MemoryLo))
	fn := field(abi.MemoryRead)
	result := t.variable("status of read", 0xffffffff)
	p.x.callTo = func(s *state, to term) ([]*state, error) {
		place := t.sub(s.reg[rDX], p.x.sp)
		k, ok := t.value(place)
		rsp, err := p.x.stackOff(s)
		if err != nil || !ok || int64(k) < rsp || int64(k) > -8 || (rsp-8)&15 != 0 {
			return nil, fmt.Errorf("the callback gets a place at %s, rsp is %+d", t.text(place), rsp)
		}
		if err := p.require(s, want{"the callback", to, fn}, want{"its first argument", s.reg[rDI], field(abi.MemoryArg)},
			want{"its address", s.reg[rSI], at}); err != nil {
			return nil, err
		}
		if null, known := p.x.decide(s, t.eq(fn, t.con(0))); !known || null {
			return nil, fmt.Errorf("a call of a callback that may be null")
		}
		s.event = append(s.event, event{evAsked, at, 8, v.word})
		p.clobber(s)
		s.reg[rAX] = t.or(result, t.shlConst(t.variable("upper half", 0xffffffff), 32)) // an int
		s.stack = p.x.writeCell(s.stack, int64(k), 8, v.word)
		return []*state{s}, nil
	}
	defer func() { p.x.callTo = nil }()
	return p.run(s, nil, func(e *ending) error {
		if e.kind != endRet || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a return", e.pc)
		}
		carry, ok := p.x.condition(e.fl, 2)
		if !ok {
			return fmt.Errorf("%#x: returns with a carry that is not known", e.pc)
		}
		small, err := p.holds(e.state, t.ult(size, t.con(8)))
		if err != nil {
			return err
		}
		inside := false
		if !small {
			out, err := p.holds(e.state, t.ult(t.plus(size, -8), off))
			if err != nil {
				return err
			}
			inside = !out
		}
		carryIs := func(want bool) error {
			if got, known := p.x.decide(e.state, carry.t); !known || (got != carry.neg) != want {
				return fmt.Errorf("%#x: carry is not %v", e.pc, want)
			}
			return nil
		}
		if inside {
			host := t.add(off, field(abi.MemoryBytes))
			if len(e.event) != 1 || e.event[0].kind != evRead || e.event[0].size != 8 {
				return fmt.Errorf("%#x: not one read", e.pc)
			}
			if err := p.require(e.state, want{"the word", e.reg[rAX], t.load(host, 8)}, want{"where it is read", e.event[0].addr, host}); err != nil {
				return err
			}
			return carryIs(false)
		}
		if err := p.only(e.state, evAsked); err != nil {
			return fmt.Errorf("a read outside of the window: %w", err)
		}
		none, err := p.holds(e.state, t.eq(fn, t.con(0)))
		if err != nil {
			return err
		}
		if none {
			return carryIs(true)
		}
		if len(e.event) != 1 {
			return fmt.Errorf("%#x: the callback is asked %d times for a word", e.pc, len(e.event))
		}
		if err := p.require(e.state, want{"the word", e.reg[rAX], v.word}); err != nil {
			return err
		}
		if fails := p.x.literal(t.eq(result, t.con(0)), true); fails != carry {
			return p.mismatch(e.state, want{"carry", p.x.asTerm(carry), p.x.asTerm(fails)})
		}
		return nil
	})
}
