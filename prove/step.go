package prove

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
)

// This file proves _eh_elf, the step of one frame: its entry, its answers where a lookup stops or a
// row is done, and the two ways around the fast path: a nested walk, or the caller's callback.

// Flags of the context that _eh_elf returns for a row of the fast path: all four registers.
const (
	stepFlags = abi.ContextRIP | abi.ContextRSP | abi.ContextRBP | abi.ContextRBX
)

// stepProof proves _eh_elf, apart from lookups and rows.
type stepProof struct {
	*proof
	noDeref bool // it has no callback
}

// withContext lets code read the context given by value.
func (p *stepProof) withContext() permit {
	m := p.x.may
	// The permit of the moment, with the by-value context behind the return address.
	m.args = stackArgs
	return m
}

// context returns a field of the context given by value: psABI figure 3.4 puts it behind the return
// address.
func (p *stepProof) context(off int64) term { return p.t.load(p.t.plus(p.x.sp, 8+off), 8) }

// derefAt returns the word that the callback of _eh_elf gives for an address.
func (p *stepProof) derefAt(addr term) term {
	return p.t.make(termNode{op: tVec, a: addr, b: p.v.args.deref, k: vecDeref}, ^uint64(0))
}

// vecDeref is the operation of tVec for derefAt, see vecReadable.
const vecDeref = 2000

// aligned checks that rsp is a multiple of 16 at a call (psABI 3.2.2).
func (p *stepProof) aligned(s *state) error {
	// rsp is 8 modulo 16 at the entry; so its offset at a call must be, too.
	if off, err := p.x.stackOff(s); err != nil || off&15 != 8 {
		return fmt.Errorf("a call with the stack at %+d: %v", off, err)
	}
	return nil
}

// callDeref does what the callback does: any word for an address, the same one each time.
func (p *stepProof) callDeref(s *state, to term) ([]*state, error) {
	if to != p.v.args.deref || p.noDeref {
		return nil, fmt.Errorf("a call of %s", p.t.text(to))
	}
	// A call through a null pointer would end the process.
	if null, known := p.x.decide(s, p.t.eq(p.v.args.deref, p.t.con(0))); !known || null {
		return nil, fmt.Errorf("a call of a callback that may be null")
	}
	if err := p.aligned(s); err != nil {
		return nil, err
	}
	// The callback returns a word, and may change every register that a call may change.
	v := p.derefAt(s.reg[rDI])
	s.event = append(s.event, event{evDeref, s.reg[rDI], 8, v})
	p.clobber(s)
	s.reg[rAX] = v
	return []*state{s}, nil
}

// stepLoop returns the loop of _eh_elf at its one lookup: the pointer to registers is null,
// the cursor has not moved, and host addresses are the target's.
func (p *stepProof) stepLoop() loop {
	w := p.v.walk
	zero := p.t.con(0)
	w.regs, w.mem, w.delta, w.next, w.slotBase, w.result = zero, p.v.args.deref, zero, zero, p.v.args.pc, p.v.args.result
	w.first, w.left, w.mask = noTerm, noTerm, noTerm
	if p.noDeref {
		w.mem = noTerm // there is no third argument
	}
	w.sync = w.cursor
	for i := range w.home[1:] {
		w.home[i+1] = noTerm
	}
	return w
}

