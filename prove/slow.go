package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// This file proves the slow path part by part, each from its invariant to the next: the descriptor, the CFA, rule after
// rule, the copying of registers, the end. Expressions are in expr.go.

// slowProof proves the slow path, which takes the steps that the fast path cannot.
type slowProof struct {
	*proof
	step *stepProof // _eh_elf shares the way to the descriptor
}

// slowState returns the invariant of the slow path's parts: rbx and r14 hold the pointers,
// r12 the CFA, r13 what is valid in the caller and, from bit 32 on, what has a value
// in slotNew; the frame has what the end needs. eh_elf_regs_t has this frame's
// registers, all of them, until the end.
func (p *slowProof) slowState(pc uint64) *state {
	v := &p.v
	s := p.stateOf(p.slowFrame(), pc)
	s.reg[rBX], s.reg[r14], s.reg[r12], s.reg[rBP], s.reg[r13] = v.args.regs, v.args.mem, v.slow.cfa, v.slow.desc,
		v.slow.state
	s.reg[r15] = v.slow.scratch // not the caller's, which is in its slot
	p.setSlot(s, slotCursor, v.walk.cursor)
	p.setSlot(s, slotPCs, v.walk.pcs)
	s.assume(p.t.eq(v.args.regs, p.t.con(0)), true)
	for i, r := range slowSaved {
		p.setSlot(s, slotSaved+8*int64(i), p.any[r])
	}
	return s
}

// rulesState is slowState behind the CFA: what the rules have found is in slotNew.
func (p *slowProof) rulesState(pc uint64) *state {
	s := p.slowState(pc)
	s.stack = append(s.stack, cell{frameBase + slotExact, 4, p.v.slow.exact})
	return s
}

// pastRules forgets the CFA, the mask and the place in the descriptor, which the end of the rules
// need not keep.
func (p *slowProof) pastRules(s *state) {
	for _, r := range [...]uint8{r12, r13, rBP} {
		s.reg[r] = p.t.variable("left by the rules", ^uint64(0))
	}
}

// keepsRules is keepsSlow behind the CFA.
func (p *slowProof) keepsRules(s *state) error {
	exact, _, _ := s.stack.read(p.x.t, frameBase+slotExact, 4)
	if err := p.require(s, want{"exact", exact, p.v.slow.exact}); err != nil {
		return err
	}
	return p.keepsSlow(s)
}

// slowSaved are the machine's registers that the slow path saves in the frame, from slotSaved on,
// and uses itself.
var slowSaved = [5]uint8{rBX, r12, r13, r14, r15}

// slowFrame returns the slots that stay as they are in the slow path. sync is the cursor:
// eh_elf_regs_t is up to date.
func (p *slowProof) slowFrame() *loop {
	w := p.v.walk
	l := unknown()
	l.first, l.regs, l.mem, l.slotBase, l.sync, l.left, l.next = w.first, w.regs, w.mem, w.slotBase, w.cursor, w.left,
		w.next
	return &l
}

