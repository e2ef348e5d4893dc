package codeflow

import (
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file is the data flow: states go from block to block until nothing changes, then once more to hand over what
// leaves the group and to show each instruction to the caller.

// flow interprets one group of functions at a time: the parts of a function that lie apart. Each worker has one and
// reuses it for its next group.
type flow struct {
	p    *Program
	rows Beginner // may be nil

	code   listing         // what was decoded
	cpu    machine         // executes it
	joins  joins           // the states at the beginnings of its blocks
	softly bool            // the states that flow now follow from a label
	steps  int             // instructions interpreted since begin
	labels int             // instructions interpreted from labels
	newly  int             // calls newly taken not to return, since begin
	guess  bool            // a contradiction was resolved, so all states are Guessed
	own    map[uint64]bool // functions that begin as their row says, not as a call would, although their address is taken
	out    []delivery      // states that flow into other groups

	s, t, pt      State    // scratch of block, flowTo and pad: local variables would escape to the heap
	callees, outs []uint64 // scratch of sweep
}

func newFlow(p *Program, rows Beginner) *flow {
	f := &flow{p: p, rows: rows, code: listing{p: p, rows: rows}}
	f.cpu.code = &f.code
	return f
}

// delivery is a state that flows into another function.
type delivery struct {
	to    uint64
	s     State
	basis Basis
	kind  edge
}

// maxCode bounds the bytes of code of a group, 4 MB: interpreting takes up to 400 bytes of memory per instruction, and
// more where each begins a block.
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
	f.code.begin(members)
	f.joins.begin()
	f.cpu.bases = f.cpu.bases[:0]
	f.steps = 0
	f.out = f.out[:0]
}

// flowTo brings a state to the leader at an offset.
func (f *flow) flowTo(o int, s *State, basis Basis) {
	l := f.code.lead[o]
	if l <= 0 {
		f.joins.states = append(f.joins.states, *s)
		f.joins.basis = append(f.joins.basis, basis)
		f.joins.soft = append(f.joins.soft, f.softly)
		f.code.lead[o] = int32(len(f.joins.states))
		f.joins.enqueue(uint32(o))
		return
	}
	if f.softly && !f.joins.soft[l-1] {
		return // the state of other code counts; label has compared the two
	}
	old := &f.joins.states[l-1]
	// a weaker Basis counts only if its state describes another frame
	if basis > f.joins.basis[l-1] && !old.sameFrame(s) {
		f.joins.basis[l-1] = basis
		f.joins.enqueue(uint32(o))
	}
	x, y := old.Regs[rsp], s.Regs[rsp]
	if f.comesFromElsewhere(o, x, s) {
		return
	}
	// Two paths with different stack pointers: one is never taken, or a call was taken to return that does not. Until
	// conflict finds out, rsp becomes a new base, so that distances from it stay right.
	if x != y && x.Kind == Base && y.Kind == Base {
		pc := f.code.pc(o)
		f.conflict(pc, old, s)
		nv := baseAt(f.cpu.baseID(pc), 0)
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
			f.joins.enqueue(uint32(o))
		}
		return
	}
	if old.meet(s) {
		f.joins.enqueue(uint32(o))
	}
}

// comesFromElsewhere reports whether a state s, which flows to an offset, belongs to another context there: rsp has a
// new base and no register gives the CFA, as at the end of a longjmp. The state that is there already has the value x
// in rsp, at a known distance from the CFA, and the row agrees with x. Then s does not count.
func (f *flow) comesFromElsewhere(o int, x Value, s *State) bool {
	if y := s.Regs[rsp]; x.Kind != Base || x.Reg != 0 || y.Kind != Base || y.Reg == 0 || f.rows == nil {
		return false
	}
	if _, _, known := s.CFA(); known {
		return false
	}
	row, ok := f.rows.Begin(f.code.pc(o))
	return ok && row.Regs[rsp] == x
}