// entry proves _eh_elf up to its lookup, or a nested walk. Without a callback, or with a null one,
// the step reads the words itself in a window of the lower half of addresses; with one, the
// window's end is 0, so that every row calls back.
func (p *stepProof) entry() error {
	t, v := p.t, &p.v
	s := p.entered(p.im.dynamic.symbols[abi.SymbolStep].Value)
	s.reg[rDI], s.reg[rSI], s.reg[rDX] = v.args.result, v.args.pc, v.args.deref
	// The three arguments: where the result goes, the pc, the callback.
	n := &nested{p: p}
	m := p.withContext()
	m.callTo, m.call = p.callDeref, n.call
	defer p.x.allow(m)()
	return p.run(s, p.stops(cutLookup, cutNear), func(e *ending) error {
		// Paths through a nested walk end by themselves; the others end at the lookup.
		if i := stepOf(e.state); i >= 0 {
			return n.check(e, i)
		}
		if e.kind != endStop {
			return fmt.Errorf("%#x: not a lookup", e.pc)
		}
		if err := p.only(e.state); err != nil {
			return err
		}
		// The lookup there must be proven as well.
		p.owed.lookups.add(e.pc)
		l := p.stepLoop()
		l.rel = t.plus(v.args.pc, -int64(p.base))
		l.rsp, l.rbp = p.context(int64(abi.ContextRSPOff)), p.context(int64(abi.ContextRBPOff))
		// Without a callback the words are read directly: one step, in the lower half of addresses.
		l.low, l.pcs, l.base = noTerm, noTerm, noTerm
		direct := p.noDeref
		if !direct {
			var err error
			if direct, err = p.holds(e.state, t.eq(v.args.deref, t.con(0))); err != nil {
				return err
			}
		}
		if direct {
			l.cursor = t.con(^uint64(0)) // one step
			l.low, l.high, l.base = t.con(0), lowerHalf(t, l.rsp), t.con(0)
			l.pcs = p.ownPCs(t.con(1))
			l.home[0] = p.context(int64(abi.ContextRBXOff))
		} else {
			l.high, l.home[0] = t.con(0), noTerm
			l.cursor = e.reg[rDX]
		}
		l.sync = l.cursor
		return p.matches(e.state, &l)
	})
}

// results returns what was stored to the result, by offset; no two stores may overlap.
func (p *stepProof) results(e *ending) (map[int64]term, error) {
	if e.kind != endRet || e.reg[rAX] != p.v.args.result || len(e.regs) > 0 {
		return nil, fmt.Errorf("%#x: not a return with the result's address", e.pc)
	}
	// Each of the fields has 8 bytes; aligned stores of 8 bytes overlap only if they are of the
	// same field.
	out := map[int64]term{}
	for _, ev := range e.event {
		if ev.kind != evResult || ev.size != 8 {
			return nil, fmt.Errorf("%#x: an access at %s", e.pc, p.t.text(ev.addr))
		}
		off, _ := p.t.value(p.t.sub(ev.addr, p.v.args.result))
		if off%8 != 0 {
			return nil, fmt.Errorf("%#x: results overlap at %+d", e.pc, off)
		}
		out[int64(off)] = ev.v
	}
	return out, nil
}

// result8 returns the 8 bytes of the result at an offset, noTerm if they were not stored.
func (p *stepProof) result8(got map[int64]term, off uintptr) term {
	if v, ok := got[int64(off)]; ok {
		return v
	}
	return noTerm
}

// returns requires the result to be a caller's context.
func (p *stepProof) returns(e *ending, flags, rip, rsp, rbp, rbx term) error {
	got, err := p.results(e)
	if err != nil {
		return err
	}
	// A register without a value must not have been stored: noTerm.
	return p.require(e.state, want{"flags", p.result8(got, abi.ContextFlagsOff), flags},
		want{"rip", p.result8(got, abi.ContextRIPOff), rip},
		want{"rsp", p.result8(got, abi.ContextRSPOff), rsp}, want{"rbp", p.result8(got, abi.ContextRBPOff), rbp},
		want{"rbx", p.result8(got, abi.ContextRBXOff), rbx})
}

// stop proves what _eh_elf answers where a lookup leads to a stop: no register, and ContextError
// unless the stack ends there.
func (p *stepProof) stop(pc uint64, status abi.Status) error {
	defer p.x.allow(p.withContext())()
	l := p.stepLoop()
	flags := p.t.con(0)
	// Negative statuses are errors; the end of the stack is none.
	if status < 0 {
		flags = p.t.con(abi.ContextError)
	}
	return p.run(p.stateOf(&l, pc), nil, func(e *ending) error {
		return p.returns(e, flags, noTerm, noTerm, noTerm, noTerm)
	})
}

// done proves what _eh_elf answers when a tail has read the words directly.
func (p *stepProof) done(pc uint64) error {
	defer p.x.allow(p.withContext())()
	l := p.stepLoop()
	l.cursor, l.sync = p.t.con(0), p.t.con(^uint64(0))
	return p.run(p.stateOf(&l, pc), nil, func(e *ending) error {
		return p.returns(e, p.t.con(stepFlags), l.rel, l.rsp, l.rbp, l.home[0])
	})
}