// keepsSlow checks the invariant but for r12, r13 and rbp.
func (p *slowProof) keepsSlow(s *state) error {
	v := &p.v
	list := []want{{"rbx of the machine", s.reg[rBX], v.args.regs}, {"r14 of the machine", s.reg[r14], v.args.mem},
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
	list = append(list, want{"the caller's rbp", p.cellAt(s, -8), v.args.callerRBP})
	if len(s.outer) > 0 {
		return fmt.Errorf("%#x: inside a subroutine", s.pc)
	}
	return p.require(s, list...)
}

// fails checks a return after a step that fails in the slow path: only the status was written, and
// rax is the number of steps before.
func (p *slowProof) fails(e *ending, status term) error {
	if e.kind != endRet {
		return fmt.Errorf("%#x: not a return", e.pc)
	}
	v, ok := e.regs.only(abi.RegsStatus, 2)
	if !ok {
		return fmt.Errorf("%#x: a step that fails writes registers", e.pc)
	}
	return p.require(e.state, want{"the status", v, p.t.low(status, 2)},
		want{"the number of steps", e.reg[rAX], p.t.sub(p.v.walk.cursor, p.v.walk.first)})
}

// fromFast proves the way from a tail whose words are not all in the window to
// the descriptor, fromRow that from a row that is not fast: the registers go to
// memory unless they are there.
func (p *slowProof) fromFast(pc uint64) error { return p.from(pc, true) }
func (p *slowProof) fromRow(pc uint64) error  { return p.from(pc, false) }

// from proves the way to the descriptor in a walk, and what _eh_elf does there.
func (p *slowProof) from(pc uint64, fast bool) error {
	t, v := p.t, &p.v
	w := v.walk
	s := p.stateOf(&w, pc)
	s.reg[rDI], s.reg[r10] = v.slow.desc, v.slow.cfaHost
	s.assume(t.eq(v.args.regs, t.con(0)), true)
	err := p.run(s, p.stops(cutCFA), func(e *ending) error {
		if e.kind != endStop {
			return fmt.Errorf("%#x: no descriptor is read", e.pc)
		}
		p.owed.cfas.add(e.pc)
		// Registers that are already in memory are not written again; the path must have compared
		// the cursors.
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
		list := []want{{"the descriptor", e.reg[rBP], v.slow.desc}}
		if fast {
			list = append(list, want{"the CFA", e.reg[r12], t.sub(v.slow.cfaHost, w.delta)})
		}
		// The mask of valid registers is in memory by now; the slow path needs its callee-saved
		// part.
		// What is valid: in memory.
		valid, found, _ := e.regs.read(p.x.t, abi.RegsValid, 4)
		if !found {
			valid = v.old.valid
		}
		list = append(list, want{"the callee-saved registers that are valid", e.reg[r13],
			t.and(valid, t.con(uint64(abi.CalleeSaved)))})
		if err := p.require(e.state, list...); err != nil {
			return err
		}
		return p.keepsSlow(e.state)
	})
	if err != nil {
		return err
	}
	return p.step.from(pc, fast)
}

// cfa proves the reading of a descriptor's head: the CFA, or the step's failure.
func (p *slowProof) cfa(pc uint64) error {
	t, v := p.t, &p.v
	head := t.load(v.slow.desc, 1)
	d := newDescHead(t, v.slow.desc)
	s := p.slowState(pc)
	saved := t.and(v.old.valid, t.con(uint64(abi.CalleeSaved))) // a caller has no value yet but for rsp
	s.reg[r13] = saved
	m := p.x.may
	m.indices = append(m.indices[:1:1], index{d.reg, d.isReg})
	m.callTo, m.call = p.callExpr(d.code, d.aboveReg, noTerm), nil
	m.descEnd = func(s *state) int64 { return d.size(p.proof, s) }
	defer p.x.allow(m)()
	return p.run(s, p.stops(cutRule), func(e *ending) error {
		cfa, n, fail, err := p.cfaOn(e.state, d)
		if err != nil {
			return err
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
		p.owed.rules.add(e.pc)
		exact, _, _ := e.stack.read(p.x.t, frameBase+slotExact, 4)
		// rsp is valid (bit RSP) and has a value in slotNew (bit 32+RSP)
		state := t.or(saved, t.con(1<<abi.RSP|1<<(32+abi.RSP)))
		err = p.require(e.state, want{"the CFA", e.reg[r12], cfa}, want{"the descriptor", e.reg[rBP], t.plus(v.slow.desc, n)},
			want{"exact", exact, t.shrConst(head, 7)}, want{"the registers that are valid", e.reg[r13], state},
			want{"rsp of the caller", p.slot(e.state, slotNew+8*abi.RSP), cfa})
		if err != nil {
			return err
		}
		return p.keepsSlow(e.state)
	})
}

// descHead is the head of a descriptor as terms. Code compares the kind with descCFAReg, and may ask for
// equality or for more; one of the three conditions decides each kind.
type descHead struct {
	isGiven, isReg, aboveReg term // the kind is descCFAGiven, descCFAReg, above it: descCFAExpr
	reg, offset              term // operands of descCFAReg
	code                     term // operand of descCFAExpr
}

// newDescHead returns the head of the descriptor at desc.
func newDescHead(t *terms, desc term) descHead {
	field := func(off int64, size uint8) term { return t.load(t.plus(desc, off), size) }
	kind := t.and(field(0, 1), t.con(descSignal-1))
	return descHead{
		isGiven: t.eq(kind, t.con(descCFAGiven)), isReg: t.eq(kind, t.con(descCFAReg)),
		aboveReg: t.ult(t.con(descCFAReg), kind),
		reg:      field(1, 1), offset: field(2, 8), code: field(1, 4),
	}
}

// size returns how many bytes of the head a path may read, by what it knows of the kind: a register
// and an offset, an offset of code, or the first byte alone.
func (d *descHead) size(p *proof, s *state) int64 {
	if is, known := p.x.decide(s, d.isReg); known && is {
		return 10
	}
	if above, known := p.x.decide(s, d.aboveReg); known && above {
		return 5
	}
	return 1
}

// cfaOn returns the CFA on a path and the bytes of the descriptor's head; fail is the status if there is
// no CFA, or noTerm.
func (p *slowProof) cfaOn(s *state, d descHead) (cfa term, n int64, fail term, err error) {
	t, v := p.t, &p.v
	decided := func(c term, truth bool) bool {
		got, known := p.x.decide(s, c)
		return known && got == truth
	}
	neither := decided(d.isGiven, false) && decided(d.isReg, false)
	switch {
	case decided(d.isGiven, true):
		return v.slow.cfa, 1, noTerm, nil
	case decided(d.isReg, true):
		fail, err = p.unlessValid(s, t.and(d.reg, t.con(31)))
		return t.add(t.load(t.scaled(v.args.regs, d.reg, 8), 8), d.offset), 10, fail, err
	case neither && decided(d.aboveReg, true): // descCFAExpr
		if lost, err := p.holds(s, p.exprFails()); err != nil || lost {
			return v.slow.exprValue, 5, v.slow.exprStatus, err
		}
		return v.slow.exprValue, 5, noTerm, nil
	case neither && decided(d.aboveReg, false): // descCFAFromBP
		fail, err = p.unlessValid(s, t.con(abi.RBP))
		return v.slow.cfa, 1, fail, err
	}
	return noTerm, 0, noTerm, fmt.Errorf("%#x: reached by several kinds of CFA", s.pc)
}

// unlessValid returns the status of a step that needs a register if the path says that it is not valid, or noTerm.
func (p *slowProof) unlessValid(s *state, reg term) (term, error) {
	ok, err := p.holds(s, p.t.bit(p.v.old.valid, reg))
	if err == nil && !ok {
		return p.statusTerm(abi.StatusBadRegister), nil
	}
	return noTerm, err
}

// copies proves a round of the loop that copies values from slotNew to eh_elf_regs_t: one register
// of r13, the lowest, and r13 loses its bit. The first r13 has rsp (see cfa: no rule clears bit
// 39), so it is never empty.
func (p *slowProof) copies(pc uint64) error {
	t, v := p.t, &p.v
	s := p.rulesState(pc)
	m := p.x.may
	m.newKept = true
	defer p.x.allow(m)()
	p.pastRules(s)
	s.reg[r13] = v.slow.unset
	s.assume(t.eq(v.slow.unset, t.con(0)), true)
	rest := t.and(v.slow.unset, t.low(t.plus(v.slow.unset, -1), 4)) // v.unset without its lowest bit
	return p.run(s, p.stops(cutFinal, cutEnd), func(e *ending) error {
		if e.kind != endStop || len(e.regs) > 0 || len(e.event) != 1 || e.event[0].kind != evReg {
			return fmt.Errorf("%#x: not a copy of a register", e.pc)
		}
		i := t.firstBit(v.slow.unset)
		if err := p.require(e.state, want{"the register copied", e.event[0].addr, t.scaled(v.args.regs, i, 8)},
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
			p.owed.ends.add(e.pc)
		} else {
			p.owed.copies.add(e.pc)
		}
		return p.keepsRules(e.state)
	})
}

// end proves the end of a step of the slow path: exact, the pc, the next step.
func (p *slowProof) end(pc uint64) error {
	t, v := p.t, &p.v
	s := p.rulesState(pc)
	p.pastRules(s)
	m := p.x.may
	m.pcSlot = t.scaled(v.walk.pcs, v.walk.cursor, 8) // the one element of the pcs that may be written
	defer p.x.allow(m)()
	return p.run(s, p.stops(cutSlot, cutLoad), func(e *ending) error {
		exact, ok := e.regs.only(abi.RegsExact, 2)
		if e.kind != endStop || !ok || len(e.event) != 1 || e.event[0].kind != evPC {
			return fmt.Errorf("%#x: not the end of a step", e.pc)
		}
		if err := p.require(e.state, want{"exact", exact, v.slow.exact}, want{"the pc for the caller", e.event[0].v,
			v.old.regOf[abi.RIP]}); err != nil {
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
		// The last step of a segment: the cursor is 0.
		if !p.begins(e.pc, cutSlot) {
			return fmt.Errorf("%#x: not the end of a segment", e.pc)
		}
		p.owed.segmentEnds.add(e.pc)
		return p.matches(e.state, &l)
	})
}

// readWord proves the reading of a word of the target: from the window if all its
// bytes are inside, else by the callback, else not at all.
func (p *slowProof) readWord(pc uint64) error {
	t, v := p.t, &p.v
	s := p.newState(pc)
	s.reg[rSP] = p.x.sp
	s.frame.keep = p.any
	s.reg[r14] = v.args.mem
	s.frame.keep[r14] = v.args.mem
	s.stack = append(s.stack, cell{0, 8, v.args.ret})
	s.assume(t.eq(v.args.regs, t.con(0)), true) // it is called in the slow path
	r := wordRead{addr: s.reg[rSI], status: t.variable("status of read", 0xffffffff)}
	field := func(off int64) term { return t.load(t.plus(v.args.mem, off), 8) }
	r.size, r.off, r.bytes = field(abi.MemorySize), t.sub(r.addr, field(abi.MemoryLo)), field(abi.MemoryBytes)
	r.fn, r.arg = field(abi.MemoryRead), field(abi.MemoryArg)
	m := p.x.may
	m.limit = stackLimit - readDepth // what callRead has left of the limit
	m.callTo = func(s *state, to term) ([]*state, error) { return p.callback(s, to, &r) }
	defer p.x.allow(m)()
	return p.run(s, nil, func(e *ending) error {
		if e.kind != endRet || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a return", e.pc)
		}
		carry, ok := e.fl.condition(p.x.t, 2)
		if !ok {
			return fmt.Errorf("%#x: returns with a carry that is not known", e.pc)
		}
		inside, err := p.insideWindow(e.state, &r)
		if err != nil {
			return err
		}
		if inside {
			return p.readDirectly(e, &r, carry)
		}
		return p.readByCallback(e, &r, carry)
	})
}

// wordRead holds the terms of a word that is read.
type wordRead struct {
	addr, off       term // its address, and how far that is behind the window's begin
	size, bytes     term // of the window
	fn, arg, status term // the callback, its first argument, and what it returns
}

// callback does what the read callback does (docs/abi.md), having checked its arguments: its own
// first argument, the address, and a place for the word in the frame.
func (p *slowProof) callback(s *state, to term, r *wordRead) ([]*state, error) {
	t, v := p.t, &p.v
	offset := t.sub(s.reg[rDX], p.x.sp)
	k, ok := t.value(offset)
	rsp, err := p.x.stackOff(s)
	if err != nil || !ok || int64(k) < rsp || int64(k) > -8 || (rsp-8)&15 != 0 {
		return nil, fmt.Errorf("the callback gets a place at %s, rsp is %+d", t.text(offset), rsp)
	}
	if err := p.require(s, want{"the callback", to, r.fn}, want{"its first argument", s.reg[rDI], r.arg},
		want{"its address", s.reg[rSI], r.addr}); err != nil {
		return nil, err
	}
	if null, known := p.x.decide(s, t.eq(r.fn, t.con(0))); !known || null {
		return nil, fmt.Errorf("a call of a callback that may be null")
	}
	s.event = append(s.event, event{evAsked, r.addr, 8, v.slow.word})
	p.clobber(s)
	s.reg[rAX] = t.or(r.status, t.shlConst(t.variable("upper half", 0xffffffff), 32)) // an int
	s.stack = s.stack.write(p.x.t, int64(k), 8, v.slow.word)
	return []*state{s}, nil
}

// insideWindow returns whether a path has found that all 8 bytes of the word lie in the window; off
// wraps for an address below it.
func (p *slowProof) insideWindow(s *state, r *wordRead) (bool, error) {
	small, err := p.holds(s, p.t.ult(r.size, p.t.con(8)))
	if err != nil || small {
		return false, err
	}
	out, err := p.holds(s, p.t.ult(p.t.plus(r.size, -8), r.off))
	return !out, err
}

// readDirectly checks that the word comes from the window.
func (p *slowProof) readDirectly(e *ending, r *wordRead, carry lit) error {
	host := p.t.add(r.off, r.bytes)
	if len(e.event) != 1 || e.event[0].kind != evRead || e.event[0].size != 8 {
		return fmt.Errorf("%#x: not one read", e.pc)
	}
	if err := p.require(e.state, want{"the word", e.reg[rAX], p.t.load(host, 8)}, want{"where it is read", e.event[0].addr,
		host}); err != nil {
		return err
	}
	return p.carryIs(e, carry, false)
}

// readByCallback checks that the callback is asked once for the word, if there is one, and that carry says
// whether it fails.
func (p *slowProof) readByCallback(e *ending, r *wordRead, carry lit) error {
	if err := p.only(e.state, evAsked); err != nil {
		return fmt.Errorf("a read outside of the window: %w", err)
	}
	none, err := p.holds(e.state, p.t.eq(r.fn, p.t.con(0)))
	if err != nil {
		return err
	}
	if none {
		return p.carryIs(e, carry, true)
	}
	if len(e.event) != 1 {
		return fmt.Errorf("%#x: the callback is asked %d times for a word", e.pc, len(e.event))
	}
	if err := p.require(e.state, want{"the word", e.reg[rAX], p.v.slow.word}); err != nil {
		return err
	}
	if fails := literal(p.x.t, p.t.eq(r.status, p.t.con(0)), true); fails != carry {
		return p.mismatch(e.state, want{"carry", carry.term(p.x.t), fails.term(p.x.t)})
	}
	return nil
}

// carryIs checks that the carry is set, or clear, at the end of a path.
func (p *slowProof) carryIs(e *ending, carry lit, set bool) error {
	if got, known := p.x.decide(e.state, carry.t); !known || (got != carry.neg) != set {
		return fmt.Errorf("%#x: carry is not %v", e.pc, set)
	}
	return nil
}
