package prove

import (
	"bytes"
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// Where a path is cut: at instructions by which the parts of the code can be told. A
// cut is no claim. What a path meets there is proven to satisfy the invariant of that
// part, and the part is proven from its invariant on; a wrong cut makes a proof fail.
var (
	cutLoad = []byte{0x0f, 0x12, 0x6f, 0x18}                 // movlps 24(%rdi), %xmm5
	cutSlot = []byte{0x48, 0x83, 0x7c, 0x24, slotRegs, 0x00} // cmpq $0, slotRegs(%rsp)

	cutCFA    = []byte{0x0f, 0xb6, 0x45, 0x00}                                     // movzbl (%rbp), %eax
	cutRule   = []byte{0x0f, 0xb6, 0x4d, 0x00, 0x48, 0xff, 0xc5, 0x41, 0x89, 0xcf} // movzbl (%rbp), %ecx; inc %rbp; mov %ecx, %r15d
	cutFinal  = []byte{0x41, 0x0f, 0xbc, 0xc5}                                     // bsf %r13d, %eax
	cutEnd    = []byte{0x8b, 0x44, 0x24, slotExact}                                // mov slotExact(%rsp), %eax
	cutLookup = []byte{0x48, 0x3d}                                                 // cmp $imm32, %rax
	cutNear   = []byte{0x48, 0x83, 0xf8}                                           // cmp $imm8, %rax
	cutRead   = []byte{0x49, 0x8b, 0x4e, 0x08}                                     // mov 8(%r14), %rcx
)

func (p *prover) begins(pc uint64, with ...[]byte) bool {
	b := p.im.text(pc)
	for _, w := range with {
		if bytes.HasPrefix(b, w) {
			return true
		}
	}
	return false
}

// stops returns a function for run.
func (p *prover) stops(at ...[]byte) func(uint64) bool {
	return func(pc uint64) bool { return p.begins(pc, at...) }
}

// run runs a state and hands every ending to check, which must not keep it.
func (p *prover) run(s *state, stop func(uint64) bool, check func(e *ending) error) error {
	ends, err := p.x.run(s, stop)
	if err != nil {
		return err
	}
	for i := range ends {
		if err := check(&ends[i]); err != nil {
			return err
		}
		p.x.free = append(p.x.free, ends[i].state)
	}
	return nil
}

// entered returns a state at the first instruction of an exported function.
func (p *prover) entered(pc uint64) *state {
	s := p.newState(pc)
	s.reg[rSP] = p.x.sp
	s.reg[rBP] = p.v.callerRBP
	s.stack = append(s.stack, cell{0, 8, p.v.ret})
	return s
}

// walkEntry proves _eh_elf_walk up to the set-up of the registers: eh_elf_regs_t is
// untouched, and the invariant of a segment holds for step 0.
func (p *prover) walkEntry() error {
	return p.walkFrom(p.im.symbols[abi.SymbolWalk].Value, p.t.con(0))
}

func (p *prover) walkFrom(pc uint64, next term) error {
	t, v := p.t, &p.v
	s := p.entered(pc)
	s.reg[rDI], s.reg[rSI], s.reg[rDX], s.reg[rCX], s.reg[r8] = v.regs, v.mem, v.bias, v.pcsArg, v.max
	s.reg[r9] = v.next
	s.assume(t.eq(v.regs, t.con(0)), true) // whoever calls gives registers
	return p.run(s, p.stops(cutLoad), func(e *ending) error {
		if len(e.regs) > 0 && e.kind != endRet {
			return fmt.Errorf("%#x: registers are written before the first step", e.pc)
		}
		if err := p.only(e.state); err != nil {
			return err
		}
		noPCs, err := p.holds(e.state, t.eq(v.pcsArg, t.con(0)))
		if err != nil {
			return err
		}
		steps, left := v.max, noTerm
		end := t.scaled(v.pcsArg, v.max, 8)
		if noPCs {
			steps = p.segmentOf(v.max)
			left = t.sub(v.max, steps)
			end = p.ownPCs(steps)
		}
		if e.kind == endRet {
			if none, err := p.holds(e.state, t.eq(steps, t.con(0))); err != nil || !none {
				return fmt.Errorf("%#x: returns without a step: %v", e.pc, err)
			}
			return p.require(e.state, append(p.statusOnly(e.state, abi.StatusOK), want{"the number of steps", e.reg[rAX], t.con(0)})...)
		}
		cursor := t.neg(steps)
		return p.atLoad(e, &loop{
			rel: noTerm, mask: noTerm, base: noTerm, rsp: noTerm, delta: noTerm, rbp: noTerm, low: noTerm, high: noTerm, result: noTerm,
			place: [5]term{noTerm, noTerm, noTerm, noTerm, noTerm}, cursor: cursor, first: cursor, sync: cursor, pcs: end,
			regs: v.regs, mem: v.mem, slotBase: t.plus(v.bias, int64(p.base)+1), left: left, next: next,
		})
	})
}

// segmentOf returns the length of the next segment of so many steps left, where pcs go to
// the own frame: at most segment.
func (p *prover) segmentOf(left term) term {
	n := p.t.con(segment)
	return p.t.ite(p.t.ult(left, n), left, n)
}

// ownPCs returns the end of the pcs of a segment in the own frame.
func (p *prover) ownPCs(steps term) term {
	return p.t.scaled(p.t.plus(p.x.sp, frameBase+slotNew), steps, 8)
}

// atLoad checks what the set-up of the registers relies on, and that the cursor is
// not 0: a step is to be taken.
func (p *prover) atLoad(e *ending, l *loop) error {
	if e.kind != endStop {
		return fmt.Errorf("%#x: a jump to %s", e.pc, p.t.text(e.target))
	}
	p.loads.add(e.pc)
	if err := p.matches(e.state, l); err != nil {
		return err
	}
	if none, err := p.holds(e.state, p.t.eq(l.cursor, p.t.con(0))); err != nil || none {
		return fmt.Errorf("%#x: the cursor may be 0: %v", e.pc, err)
	}
	return p.require(e.state, want{"rdi", e.reg[rDI], p.v.regs}, want{"rsi", e.reg[rSI], p.v.mem})
}

// statusOnly says that only the status of eh_elf_regs_t was written.
func (p *prover) statusOnly(s *state, status abi.Status) []want {
	v, _, _ := p.x.readCell(s.regs, abi.RegsStatus, 2)
	for _, c := range s.regs {
		if c.off != abi.RegsStatus || c.size != 2 {
			v = noTerm
		}
	}
	if len(s.regs) == 0 {
		v = noTerm
	}
	return []want{{"the status", v, p.t.con(uint64(uint16(status)))}}
}

// load proves the set-up of the registers from eh_elf_regs_t: the invariant of a loop
// holds, with everything in memory up to date; or rsp or rip is not valid.
func (p *prover) load(pc uint64) error {
	t, v := p.t, &p.v
	w := v.walk
	s := p.stateOf(&loop{
		rel: noTerm, mask: noTerm, base: noTerm, rsp: noTerm, delta: noTerm, rbp: noTerm, low: noTerm, high: noTerm, result: noTerm,
		place: [5]term{noTerm, noTerm, noTerm, noTerm, noTerm}, cursor: w.cursor, first: w.first, sync: w.cursor, pcs: w.pcs,
		regs: v.regs, mem: v.mem, slotBase: w.base, left: v.left, next: v.next,
	}, pc)
	s.reg[rDI], s.reg[rSI] = v.regs, v.mem
	s.assume(t.eq(w.cursor, t.con(0)), true)
	s.assume(t.eq(v.regs, t.con(0)), true)
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
		p.lookups.add(e.pc)
		return p.loaded(e, masks)
	})
}