// from proves what _eh_elf does where a walk goes to the slow path: it walks one step, or asks the callback by
// the bytes before the descriptor; see stepBytes.
func (p *stepProof) from(pc uint64, fast bool) error {
	v := &p.v
	l := p.stepLoop()
	s := p.stateOf(&l, pc)
	s.reg[rDI], s.reg[r10] = v.slow.desc, v.slow.cfaHost
	n := &nested{p: p}
	m := p.withContext()
	m.callTo, m.call = p.callDeref, n.call
	// Rows of the fast path have three bytes before the descriptor: where rip, rbp and rbx are
	// saved.
	if fast {
		m.descFrom = -3
	}
	defer p.x.allow(m)()
	return p.run(s, nil, func(e *ending) error {
		if i := stepOf(e.state); i >= 0 {
			return n.check(e, i)
		}
		// Other rows have no such bytes: only a walk knows them.
		if !fast {
			return fmt.Errorf("%#x: a row that is not fast, without a walk", e.pc)
		}
		return p.byCallback(e, &l)
	})
}

// byCallback checks the answer of _eh_elf that comes from the callback.
func (p *stepProof) byCallback(e *ending, l *loop) error {
	t, v, zero := p.t, &p.v, p.t.con(0)
	// a byte before the descriptor
	field := func(off int64) term { return t.load(t.plus(v.slow.desc, off), 1) }
	// the word there, in words from the CFA
	slot := func(off int64) term { return p.derefAt(t.scaled(v.slow.cfaHost, t.sext(field(off), 1), 8)) }
	// 0 as the place of the return address says that the row does not fit these bytes.
	if unfit, err := p.holds(e.state, t.eq(field(-3), zero)); err != nil || unfit {
		return fmt.Errorf("%#x: goes by bytes that do not fit: %v", e.pc, err)
	}
	value := func(off int64, same term) (term, error) { // 0 stands for the same value
		kept, err := p.holds(e.state, t.eq(t.sext(field(off), 1), zero))
		if err != nil || kept {
			return same, err
		}
		return slot(off), nil
	}
	rbp, err := value(-2, l.rbp)
	if err != nil {
		return err
	}
	rbx, err := value(-1, p.context(int64(abi.ContextRBXOff)))
	if err != nil {
		return err
	}
	results := e.event[:0:0]
	for i, ev := range e.event {
		switch {
		// Only the three words of the row may be asked for, each once.
		case ev.kind != evDeref:
			results = append(results, ev)
		case ev.v != slot(-3) && ev.v != rbp && ev.v != rbx:
			return fmt.Errorf("%#x: the callback is asked for %s", e.pc, t.text(ev.addr))
		case slices.Contains(e.event[:i], ev):
			return fmt.Errorf("%#x: the callback is asked twice for %s", e.pc, t.text(ev.addr))
		}
	}
	e.event = results
	return p.returns(e, t.con(stepFlags), slot(-3), v.slow.cfaHost, rbp, rbx)
}

// nested is the walk of one step that _eh_elf calls.
type nested struct {
	p      *stepProof
	valid  []term // index: number of the path; value: the mask that the walk leaves
	status []term
	regs   [][numRegs]term // the caller's registers, as the walk leaves them
	thunk  uint64          // the read callback given to the walk, proven once; 0: not seen yet
}

// stepOf returns which step a path belongs to, by the event of its nested walk; -1 if it has none.
func stepOf(s *state) int {
	for _, ev := range s.event {
		if ev.kind == evNested {
			return int(ev.v)
		}
	}
	return -1
}

// Events of steps beside those of state.go. The distance keeps the numbers apart.
const (
	evNested eventKind = 100 + iota
	evDeref            // the callback of _eh_elf is called
	evAsked            // the read callback is called
)

// call does what _eh_elf_walk does, having checked its arguments.
func (n *nested) call(s *state, to uint64) ([]*state, bool, error) {
	p := n.p
	// Any other call is run as code.
	if to != p.im.dynamic.symbols[abi.SymbolWalk].Value {
		return nil, false, nil
	}
	if stepOf(s) >= 0 {
		return nil, true, fmt.Errorf("a second walk")
	}
	buffers, err := n.buffers(s)
	if err != nil {
		return nil, true, err
	}
	if err := n.arguments(s, buffers); err != nil {
		return nil, true, err
	}
	if err := p.aligned(s); err != nil {
		return nil, true, err
	}
	n.answer(s, buffers)
	return []*state{s}, true, nil
}

// nestedBuffers is where a nested walk has its registers, its description of memory and its pc, from rsp at the entry.
type nestedBuffers struct{ regs, mem, pcs int64 }

