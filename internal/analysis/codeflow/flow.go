package codeflow

import (
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// flow interprets one group of functions at a time: the parts of a function that lie apart. Each worker has one and
// reuses it for its next group.
type flow struct {
	p        *Program
	beginner Beginner // may be nil

	listing // the code that was decoded
	tables  // where its indirect jumps lead
	merged  // the states at the beginnings of its blocks
	choices // what was chosen where paths contradict each other
	exports // what flows into other groups

	s, t, pt    State    // scratch of block, flowTo and pad: local variables would escape to the heap
	calls, outs []uint64 // scratch of sweep
	targets     []uint64 // scratch of readTable
}

// choices holds what a group's interpretation has chosen where the code does not prove it.
type choices struct {
	never  map[uint64]bool // calls taken not to return, since the code after them contradicts the state there
	newly  int             // of never, since the last beginning
	guess  bool            // a contradiction was resolved, so all states are Guessed
	own    map[uint64]bool // functions that begin as their row says, not as a call would, although their address is taken
	labels int             // instructions interpreted from labels
}

// exports holds the states that flow into other groups.
type exports struct {
	out  []delivery
	kept map[deliveryKey]int // index in the result of keep
}

// delivery is a state that flows into another function.
type delivery struct {
	to    uint64
	s     State
	basis Basis
	kind  edge
}

// maxCode bounds the bytes of code of a group: interpreting takes up to 400 bytes of memory per instruction, and more
// where each begins a block.
const maxCode = 4 << 20

// edge is the kind of a way from one function to another.
type edge uint8

const (
	edgeJump  edge = iota
	edgePad        // from a call to its landing pad
	edgeTable      // by an entry of a jump table
	edgeFall       // past the end
)

// begin prepares f for the functions of a group.
func (f *flow) begin(members []int) {
	f.listing.begin(f.p, members)
	f.tables.begin()
	f.merged.begin()
	f.out = f.out[:0]
}

// flowTo brings a state to the leader at an offset.
func (f *flow) flowTo(o int, s *State, basis Basis) {
	l := f.lead[o]
	if l <= 0 {
		f.states = append(f.states, *s)
		f.basis = append(f.basis, basis)
		f.soft = append(f.soft, f.softly)
		f.lead[o] = int32(len(f.states))
		f.enqueue(uint32(o))
		return
	}
	if f.softly && !f.soft[l-1] {
		return // the state of other code counts; label has compared the two
	}
	old := &f.states[l-1]
	// a weaker Basis counts only if its state describes another frame
	if basis > f.basis[l-1] && !old.sameFrame(s) {
		f.basis[l-1] = basis
		f.enqueue(uint32(o))
	}
	x, y := old.Regs[rsp], s.Regs[rsp]
	if f.comesFromElsewhere(o, x, s) {
		return
	}
	if x != y && x.Kind == Base && y.Kind == Base {
		pc := f.pc(o)
		f.conflict(pc, old, s)
		nv := baseAt(f.baseID(pc), 0)
		t := &f.t
		*t = *s
		changed := x != nv
		old.Regs[rsp], t.Regs[rsp] = nv, nv
		if changed {
			old.dropBase(nv.Reg)
			old.moved(x)
		}
		t.dropBase(nv.Reg)
		t.moved(y)
		if old.meet(t) || changed {
			f.enqueue(uint32(o))
		}
		return
	}
	if old.meet(s) {
		f.enqueue(uint32(o))
	}
}

// comesFromElsewhere reports whether a state s, which flows to an offset, belongs to another context there: rsp has a
// new base and no register gives the CFA, as at the end of a longjmp. The state that is there already has the value x
// in rsp, at a known distance from the CFA, and the row agrees with x. Then s does not count.
func (f *flow) comesFromElsewhere(o int, x Value, s *State) bool {
	if y := s.Regs[rsp]; x.Kind != Base || x.Reg != 0 || y.Kind != Base || y.Reg == 0 || f.beginner == nil {
		return false
	}
	if _, _, known := s.CFA(); known {
		return false
	}
	row, ok := f.beginner.Begin(f.pc(o))
	return ok && row.Regs[rsp] == x
}

// conflict handles two paths that meet with rsp at different distances from the CFA. Unless the frame pointer explains
// it, the call before pc, or before the padding there, is taken not to return.
func (f *flow) conflict(pc uint64, old, s *State) {
	x, y := old.Regs[rsp], s.Regs[rsp]
	if x.Reg != 0 || y.Reg != 0 {
		return
	}
	k, ok := f.prev(pc)
	for ok && f.ins[k].Op == x86.OpNOP && f.lead[f.pos(f.pcs[k])] == 0 {
		k, ok = f.prev(f.pcs[k])
	}
	if !ok || f.ins[k].Op != x86.OpCALL || f.callNever(f.pcs[k], &f.ins[k]) || f.newly >= 8 {
		return
	}
	if p, q := old.Regs[rbp], s.Regs[rbp]; p == q && p.Kind == Base && p.Reg == 0 && !f.rowExcludes(pc, k, old, s) {
		return // calls may leave arguments on the stack
	}
	if f.never == nil {
		f.never = map[uint64]bool{}
	}
	f.never[f.pcs[k]] = true
	f.newly++
}

// rowExcludes reports whether the row at pc says where rsp is, as one of two states does, and the call with index k
// before pc would leave it elsewhere.
func (f *flow) rowExcludes(pc uint64, k int32, old, s *State) bool {
	if f.beginner == nil {
		return false
	}
	row, ok := f.beginner.Begin(pc)
	r := row.Regs[rsp]
	if !ok || r.Kind != Base || r != old.Regs[rsp] && r != s.Regs[rsp] {
		return false
	}
	after, ok := f.stateAt(f.pcs[k])
	return ok && after.Regs[rsp].Kind == Base && after.Regs[rsp] != r
}

// flowPad merges a state into the landing pad at an offset. Of two stack pointers it keeps the higher: at the lower
// one, arguments are still on the stack.
func (f *flow) flowPad(o int, s *State, basis Basis) {
	if l := f.lead[o]; l > 0 && padMeet(&f.states[l-1], s) {
		f.enqueue(uint32(o))
	}
	f.flowTo(o, s, basis)
}

// padMeet gives the stack pointers of two states the higher of their values. It reports whether old changed.
func padMeet(old, s *State) (changed bool) {
	x, y := old.Regs[rsp], s.Regs[rsp]
	if x.Kind != Base || y.Kind != Base || x.Reg != y.Reg || x == y {
		return false
	}
	if x.Off > y.Off {
		s.Regs[rsp] = x
		s.moved(y)
		return false
	}
	old.Regs[rsp] = y
	old.moved(x)
	return true
}

// interpret runs the data flow until nothing changes. It terminates: every change replaces something known by something
// unknown. The bound limits the time that hostile code can take.
func (f *flow) interpret() {
	bound := 64*len(f.ins) + 1<<16
	for len(f.work) > 0 {
		o := f.dequeue()
		l := f.lead[o] - 1
		f.s = f.states[l]
		f.block(f.pc(int(o)), &f.s, f.basis[l], propagate, nil)
		if f.steps > bound {
			f.limit = true
			f.work = f.work[:0]
		}
	}
}

// Visit is called for each instruction with the state before it.
type Visit func(pc uint64, in *x86.Inst, s *State, basis Basis)

// phase says what block does with the states that it computes.
type phase uint8

const (
	propagate phase = iota // brings them to the leaders of the group
	handOver               // brings them to other groups, and notes how the function returns and where it leaves
	observe                // changes nothing
)

// block goes from a leader, with the state there, to the end of its block. It calls visit, if that is not nil, with the
// state before each instruction.
func (f *flow) block(pc uint64, s *State, basis Basis, ph phase, visit Visit) {
	p := f.partOf(pc)
	l := f.lead[int(pc-p.fn.Lo)+p.off]
	soft := l > 0 && f.soft[l-1]
	last := int32(0) // index of the instruction before
	for first := true; pc-p.fn.Lo < uint64(len(p.code)); first = false {
		o := int(pc-p.fn.Lo) + p.off
		// The next block begins: paths may meet there.
		if !first && f.lead[o] != 0 {
			if ph == propagate {
				f.flowTo(o, s, basis)
			}
			return
		}
		i := f.instAt[o]
		if i == 0 {
			return
		}
		in := &f.ins[i-1]
		f.steps++
		if visit != nil {
			visit(pc, in, s, basis)
		}
		before := s.Regs[rsp]
		switch classes[in.Op] {
		case classOther:
			if in.MemWrite || in.Writes&(1<<rsp) != 0 {
				f.other(pc, in, s)
			} else {
				s.clobber(in.Writes)
			}
		case classMov:
			f.mov(pc, in, s)
		case classAdd:
			f.add(pc, in, s)
		case classLea:
			f.lea(pc, in, s)
		case classPush:
			s.push(int32(in.OpSize), s.read(in))
		case classPop:
			f.pop(in, s)
		case classRare:
			f.rare(pc, in, s)
		// An exception leaves the call with its arguments still pushed, so the pad's state is that after the call.
		case classCall:
			if f.jumpsByCall(p, pc, in) {
				s.push(8, Value{})
				f.edge(p, in.Target(pc), s, basis, edgeJump, ph, soft)
				return
			}
			never := f.callNever(pc, in)
			f.call(pc, in, s)
			if c := p.site(pc); c != nil && (ph == propagate || ph == handOver && !soft) {
				f.pad(p, c, pc, pc+uint64(in.Len), s, basis, ph)
			}
			if never {
				return
			}
		case classBranch:
			s.clobber(in.Writes)
			to, on := s, s
			if !first && asksForChild(&f.ins[last], in) {
				to, on = f.cloned(pc, in, s)
			}
			f.edge(p, in.Target(pc), to, basis, edgeJump, ph, soft)
			if s = on; in.Op == x86.OpJCC && in.Cond == x86.CondNE {
				f.equal(pc, s)
			}
		case classXBegin:
			f.edge(p, in.Target(pc), s, basis, edgeJump, ph, soft)
			f.other(pc, in, s)
		// exit, on another stack, as at the end of a thread.
		case classSyscall:
			if r := s.Regs[rsp]; (r.Kind != Base || r.Reg != 0) && f.exitsBySyscall(pc) {
				return
			}
			f.other(pc, in, s)
		case classJump, classRet:
			f.leaveBlock(p, pc, in, s, basis, ph, soft)
			return
		default:
			return
		}
		if s.Regs[rsp] != before {
			s.moved(before)
		}
		pc += uint64(in.Len)
		last = i - 1
	}
	if pc == p.fn.Hi && ph == handOver {
		p.onward = append(p.onward, pc)
		if !soft {
			f.deliver(pc, s, basis, edgeFall)
		}
	}
}

// leaveBlock takes the state at a ret or a jump to where it goes.
func (f *flow) leaveBlock(p *part, pc uint64, in *x86.Inst, s *State, basis Basis, ph phase, soft bool) {
	if s.IsInitial() {
		s.leaveFrame()
	}
	if in.Op == x86.OpJMP && in.Args[0].Kind == x86.KRel {
		f.edge(p, in.Target(pc), s, basis, edgeJump, ph, soft)
		return
	}
	ret := in.Op == x86.OpRET
	if ph == propagate && (ret || len(f.table[pc]) == 0) {
		p.leaves(s, ret)
		p.returns = p.returns || ret && s.Regs[rsp] == baseAt(0, -8)
	}
	if ph == handOver && basis != Guessed && !soft {
		p.breach.atReturn(in, s, basis)
	}
	if ret {
		return
	}
	for _, t := range f.table[pc] {
		f.edge(p, t, s, basis, edgeTable, ph, soft)
	}
}

// leaves records an exit from the part by ret or jump. sure says that rsp points to the return address there.
func (p *part) leaves(s *State, sure bool) {
	if r := s.Regs[rsp]; r.Kind == Base && r.Reg == 0 {
		p.above = p.above || r.Off > -8
		p.level = p.level || sure && r.Off == -8
	} else if sure && r.Kind != Base && p.other {
		p.above = true // rsp comes from a register that the row names, as in libgcc's __avx_resms64x_18
	}
}

// edge takes the state at a jump to its target. A soft one, which follows from a label, stays in the group: the rest of
// the program knows better.
func (f *flow) edge(p *part, t uint64, s *State, basis Basis, kind edge, ph phase, soft bool) {
	if ph == handOver && t-p.fn.Lo >= uint64(len(p.code)) {
		p.onward = append(p.onward, t)
	}
	o := f.pos(t)
	if o >= 0 {
		if ph == propagate && f.lead[o] != 0 {
			f.flowTo(o, s, basis)
		}
		return
	}
	if ph == propagate && kind == edgeJump && f.p.called.has(t) {
		p.leaves(s, true)
	}
	if ph == handOver && !soft {
		f.deliver(t, s, basis, kind)
	}
}

// deliver records a state that flows into a function of another group, unless that has no use for it. A shared function
// uses even a state without a known frame: it shows that the other states are not the only ones.
func (f *flow) deliver(to uint64, s *State, basis Basis, kind edge) {
	g := f.p.find(to)
	if g < 0 || !f.p.fns[g].Shared && s.Regs[rsp].Kind != Base && s.Regs[rbp].Kind != Base {
		return
	}
	if kind == edgeFall {
		call, padded := f.endsInCall()
		if !f.p.fns[g].Shared || call && (!padded || s.Regs[rsp] != baseAt(0, -8) &&
			(f.p.isCalled(to) || f.p.img.pointed(to))) {
			return
		}
	}
	if kind == edgeJump && to == f.p.fns[g].Lo && f.p.callsOnly(g) && !s.IsInitial() {
		return // merge ignores it
	}
	f.out = append(f.out, delivery{to, *s, basis, kind})
}

// equal handles cmp %r,%rsp; jne at pc: where the jump is not taken, rsp equals r.
func (f *flow) equal(pc uint64, s *State) {
	k, ok := f.prev(pc)
	if !ok || f.ins[k].Op != x86.OpCMP || f.lead[f.pos(pc)] != 0 { // other code may come with other flags
		return
	}
	a, b := &f.ins[k].Args[0], &f.ins[k].Args[1]
	if !gpr64(a) || !gpr64(b) {
		return
	}
	if b.Reg == rsp {
		a, b = b, a
	}
	if a.Reg == rsp && s.Regs[b.Reg].Kind == Base {
		s.Regs[rsp] = s.Regs[b.Reg]
	}
}

// pad merges the state after a call into its landing pad. One in another group is handed over at once.
func (f *flow) pad(p *part, c *Site, pc, next uint64, s *State, basis Basis, ph phase) {
	o := f.pos(c.Pad)
	if o >= 0 && ph != propagate {
		return
	}
	f.pt = *s
	t := &f.pt
	if r := t.Regs[rsp]; r.Kind == Base {
		n := f.argsAt(p, pc, next)
		// GCC gives the size only at calls that may throw, but a call site may hold other calls too.
		if n > 0 && !t.savedBelow(r.Reg, r.Off+n) {
			t.move(n)
			t.moved(r)
		}
	}
	if o >= 0 {
		f.flowPad(o, t, basis)
	} else {
		f.deliver(c.Pad, t, basis, edgePad)
	}
}
