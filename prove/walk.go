package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// This file proves what lies around steps. A walk is one segment if its caller has an array for pcs. Otherwise pcs go
// to the own frame, and a segment is as long as that has room; between segments registers go to memory and come back.

// walkProof proves the parts of _eh_elf_walk and _eh_elf_chain_1 outside of steps: the entry, the
// set-up of the registers, the ends of segments and of the walk.
type walkProof struct {
	*proof
	step *stepProof // _eh_elf shares the code after a lookup
}

// entry proves _eh_elf_walk up to the set-up of the registers: eh_elf_regs_t is
// untouched, and the invariant of a segment holds for step 0.
func (p *walkProof) entry() error {
	return p.from(p.im.dynamic.symbols[abi.SymbolWalk].Value, p.t.con(0))
}

// from proves the same of a function that goes on at the address next when the walk leaves the
// object; 0: it returns.
func (p *walkProof) from(pc uint64, next term) error {
	t, v := p.t, &p.v
	s := p.entered(pc)
	s.reg[rDI], s.reg[rSI], s.reg[rDX], s.reg[rCX], s.reg[r8] = v.args.regs, v.args.mem, v.args.bias, v.args.pcsArg,
		v.args.max
	s.reg[r9] = v.args.next
	s.assume(t.eq(v.args.regs, t.con(0)), true) // whoever calls gives registers
	return p.run(s, p.stops(cutLoad), func(e *ending) error {
		if len(e.regs) > 0 && e.kind != endRet {
			return fmt.Errorf("%#x: registers are written before the first step", e.pc)
		}
		if err := p.only(e.state); err != nil {
			return err
		}
		noPCs, err := p.holds(e.state, t.eq(v.args.pcsArg, t.con(0)))
		if err != nil {
			return err
		}
		steps, left := v.args.max, noTerm
		end := t.scaled(v.args.pcsArg, v.args.max, 8)
		// The pcs go to the caller's array in one segment, or, if it is null, to the own frame in
		// segments of at most numRegs steps.
		if noPCs {
			steps = p.segmentOf(v.args.max)
			left = t.sub(v.args.max, steps)
			end = p.ownPCs(steps)
		}
		if e.kind == endRet {
			if none, err := p.holds(e.state, t.eq(steps, t.con(0))); err != nil || !none {
				return fmt.Errorf("%#x: returns without a step: %v", e.pc, err)
			}
			return p.require(e.state, append(p.statusOnly(e.state, abi.StatusOK),
				want{"the number of steps", e.reg[rAX], t.con(0)})...)
		}
		l := unknown()
		l.cursor, l.pcs = t.neg(steps), end
		l.first, l.sync = l.cursor, l.cursor
		l.regs, l.mem, l.slotBase, l.left, l.next = v.args.regs, v.args.mem, t.plus(v.args.bias, int64(p.base)+1), left, next
		return p.atLoad(e, &l)
	})
}

// load proves the set-up of the registers from eh_elf_regs_t: the invariant of a loop
// holds, with everything in memory up to date; or rsp or rip is not valid.
func (p *walkProof) load(pc uint64) error {
	t, v := p.t, &p.v
	w := v.walk
	from := unknown()
	from.cursor, from.first, from.sync, from.pcs = w.cursor, w.first, w.cursor, w.pcs
	from.regs, from.mem, from.slotBase, from.left, from.next = v.args.regs, v.args.mem, w.base, w.left, v.args.next
	s := p.stateOf(&from, pc)
	s.reg[rDI], s.reg[rSI] = v.args.regs, v.args.mem
	s.assume(t.eq(w.cursor, t.con(0)), true)
	s.assume(t.eq(v.args.regs, t.con(0)), true)
	return p.run(s, p.stops(cutLookup, cutNear), func(e *ending) error {
		masks, err := p.masks(e.state)
		if err != nil {
			return err
		}
		if e.kind == endRet {
			for _, m := range masks {
				if m&needed == needed {
					return fmt.Errorf("%#x: stops although rsp and rip are valid", e.pc)
				}
			}
			return p.exit(e, &w, true, abi.StatusBadRegister)
		}
		if e.kind != endStop || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a lookup", e.pc)
		}
		p.owed.lookups.add(e.pc)
		return p.loaded(e, masks)
	})
}