// buffers returns the places of a nested walk's buffers. They are for the code to choose: apart from each other, so
// that none overwrites another, and below the return address.
func (n *nested) buffers(s *state) (buffers nestedBuffers, err error) {
	p := n.p
	rsp, err := p.x.stackOff(s)
	if err != nil {
		return buffers, err
	}
	for _, arg := range [3]struct {
		reg  uint8
		size int64
		into *int64
	}{{rDI, abi.RegsSize, &buffers.regs}, {rSI, abi.MemoryLen, &buffers.mem}, {rCX, 8, &buffers.pcs}} {
		off, ok := p.t.value(p.t.sub(s.reg[arg.reg], p.x.sp))
		// Between rsp and the return address.
		if *arg.into = int64(off); !ok || *arg.into < rsp || *arg.into > -arg.size {
			return buffers, fmt.Errorf("a walk gets a place at %s, rsp is %+d", p.t.text(s.reg[arg.reg]), rsp)
		}
	}
	apart := func(a, aSize, b, bSize int64) bool { return a+aSize <= b || b+bSize <= a }
	if !apart(buffers.regs, abi.RegsSize, buffers.mem, abi.MemoryLen) ||
		!apart(buffers.regs, abi.RegsSize, buffers.pcs, 8) || !apart(buffers.mem, abi.MemoryLen, buffers.pcs, 8) {
		return buffers, fmt.Errorf("a walk gets places that overlap")
	}
	return buffers, nil
}

// arguments checks what the walk is given: the context, one step, and a window of all memory, or none and the callback.
func (n *nested) arguments(s *state, buffers nestedBuffers) error {
	p := n.p
	t, v := p.t, &p.v
	// get reads what the code has stored on its stack; noTerm if nothing was stored there.
	get := func(off int64, size uint8) term {
		if v, ok, err := s.stack.read(p.x.t, off, size); ok && err == nil {
			return v
		}
		return noTerm
	}
	zero, size, read, arg := t.con(0), t.con(^uint64(0)), t.con(0), noTerm
	if !p.noDeref {
		// With a null callback the window has all memory: -(deref < 1), all ones or 0.
		size, arg = t.neg(t.ult(v.args.deref, t.con(1))), v.args.deref
		read = get(buffers.mem+abi.MemoryRead, 8)
		if n.thunk == 0 {
			n.thunk = n.thunkIn(read)
			if err := p.thunk(n.thunk); err != nil {
				return err
			}
		}
		if callback := t.ite(t.eq(v.args.deref, zero), zero, p.x.mapped(n.thunk)); read != callback {
			return p.mismatch(s, want{"the callback of the walk", read, callback})
		}
	}
	rip := p.context(int64(abi.ContextRIPOff))
	return p.require(s, []want{
		{"the bias", s.reg[rDX], t.sub(rip, v.args.pc)}, {"the number of steps", s.reg[r8], t.con(1)},
		{"rip", get(buffers.regs+8*abi.RIP, 8), rip},
		{"rsp", get(buffers.regs+8*abi.RSP, 8), p.context(int64(abi.ContextRSPOff))},
		{"rbp", get(buffers.regs+8*abi.RBP, 8), p.context(int64(abi.ContextRBPOff))},
		{"rbx", get(buffers.regs+8*abi.RBX, 8), p.context(int64(abi.ContextRBXOff))},
		{"valid", get(buffers.regs+abi.RegsValid, 4), t.con(1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP | 1<<abi.RBX)},
		{"lo", get(buffers.mem+abi.MemoryLo, 8), zero}, {"bytes", get(buffers.mem+abi.MemoryBytes, 8), zero},
		{"size", get(buffers.mem+abi.MemorySize, 8), size}, {"read", get(buffers.mem+abi.MemoryRead, 8), read},
		{"arg", get(buffers.mem+abi.MemoryArg, 8), arg},
		{"exact", get2(t, get, buffers.regs+abi.RegsExact), t.con(1)},
	}...)
}