// loaded checks the invariant of a loop after the set-up. TestWindow proves of the
// windows named here that no step leaves them.
func (p *prover) loaded(e *ending, masks []uint64) error {
	t, v := p.t, &p.v
	l := v.walk
	field := func(off int64) term { return t.load(t.plus(v.mem, off), 8) }
	w := setWindow(t, field(abi.MemoryLo), field(abi.MemorySize), field(abi.MemoryBytes), v.regOf[abi.RSP])
	var win window
	outsideSize, err := p.holds(e.state, w.outsideSize)
	switch {
	case err != nil:
		return err
	case outsideSize:
		win = w.none
	default:
		high, err := p.holds(e.state, w.high)
		if err != nil {
			return err
		}
		if win = w.usual; high {
			// A file may have no window here, and the slow path all rows.
			if zero, known := p.x.decide(e.state, w.fromZero); known && zero {
				win = w.half
			} else {
				win = w.none
			}
		}
	}
	l.low, l.high, l.delta, l.rsp = win.low, win.high, win.delta, win.rsp
	l.mask = t.and(v.valid, t.con(inRegisters))
	l.sync = l.cursor
	inexact := t.ult(v.exactNow, t.con(1))
	l.rel = t.plus(t.sub(t.sub(v.regOf[abi.RIP], l.base), inexact), 1)
	for i, at := range placeOf {
		l.place[i] = v.regOf[at.dwarf]
	}
	valid, invalid := false, false
	for _, m := range masks {
		if m&needed != needed {
			return fmt.Errorf("%#x: goes on although rsp or rip is not valid", e.pc)
		}
		valid = valid || m&(1<<abi.RBP) != 0
		invalid = invalid || m&(1<<abi.RBP) == 0
	}
	l.rbp = v.regOf[abi.RBP]
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

// exit checks a return of _eh_elf_walk from a loop with a status: the number of steps,
// and eh_elf_regs_t. synced says that its registers are up to date and no longer in
// the machine's; otherwise the path decides.
func (p *prover) exit(e *ending, l *loop, synced bool, status abi.Status) error {
	t := p.t
	if e.kind != endRet {
		return fmt.Errorf("%#x: not a return", e.pc)
	}
	if err := p.only(e.state); err != nil {
		return err
	}
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

// inMemory says that eh_elf_regs_t has the registers of a loop.
func (p *prover) inMemory(s *state, l *loop, status term) []want {
	t := p.t
	list := []want{}
	add := func(what string, off int64, size uint8, v term) {
		got, found, err := p.x.readCell(s.regs, off, size)
		if !found || err != nil {
			got = noTerm
		}
		list = append(list, want{what + " in memory", got, v})
	}
	add("rip", 8*abi.RIP, 8, t.add(l.rel, l.base))
	add("rsp", 8*abi.RSP, 8, t.sub(l.rsp, l.delta))
	add("rbp", 8*abi.RBP, 8, l.rbp)
	for i, at := range placeOf {
		add(abi.RegName(at.dwarf), int64(8*at.dwarf), 8, l.place[i])
	}
	add("the mask of valid registers", abi.RegsValid, 4, l.mask)
	add("exact", abi.RegsExact, 2, t.con(0))
	if status != noTerm {
		add("the status", abi.RegsStatus, 2, status)
	}
	return list
}

// segmentEnd proves what follows the last step of a segment: the end, or, where pcs go
// to the own frame and steps are left, the next segment; in _eh_elf its end.
func (p *prover) segmentEnd(pc uint64) error {
	t, v := p.t, &p.v
	zero := t.con(0)
	inFrame := t.ult(t.plus(t.sub(v.walk.pcs, p.x.sp), -frameBase), t.con(416))
	for _, synced := range []bool{false, true} {
		for _, own := range []bool{false, true} { // where the pcs go
			l := v.walk
			l.cursor = zero
			from := l
			if synced {
				l.sync = zero
				from = loop{cursor: zero, first: l.first, sync: zero, pcs: l.pcs, regs: l.regs, mem: l.mem, slotBase: l.slotBase, left: l.left, next: l.next,
					rel: noTerm, mask: noTerm, base: noTerm, rsp: noTerm, delta: noTerm, rbp: noTerm, low: noTerm, high: noTerm, result: noTerm,
					place: [5]term{noTerm, noTerm, noTerm, noTerm, noTerm}}
			}
			s := p.stateOf(&from, pc)
			s.assume(t.eq(v.regs, zero), true)
			s.assume(inFrame, !own)
			if !synced {
				s.assume(t.eq(l.sync, zero), true)
			}
			err := p.run(s, p.stops(cutLoad), func(e *ending) error {
				if truth, known := p.x.decide(e.state, t.eq(p.segmentOf(v.left), zero)); known && truth {
					if none, known := p.x.decide(e.state, t.eq(v.left, zero)); known && !none {
						return nil // no such state: the smaller of left and segment is not 0
					}
				}
				if e.kind == endRet {
					if none, err := p.holds(e.state, t.eq(v.left, zero)); own && (err != nil || !none) {
						return p.mismatch(e.state, want{"steps left (not decided)", v.left, zero})
					}
					return p.exit(e, &l, synced, abi.StatusOK)
				}
				if none, err := p.holds(e.state, t.eq(v.left, zero)); !own || err != nil || none {
					return fmt.Errorf("%#x: goes on without steps left", e.pc)
				}
				if synced && len(e.regs) > 0 {
					return fmt.Errorf("%#x: registers are written twice", e.pc)
				}
				if !synced {
					if err := p.require(e.state, p.inMemory(e.state, &l, noTerm)...); err != nil {
						return err
					}
				}
				steps := p.segmentOf(v.left)
				cursor := t.neg(steps)
				if err := p.only(e.state); err != nil {
					return err
				}
				return p.atLoad(e, &loop{
					rel: noTerm, mask: noTerm, base: noTerm, rsp: noTerm, delta: noTerm, rbp: noTerm, low: noTerm, high: noTerm, result: noTerm,
					place: [5]term{noTerm, noTerm, noTerm, noTerm, noTerm}, cursor: cursor, first: t.sub(v.walk.first, steps), sync: cursor,
					pcs: p.ownPCs(steps), regs: v.regs, mem: v.mem, slotBase: v.walk.slotBase, left: t.sub(v.left, steps), next: v.next,
				})
			})
			if err != nil {
				return err
			}
		}
	}
	return p.stepDone(pc)
}

// stopped proves the end of a walk at a place that a lookup leads to.
func (p *prover) stopped(pc uint64, status abi.Status) error {
	t, v := p.t, &p.v
	s := p.stateOf(&v.walk, pc)
	s.assume(t.eq(v.regs, t.con(0)), true)
	err := p.run(s, nil, func(e *ending) error {
		if e.kind != endJump {
			if status == abi.StatusNoInfo {
				if chained, err := p.holds(e.state, t.eq(v.next, t.con(0))); err != nil || !chained {
					return fmt.Errorf("%#x: returns where another object may follow", e.pc)
				}
			}
			return p.exit(e, &v.walk, false, status)
		}
		// Other objects may follow.
		if chained, err := p.holds(e.state, t.eq(v.next, t.con(0))); status != abi.StatusNoInfo || err != nil || chained || e.target != v.next {
			return fmt.Errorf("%#x: a jump to %s", e.pc, t.text(e.target))
		}
		leave, ok := p.x.link(e.reg[r10])
		if !ok {
			return fmt.Errorf("%#x: nowhere to end the walk at", e.pc)
		}
		p.leaves.add(leave)
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
	return p.stepStop(pc, status)
}

// chainLeave proves the end of a walk that has left the object and found no other:
// the base is 0 then, and the pc a run-time address.
func (p *prover) chainLeave(pc uint64) error {
	l := p.v.walk
	l.base, l.slotBase = p.t.con(0), noTerm
	s := p.stateOf(&l, pc)
	s.assume(p.t.eq(p.v.regs, p.t.con(0)), true)
	return p.run(s, nil, func(e *ending) error { return p.exit(e, &l, false, abi.StatusNoInfo) })
}

// chainEntry proves _eh_elf_chain_1: _eh_elf_walk with where to go on at in r9, and
// two bytes after its begin, where another object's walk goes on.
func (p *prover) chainEntry() error {
	t, v := p.t, &p.v
	at := p.im.symbols[abi.SymbolChain].Value
	if err := p.walkFrom(at, v.next); err != nil {
		return err
	}
	l := v.walk
	s := p.stateOf(&l, at+abi.ChainNext)
	s.reg[r10], s.reg[rSI] = v.bias, p.any[rSI]
	return p.run(s, p.stops(cutLookup, cutNear), func(e *ending) error {
		if e.kind != endStop || len(e.regs) > 0 {
			return fmt.Errorf("%#x: not a lookup", e.pc)
		}
		p.lookups.add(e.pc)
		if err := p.only(e.state); err != nil {
			return err
		}
		l.base = t.plus(v.bias, int64(p.base)+1)
		l.slotBase, l.rel = l.base, t.sub(v.walk.rel, l.base)
		return p.matches(e.state, &l)
	})
}