// conflict handles two paths that meet with rsp at different distances from the CFA. Unless the frame pointer explains
// it, the call before pc, or before the padding there, is taken not to return.
func (f *flow) conflict(pc uint64, old, s *State) {
	x, y := old.Regs[rsp], s.Regs[rsp]
	if x.Reg != 0 || y.Reg != 0 {
		return
	}
	k, ok := f.code.prev(pc)
	for ok && f.code.ins[k].Op == x86.OpNOP && f.code.lead[f.code.pos(f.code.pcs[k])] == 0 {
		k, ok = f.code.prev(f.code.pcs[k])
	}
	// Each call that is found not to return costs a restart of the group; eight at a time are enough in practice, and
	// hostile code can't ask for more.
	if !ok || f.code.ins[k].Op != x86.OpCALL || f.code.callNever(f.code.pcs[k], &f.code.ins[k]) || f.newly >= 8 {
		return
	}
	if p, q := old.Regs[rbp], s.Regs[rbp]; p == q && p.Kind == Base && p.Reg == 0 && !f.rowExcludes(pc, k, old, s) {
		return // calls may leave arguments on the stack
	}
	if f.code.never == nil {
		f.code.never = map[uint64]bool{}
	}
	f.code.never[f.code.pcs[k]] = true
	f.newly++
}

// rowExcludes reports whether the row at pc says where rsp is, as one of two states does, and the call with index k
// before pc would leave it elsewhere. The row is a witness only where it agrees with one of the two paths.
func (f *flow) rowExcludes(pc uint64, k int32, old, s *State) bool {
	if f.rows == nil {
		return false
	}
	row, ok := f.rows.Begin(pc)
	r := row.Regs[rsp]
	if !ok || r.Kind != Base || r != old.Regs[rsp] && r != s.Regs[rsp] {
		return false
	}
	after, ok := f.stateAt(f.code.pcs[k])
	return ok && after.Regs[rsp].Kind == Base && after.Regs[rsp] != r
}