// answer gives the walk's results new variables.
func (n *nested) answer(s *state, buffers nestedBuffers) {
	p := n.p
	t := p.t
	// The walk may leave any value: the proof must hold for all.
	i := len(n.valid)
	n.valid = append(n.valid, t.variable("valid after the walk", uint64(abi.AllRegs)))
	n.status = append(n.status, t.variable("status of the walk", 0xffff))
	n.regs = append(n.regs, [numRegs]term{})
	p.clobber(s)
	for r := range numRegs {
		n.regs[i][r] = p.word(abi.RegName(r) + " after the walk")
		s.stack = s.stack.write(p.x.t, buffers.regs+8*int64(r), 8, n.regs[i][r])
	}
	s.stack = s.stack.write(p.x.t, buffers.regs+abi.RegsValid, 4, n.valid[i])
	s.stack = s.stack.write(p.x.t, buffers.regs+abi.RegsExact, 2, t.variable("exact after the walk", 0xffff))
	s.stack = s.stack.write(p.x.t, buffers.regs+abi.RegsStatus, 2, n.status[i])
	s.stack = s.stack.write(p.x.t, buffers.pcs, 8, p.word("pc after the walk"))
	s.event = append(s.event, event{evNested, 0, 0, term(i)})
}

// get2 reads two bytes, also of four that were written together; noTerm if they are not known.
// A store of two fields of 2 bytes at once has both.
func get2(t *terms, get func(off int64, size uint8) term, off int64) term {
	if v := get(off, 4); v != noTerm {
		return t.low(v, 2)
	}
	return get(off, 2)
}

// thunkIn finds the address of the thunk in the callback's term.
func (n *nested) thunkIn(read term) uint64 {
	// The callback's term is the thunk's address itself, or a choice between 0 and it.
	for _, x := range []term{read, n.p.t.nodes[max(read, 0)].b, n.p.t.nodes[max(read, 0)].c} {
		if v, ok := n.p.x.link(max(x, 0)); ok {
			return v
		}
	}
	return 1 // no code
}

// check checks the answer of _eh_elf after walk i.
func (n *nested) check(e *ending, i int) error {
	p := n.p
	t := p.t
	status := t.low(t.sext(n.status[i], 2), 4)
	// A status other than 0 becomes a result without registers.
	ok, err := p.holds(e.state, t.eq(status, t.con(0)))
	if err != nil {
		return err
	}
	// The nested walk itself is no effect on the result.
	kept := e.event[:0:0]
	for _, ev := range e.event {
		if ev.kind != evNested {
			kept = append(kept, ev)
		}
	}
	e.event = kept
	if !ok {
		// Negative statuses have the sign bit: all ones after the shift, of which ContextError
		// remains.
		sign := t.low(t.shift(tSar, t.sext(status, 4), t.con(31)), 4)
		return p.returns(e, t.and(sign, t.con(abi.ContextError)), noTerm, noTerm, noTerm, noTerm)
	}
	flags := uint64(abi.ContextRIP)
	// A path for each set of valid registers: flags name those with a value.
	for _, f := range [...]struct{ reg, flag uint64 }{{abi.RSP, abi.ContextRSP}, {abi.RBP, abi.ContextRBP},
		{abi.RBX, abi.ContextRBX}} {
		valid, err := p.holds(e.state, t.bit(n.valid[i], t.con(f.reg)))
		if err != nil {
			return err
		}
		if valid {
			flags |= f.flag
		}
	}
	r := n.regs[i]
	return p.returns(e, t.con(flags), r[abi.RIP], r[abi.RSP], r[abi.RBP], r[abi.RBX])
}

// thunk proves the read callback that calls deref: it never fails.
func (p *stepProof) thunk(pc uint64) error {
	t, v := p.t, &p.v
	m := p.x.may
	m.call, m.args = nil, stackReturn // it has no arguments on the stack
	defer p.x.allow(m)()
	s := p.entered(pc)
	// A callback of C: its argument in rdi, the address in rsi, the place of the word in rdx.
	addr := s.reg[rSI]
	s.reg[rDI], s.reg[rDX] = v.args.deref, v.slow.word
	// With a null callback the walk has no thunk to call.
	s.assume(t.eq(v.args.deref, t.con(0)), true)
	return p.run(s, nil, func(e *ending) error {
		if e.kind != endRet || len(e.event) != 2 || e.event[0].kind != evDeref || e.event[1].kind != evWord {
			return fmt.Errorf("%#x: not the end of a read", e.pc)
		}
		return p.require(e.state, want{"the status", t.low(e.reg[rAX], 4), t.con(0)},
			want{"the address", e.event[0].addr, addr},
			want{"the word", e.event[1].v, p.derefAt(addr)})
	})
}