// loaded checks the invariant of a loop after the set-up, for the masks of valid registers
// that lead there.
func (p *walkProof) loaded(e *ending, masks []uint64) error {
	t, v := p.t, &p.v
	l := v.walk
	win, err := p.chosenWindow(e.state)
	if err != nil {
		return err
	}
	l.low, l.high, l.delta, l.rsp = win.low, win.high, win.delta, win.rsp
	l.mask = t.and(v.old.valid, t.con(inRegisters))
	l.sync = l.cursor
	// 1 if exact is 0: then the pc is a return address, and lookups use the byte before
	inexact := t.ult(v.old.exactNow, t.con(1))
	l.rel = t.plus(t.sub(t.sub(v.old.regOf[abi.RIP], l.base), inexact), 1)
	for i, home := range homeOf {
		l.home[i] = v.old.regOf[home.dwarf]
	}
	// The mask tells whether rbp is valid; one path must not mix both.
	valid, invalid := false, false
	for _, m := range masks {
		if m&needed != needed {
			return fmt.Errorf("%#x: goes on although rsp or rip is not valid", e.pc)
		}
		valid = valid || m&(1<<abi.RBP) != 0
		invalid = invalid || m&(1<<abi.RBP) == 0
	}
	l.rbp = v.old.regOf[abi.RBP]
	if invalid {
		l.rbp = t.sub(t.con(outside), l.delta)
	}
	if valid && invalid {
		return fmt.Errorf("%#x: reached with rbp valid and not", e.pc)
	}
	if err := p.only(e.state); err != nil {
		return err
	}
	return p.matches(e.state, &l)
}

// chosenWindow returns the window of the fast path that the set-up makes on a path, see windows.
// TestWindow proves of each window that no step leaves it.
func (p *walkProof) chosenWindow(s *state) (window, error) {
	t, v := p.t, &p.v
	field := func(off int64) term { return t.load(t.plus(v.args.mem, off), 8) }
	w := setWindow(t, field(abi.MemoryLo), field(abi.MemorySize), field(abi.MemoryBytes), v.old.regOf[abi.RSP])
	outsideSize, err := p.holds(s, w.outsideSize)
	if err != nil || outsideSize {
		return w.none, err
	}
	high, err := p.holds(s, w.high)
	if err != nil || !high {
		return w.usual, err
	}
	// A file may have no window here, and the slow path all rows.
	if zero, known := p.x.decide(s, w.fromZero); known && zero {
		return w.half, nil
	}
	return w.none, nil
}

// exit checks a return of _eh_elf_walk from a loop with a status: the number of steps,
// and eh_elf_regs_t. synced says that its registers are up to date and no longer in
// the machine's; otherwise the path decides.
func (p *walkProof) exit(e *ending, l *loop, synced bool, status abi.Status) error {
	t := p.t
	if e.kind != endRet {
		return fmt.Errorf("%#x: not a return", e.pc)
	}
	if err := p.only(e.state); err != nil {
		return err
	}
	// Registers are up to date in memory if the cursor has not moved since sync.
	if !synced {
		var err error
		if synced, err = p.holds(e.state, t.eq(l.cursor, l.sync)); err != nil {
			return err
		}
	}
	list := []want{{"the number of steps", e.reg[rAX], t.sub(l.cursor, l.first)}}
	if synced {
		return p.require(e.state, append(list, p.statusOnly(e.state, status)...)...)
	}
	return p.require(e.state, append(list, p.inMemory(e.state, l, t.con(uint64(uint16(status))))...)...)
}

// segmentEnd proves what follows the last step of a segment: the end, or, where pcs go
// to the own frame and steps are left, the next segment; in _eh_elf its end.
func (p *walkProof) segmentEnd(pc uint64) error {
	for _, synced := range []bool{false, true} { // eh_elf_regs_t is up to date
		for _, own := range []bool{false, true} { // the pcs go to the own frame
			if err := p.segmentEndOf(pc, synced, own); err != nil {
				return err
			}
		}
	}
	return p.step.done(pc)
}

// segmentEndOf proves the end of a segment for one of the four cases. l is what holds of the walk;
// from is what the code may rely on, less when the machine's registers were given up.
func (p *walkProof) segmentEndOf(pc uint64, synced, own bool) error {
	t, v := p.t, &p.v
	zero := t.con(0)
	l := v.walk
	l.cursor = zero
	from := l
	if synced {
		l.sync = zero
		from = unknown()
		from.cursor, from.first, from.sync, from.pcs = zero, l.first, zero, l.pcs
		from.regs, from.mem, from.slotBase, from.left, from.next = l.regs, l.mem, l.slotBase, l.left, l.next
	}
	s := p.stateOf(&from, pc)
	s.assume(t.eq(v.args.regs, zero), true)
	// whether the pcs' end lies in the own frame, below 416 bytes from its begin
	s.assume(t.ult(t.plus(t.sub(l.pcs, p.x.sp), -frameBase), t.con(416)), !own)
	if !synced {
		s.assume(t.eq(l.sync, zero), true)
	}
	steps := p.segmentOf(l.left)
	return p.run(s, p.stops(cutLoad), func(e *ending) error {
		if truth, known := p.x.decide(e.state, t.eq(steps, zero)); known && truth {
			if none, known := p.x.decide(e.state, t.eq(l.left, zero)); known && !none {
				return nil // no such state: the smaller of left and segment is not 0
			}
		}
		none, err := p.holds(e.state, t.eq(l.left, zero))
		if e.kind == endRet {
			if own && (err != nil || !none) {
				return p.mismatch(e.state, want{"steps left (not decided)", l.left, zero})
			}
			return p.exit(e, &l, synced, abi.StatusOK)
		}
		if !own || err != nil || none {
			return fmt.Errorf("%#x: goes on without steps left", e.pc)
		}
		return p.nextSegment(e, &l, synced)
	})
}