// flowPad merges a state into the landing pad at an offset. Of two stack pointers it keeps the higher: at the lower
// one, arguments are still on the stack.
func (f *flow) flowPad(o int, s *State, basis Basis) {
	if l := f.code.lead[o]; l > 0 && padMeet(&f.joins.states[l-1], s) {
		f.joins.enqueue(uint32(o))
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
// unknown. The bound limits the time that hostile code can take; states that were still to change then keep too much
// known.
func (f *flow) interpret() {
	bound := 64*len(f.code.ins) + 1<<16
	for len(f.joins.work) > 0 {
		o := f.joins.dequeue()
		l := f.code.lead[o] - 1
		f.s = f.joins.states[l]
		f.block(f.code.pc(int(o)), &f.s, f.joins.basis[l], propagate, nil)
		if f.steps > bound {
			f.joins.work = f.joins.work[:0]
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
	p := f.code.partOf(pc)
	l := f.code.lead[int(pc-p.fn.Lo)+p.off]
	soft := l > 0 && f.joins.soft[l-1]
	last := int32(0) // index of the instruction before
	for first := true; pc-p.fn.Lo < uint64(len(p.code)); first = false {
		o := int(pc-p.fn.Lo) + p.off
		// The next block begins: paths may meet there.
		if !first && f.code.lead[o] != 0 {
			if ph == propagate {
				f.flowTo(o, s, basis)
			}
			return
		}
		i := f.code.instAt[o]
		if i == 0 {
			return
		}
		in := &f.code.ins[i-1]
		f.steps++
		if visit != nil {
			visit(pc, in, s, basis)
		}
		before := s.Regs[rsp]
		switch classes[in.Op] {
		case classOther:
			if in.MemWrite || in.Writes&(1<<rsp) != 0 {
				f.cpu.other(pc, in, s)
			} else {
				s.clobber(in.Writes)
			}
		case classMov:
			f.cpu.mov(pc, in, s)
		case classAdd:
			f.cpu.add(pc, in, s)
		case classLea:
			f.cpu.lea(pc, in, s)
		case classPush:
			s.push(int32(in.OpSize), s.read(in))
		case classPop:
			f.cpu.pop(in, s)
		case classRare:
			f.cpu.rare(pc, in, s)
		// An exception leaves the call with its arguments still pushed, so the pad's state is that after the call.
		case classCall:
			if f.code.jumpsByCall(p, pc, in) {
				s.push(8, Value{})
				f.edge(p, in.Target(pc), s, basis, edgeJump, ph, soft)
				return
			}
			never := f.code.callNever(pc, in)
			f.cpu.call(pc, in, s)
			if c := p.site(pc); c != nil && (ph == propagate || ph == handOver && !soft) {
				f.pad(p, c, pc, pc+uint64(in.Len), s, basis, ph)
			}
			if never {
				return
			}
		// loop and jrcxz count in rcx, so their writes go before the states part.
		case classBranch:
			s.clobber(in.Writes)
			to, on := s, s
			if !first && asksForChild(&f.code.ins[last], in) {
				to, on = f.cpu.cloned(pc, in, s)
			}
			f.edge(p, in.Target(pc), to, basis, edgeJump, ph, soft)
			if s = on; in.Op == x86.OpJCC && in.Cond == x86.CondNE {
				f.equal(pc, s)
			}
		// An aborted transaction goes on at the target with the registers of its beginning (SDM Vol. 2, XBEGIN), rax
		// apart.
		case classXBegin:
			f.edge(p, in.Target(pc), s, basis, edgeJump, ph, soft)
			f.cpu.other(pc, in, s)
		// exit, on another stack, as at the end of a thread.
		case classSyscall:
			if r := s.Regs[rsp]; (r.Kind != Base || r.Reg != 0) && f.code.exitsBySyscall(pc) {
				return
			}
			f.cpu.other(pc, in, s)
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
	if ph == propagate && (ret || len(f.code.switches.table[pc]) == 0) {
		p.leaves(s, ret)
		p.returns = p.returns || ret && s.Regs[rsp] == baseAt(0, -8)
	}
	if ph == handOver && basis != Guessed && !soft {
		p.breach.atReturn(in, s, basis)
	}
	if ret {
		return
	}
	for _, t := range f.code.switches.table[pc] {
		f.edge(p, t, s, basis, edgeTable, ph, soft)
	}
}

// leaves records an exit from the part by ret or jump. sure says that rsp points to the return address there.
// popsReturn decides by it whether the part was rightly begun as after a call.
func (p *part) leaves(s *State, sure bool) {
	if r := s.Regs[rsp]; r.Kind == Base && r.Reg == 0 {
		p.above = p.above || r.Off > -8
		p.level = p.level || sure && r.Off == -8
	} else if sure && r.Kind != Base && p.other {
		p.above = true // rsp comes from a register that the row names, as in libgcc's __avx_resms64x_18
	}
}

// edge takes the state at a jump to its target: inside the group to the leader there, outside it to deliver. A soft
// one, which follows from a label, stays in the group: the rest of the program knows better.
func (f *flow) edge(p *part, t uint64, s *State, basis Basis, kind edge, ph phase, soft bool) {
	if ph == handOver && t-p.fn.Lo >= uint64(len(p.code)) {
		p.onward = append(p.onward, t)
	}
	o := f.code.pos(t)
	if o >= 0 {
		if ph == propagate && f.code.lead[o] != 0 {
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
		call, padded := f.code.endsInCall()
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

// equal handles cmp %r,%rsp; jne at pc: where the jump is not taken, rsp equals r. GCC's probe loop of
// -fstack-clash-protection ends so, and the distance of the whole loop is known behind it.
func (f *flow) equal(pc uint64, s *State) {
	k, ok := f.code.prev(pc)
	if !ok || f.code.ins[k].Op != x86.OpCMP || f.code.lead[f.code.pos(pc)] != 0 { // other code may come with other flags
		return
	}
	a, b := &f.code.ins[k].Args[0], &f.code.ins[k].Args[1]
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
	o := f.code.pos(c.Pad)
	if o >= 0 && ph != propagate {
		return
	}
	f.pt = *s
	t := &f.pt
	if r := t.Regs[rsp]; r.Kind == Base {
		n := f.code.argsAt(p, pc, next)
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
