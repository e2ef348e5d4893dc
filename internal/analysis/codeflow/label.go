package codeflow

import (
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file infers the frame at a label from the code after it, for code that only tables or registers lead to:
// libdav1d's assembly, interpreters, labels without rows.

// Bounds of walks from labels.
const (
	// Each bound ends a walk without an answer, so that the label has no state and no row: never with a wrong one.
	labelCode  = 512           // instructions of a walk
	labelSteps = 4 * labelCode // times that a walk interprets one
	labelFrame = 1 << 20       // distance from rsp at the label up to the return address, in bytes
	labelWork  = 1 << 21       // instructions interpreted for all labels of a group, without callees
	labelDepth = 3             // nested calls that are followed
)

// slotValue is the first entry value that stands for a word of the stack at a label, not for a register.
const slotValue = 32

// walk follows the code from a label to its returns. States are relative to the label: base 0 is rsp at the label, and
// the entry value of a register is its value there.
type walk struct {
	cpu    machine
	joins  *joins // what is known of code that the walk runs into; nil: to be ignored
	depth  int    // number of calls followed to get here
	code   map[uint64]*step
	todo   []uint64
	steps  int
	failed bool

	frame       int32 // distance from rsp at the label up to the return address; -1: no return seen yet
	certain     bool  // a path returns on which all calls are known to come back
	final       [16]Value
	ret         int32   // frame as found by the first walk; -1 during that walk
	loads       []int32 // stack offsets that callee-saved registers are loaded from
	otherFrames []int32 // values of frame that the known states of code on the way imply
	high        int32   // highest rsp at an indirect jump, from the label; the return address is not below
	open        bool    // a path may not return
}

// step is an instruction of a walk with the state before it. It takes some 500 bytes, so a walk has at most 250 KB.
type step struct {
	in      x86.Inst
	s       State
	certain bool // a path leads here on which all calls are known to come back
	todo    bool
}

// label infers the state at a label that no known code leads to, from the code after it. A ret shows where the return
// address is, and with it the CFA; at the ret, callee-saved registers hold the caller's values. A return address that
// the code itself has pushed does not count: that is a jump. All paths must agree. At least one path must return after
// no calls but those known to come back, since code after other calls may belong to another function.
//
// isolated says to ignore what is known of the code that the walk runs into.
func (f *flow) label(pc uint64, isolated bool) (State, bool) {
	if f.labels > labelWork {
		return State{}, false
	}
	w := walk{cpu: machine{code: &f.code}, joins: &f.joins, ret: -1}
	if isolated {
		w.joins = nil
	}
	w.run(pc)
	w.again(pc)
	f.labels += w.steps
	if !w.shown() {
		return State{}, false
	}
	return w.state(), true
}

// shown reports whether the walk shows where the return address is. An indirect jump with rsp above the return address
// contradicts the ret: the two can't be of one frame.
func (w *walk) shown() bool {
	other := func(frame int32) bool { return frame != w.frame }
	return !w.failed && w.certain && w.frame >= 0 && w.high <= w.frame && !slices.ContainsFunc(w.otherFrames, other)
}

// comesBack reports whether the function at pc has a path to a ret, and no path that leaves it in another way. The
// function may still loop forever. The answer depends only on the image and on p.breaks, so it is cached.
func (p *Program) comesBack(pc uint64, depth int) bool {
	if depth >= labelDepth {
		return false
	}
	key := callee{pc, depth}
	if back, ok := p.returns.Load(key); ok {
		return back.(bool)
	}
	w := walk{cpu: machine{code: &listing{p: p, parts: []part{{fn: &Function{}}}}}, depth: depth + 1, ret: -1}
	w.run(pc)
	w.again(pc)
	back := w.shown() && w.frame == 0 && !w.open
	p.returns.Store(key, back)
	return back
}

// callee is a function that a walk has reached through depth calls.
type callee struct {
	pc    uint64
	depth int
}

// state returns the state at the label that the walk has shown. A callee-saved register that ends with the value of
// another register does not count as restored: it may be a result, for a caller with its own convention.
func (w *walk) state() (s State) {
	s.Regs[rsp] = baseAt(0, -8-w.frame)
	s.put(0, -8, entryOf(RA))
	for h := range uint8(16) {
		v := w.final[h]
		switch {
		case CalleeSaved>>h&1 == 0 || v.Kind != Entry:
		case v.Reg == h:
			s.Regs[h] = v
		case v.Reg >= slotValue && w.loads[v.Reg-slotValue] < w.frame:
			s.put(0, w.loads[v.Reg-slotValue]-8-w.frame, entryOf(h))
		}
	}
	return s
}

// again walks a second time. The first walk has found where the return address is and from which words registers are
// restored; the second gives these words entry values.
func (w *walk) again(pc uint64) {
	if !w.failed && w.frame >= 0 {
		w.ret = w.frame
		w.run(pc)
	}
}

// run walks from the label at pc until no state changes.
func (w *walk) run(pc uint64) {
	w.code, w.todo, w.failed, w.frame, w.certain = map[uint64]*step{}, w.todo[:0], false, -1, false
	s := State{}
	for i := range s.Regs {
		s.Regs[i] = entryOf(uint8(i))
	}
	s.Regs[rsp] = baseAt(0, 0)
	if w.ret >= 0 {
		s.put(0, w.ret, entryOf(RA))
	}
	for k, off := range w.loads {
		s.put(0, off, Value{Kind: Entry, Reg: slotValue + uint8(k)})
	}
	w.to(pc, &s, true)
	for len(w.todo) > 0 && !w.failed {
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.code[next].todo = false
		if w.steps++; w.steps > labelSteps {
			w.failed = true
			return
		}
		w.step(next, w.code[next])
	}
}

// to merges a state into the one before the instruction at pc. Ways that meet with another rsp fail the walk: a loop
// that pushes, or data that decodes.
func (w *walk) to(pc uint64, s *State, sure bool) {
	st := w.code[pc]
	switch {
	case st == nil:
		st = &step{s: *s, certain: sure}
		if len(w.code) >= labelCode || w.cpu.code.p.img.Foreign(pc) || x86.Decode(w.cpu.code.p.img.Code(pc), &st.in) != nil {
			w.failed = true
			return
		}
		w.code[pc] = st
	case st.s.Regs[rsp] != s.Regs[rsp]:
		w.failed = true
		return
	default:
		if changed := st.s.meet(s); !changed && (st.certain || !sure) {
			return
		}
		st.certain = st.certain || sure
	}
	if !st.todo {
		st.todo = true
		w.todo = append(w.todo, pc)
	}
}

// step interprets the instruction at pc.
func (w *walk) step(pc uint64, st *step) {
	in, s, sure := &st.in, st.s, st.certain
	w.meets(pc, &s)
	next := pc + uint64(in.Len)
	switch in.Op {
	case x86.OpRET:
		w.leave(&s, sure)
		return
	case x86.OpJMP:
		if in.Args[0].Kind == x86.KRel {
			w.to(in.Target(pc), &s, sure)
			return
		}
		if r := s.Regs[rsp]; r.Kind == Base && r.Reg == 0 {
			w.high = max(w.high, r.Off)
		}
		w.open = true
		return
	case x86.OpJCC, x86.OpLOOP, x86.OpLOOPE, x86.OpLOOPNE, x86.OpJRCXZ, x86.OpXBEGIN:
		s.clobber(in.Writes)
		w.to(in.Target(pc), &s, sure)
		w.to(next, &s, sure)
		return
	case x86.OpCALL:
		if w.cpu.code.callNever(pc, in) {
			w.open = true
			return
		}
		if in.Args[0].Kind != x86.KRel || !w.cpu.code.p.comesBack(in.Target(pc), w.depth) {
			sure, w.open = false, true
		}
	case x86.OpSYSCALL, x86.OpSYSENTER, x86.OpINT, x86.OpVMCALL:
		sure, w.open = false, true
	default:
		if ends(in.Op) {
			w.open = true
			return
		}
	}
	if padding(in) && in.Op == x86.OpADD { // zeros
		w.failed = true
		return
	}
	if in.Op == x86.OpCALL || in.Op == x86.OpNOP {
		if g := w.cpu.code.p.find(next); g >= 0 && w.cpu.code.p.fns[g].Lo == next {
			w.open = true // a function begins after the call, so the call may not come back
			return
		}
	}
	w.notes(in, &s)
	w.cpu.exec(pc, in, &s)
	w.to(next, &s, sure)
}

// meets notes which frame the known state at pc implies, if other code leads there.
func (w *walk) meets(pc uint64, s *State) {
	if w.joins == nil {
		return
	}
	l := w.cpu.code
	o := l.pos(pc)
	if o < 0 || l.lead[o] <= 0 || w.joins.basis[l.lead[o]-1] != FromEntry {
		return
	}
	here, there := s.Regs[rsp], w.joins.states[l.lead[o]-1].Regs[rsp]
	if here.Kind == Base && here.Reg == 0 && there.Kind == Base && there.Reg == 0 {
		w.otherFrames = append(w.otherFrames, here.Off-there.Off-8)
	}
}

// notes adds to w.loads the stack word from which an instruction loads a callee-saved register.
func (w *walk) notes(in *x86.Inst, s *State) {
	a, top := &in.Args[0], s.Regs[rsp]
	if !gpr64(a) || CalleeSaved>>a.Reg&1 == 0 {
		return
	}
	base, off, ok := top.Reg, top.Off, false
	switch {
	case in.Op == x86.OpPOP:
		ok = top.Kind == Base
	case in.Op == x86.OpMOV && in.Args[1].Kind == x86.KMem:
		base, off, ok = s.addr(in)
	}
	if ok && base == 0 && off >= 0 && len(w.loads) < maxSlots-2 && !slices.Contains(w.loads, off) {
		w.loads = append(w.loads, off)
	}
}

// leave handles a ret in a state.
func (w *walk) leave(s *State, sure bool) {
	r := s.Regs[rsp]
	if r.Kind != Base || r.Reg != 0 || r.Off < 0 || r.Off%8 != 0 || r.Off > labelFrame || w.frame >= 0 &&
		w.frame != r.Off || w.ret >= 0 && s.top() != entryOf(RA) {
		w.failed = true
		return
	}
	for h := range w.final {
		if w.frame < 0 {
			w.final[h] = s.Regs[h]
		} else if w.final[h] != s.Regs[h] {
			w.final[h] = Value{}
		}
	}
	w.frame, w.certain = r.Off, w.certain || sure
}