// nextSegment checks what the next segment of a walk begins with, after one that ended as l says.
func (p *walkProof) nextSegment(e *ending, l *loop, synced bool) error {
	t := p.t
	if synced && len(e.regs) > 0 {
		return fmt.Errorf("%#x: registers are written twice", e.pc)
	}
	if !synced {
		if err := p.require(e.state, p.inMemory(e.state, l, noTerm)...); err != nil {
			return err
		}
	}
	if err := p.only(e.state); err != nil {
		return err
	}
	steps := p.segmentOf(l.left)
	next := unknown()
	next.cursor, next.first, next.pcs = t.neg(steps), t.sub(l.first, steps), p.ownPCs(steps)
	next.sync = next.cursor
	next.regs, next.mem, next.slotBase, next.left, next.next = l.regs, l.mem, l.slotBase, t.sub(l.left, steps), l.next
	return p.atLoad(e, &next)
}

// stopped proves the end of a walk where a lookup leads to no row, or to a row that ends the stack:
// a return with the status, or for no information, in a chain, the jump to the next object.
func (p *walkProof) stopped(pc uint64, status abi.Status) error {
	t, v := p.t, &p.v
	s := p.stateOf(&v.walk, pc)
	s.assume(t.eq(v.args.regs, t.con(0)), true)
	err := p.run(s, nil, func(e *ending) error {
		if e.kind != endJump {
			if status == abi.StatusNoInfo {
				if chained, err := p.holds(e.state, t.eq(v.args.next, t.con(0))); err != nil || !chained {
					return fmt.Errorf("%#x: returns where another object may follow", e.pc)
				}
			}
			return p.exit(e, &v.walk, false, status)
		}
		// Other objects may follow.
		if chained, err := p.holds(e.state, t.eq(v.args.next, t.con(0))); status != abi.StatusNoInfo || err != nil ||
			chained || e.target != v.args.next {
			return fmt.Errorf("%#x: a jump to %s", e.pc, t.text(e.target))
		}
		leave, ok := p.x.link(e.reg[r10])
		if !ok {
			return fmt.Errorf("%#x: nowhere to end the walk at", e.pc)
		}
		p.owed.leaves.add(leave)
		l := v.walk
		l.rel, l.base = t.add(l.rel, l.base), noTerm
		if err := p.only(e.state); err != nil || len(e.regs) > 0 {
			return fmt.Errorf("%#x: registers are written: %v", e.pc, err)
		}
		return p.matches(e.state, &l)
	})
	if err != nil {
		return err
	}
	return p.step.stop(pc, status)
}

// chainLeave proves the end of a walk that has left the object and found no other:
// the base is 0 then, and the pc a run-time address.
func (p *walkProof) chainLeave(pc uint64) error {
	l := p.v.walk
	l.base, l.slotBase = p.t.con(0), noTerm
	s := p.stateOf(&l, pc)
	s.assume(p.t.eq(p.v.args.regs, p.t.con(0)), true)
	return p.run(s, nil, func(e *ending) error { return p.exit(e, &l, false, abi.StatusNoInfo) })
}

// chainEntry proves _eh_elf_chain_1: _eh_elf_walk with where to go on at in r9, and
// two bytes after its begin, where another object's walk goes on.
func (p *walkProof) chainEntry() error {
	t, v := p.t, &p.v
	addr := p.im.dynamic.symbols[abi.SymbolChain].Value
	if err := p.from(addr, v.args.next); err != nil {
		return err
	}
	l := v.walk
	s := p.stateOf(&l, addr+abi.ChainNext)
	s.reg[r10], s.reg[rSI] = v.args.bias, p.any[rSI]
	return p.run(s, p.stops(cutLookup, cutNear), func(e *ending) error {
		if e.kind != endStop || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a lookup", e.pc)
		}
		p.owed.lookups.add(e.pc)
		if err := p.only(e.state); err != nil {
			return err
		}
		l.base = t.plus(v.args.bias, int64(p.base)+1)
		l.slotBase, l.rel = l.base, t.sub(v.walk.rel, l.base)
		return p.matches(e.state, &l)
	})
}
