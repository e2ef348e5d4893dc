package codeflow

import (
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// Bounds of a walk from a label: its instructions, how often they are interpreted, how far above rsp its ret takes the
// return address, and the instructions interpreted for all labels of a group, callees apart.
const (
	labelCode  = 512
	labelSteps = 4 * labelCode
	labelFrame = 1 << 20
	labelWork  = 1 << 21
	labelDepth = 3 // of calls that are followed
)

// slotValue is the first of the numbers that stand, as entry values, for words of the stack that were there at a label.
const slotValue = 32

// walk follows the code from a label to where it returns. States are relative to the label: base 0 is rsp there, and a register's entry
// value what it holds there.
type walk struct {
	f        *flow
	isolated bool
	depth    int // of calls
	code     map[uint64]*step
	todo     []uint64
	steps    int
	failed   bool

	frame       int32 // how far above rsp the return address is; -1 not seen yet
	proven      bool  // a path on which all calls come back goes there
	final       [16]Value
	ret         int32   // frame, as the walk before has shown; -1 in the first
	loads       []int32 // words that callee-saved registers are loaded from
	otherFrames []int32 // frame, by code that was reached otherwise
	high        int32   // how far above rsp it is at most, by jumps that lead elsewhere
	open        bool    // a path need not return
}

// step is an instruction of a walk with the state before it.
type step struct {
	in     x86.Inst
	s      State
	proven bool // a path leads here on which all calls come back
	todo   bool
}

// label gives the state at a label, to which nothing known leads, from the code that follows it: a ret takes the return address from where the CFA
// says that it is, and what a callee-saved register holds then is its caller's. It must not have been written by the code itself, as for a jump
// that is made with push and ret. All paths must agree, and one at least must return on which nothing is called, or only what always comes
// back: what follows another call need not belong to it.
//
// With alone it is not held against what is known of the code that it runs into.
func (f *flow) label(pc uint64, alone bool) (State, bool) {
	if f.beginner != nil || f.labels > labelWork {
		return State{}, false
	}
	bases := len(f.bases)
	defer func() { f.bases = f.bases[:bases] }()
	w := walk{f: f, isolated: alone, ret: -1}
	w.run(pc)
	w.again(pc)
	f.labels += w.steps
	if !w.shown() {
		return State{}, false
	}
	return w.state(), true
}

// shown reports whether the walk shows where the return address is.
func (w *walk) shown() bool {
	other := func(frame int32) bool { return frame != w.frame }
	return !w.failed && w.proven && w.frame >= 0 && w.high <= w.frame && !slices.ContainsFunc(w.otherFrames, other)
}

// comesBack reports whether a path from the entry of the function at pc leads to a ret, and none leaves otherwise. It may loop forever. The
// answer depends on the image and on the breaches known, not on who asks, so it is found once.
func (p *Program) comesBack(pc uint64, depth int) bool {
	if depth >= labelDepth {
		return false
	}
	at := callee{pc, depth}
	if back, ok := p.returns.Load(at); ok {
		return back.(bool)
	}
	f := &flow{p: p, parts: []part{{fn: &Function{}}}}
	w := walk{f: f, isolated: true, depth: depth + 1, ret: -1}
	w.run(pc)
	w.again(pc)
	back := w.shown() && w.frame == 0 && !w.open
	p.returns.Store(at, back)
	return back
}

// callee is a function that is called from code that is so many calls behind a label.
type callee struct {
	pc    uint64
	depth int
}

// state is the state at the label, as the walk shows it. A register that is loaded from another one need not be restored by that: it may be what
// the code returns to a caller that keeps to no convention either.
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

// again walks once more, now that the words are known from which registers are restored, and where the return address is.
func (w *walk) again(pc uint64) {
	if !w.failed && w.frame >= 0 {
		w.ret = w.frame
		w.run(pc)
	}
}

func (w *walk) run(pc uint64) {
	w.code, w.todo, w.failed, w.frame, w.proven = map[uint64]*step{}, w.todo[:0], false, -1, false
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
		at := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.code[at].todo = false
		if w.steps++; w.steps > labelSteps {
			w.failed = true
			return
		}
		w.step(at, w.code[at])
	}
}

// to brings a state to an instruction.
func (w *walk) to(pc uint64, s *State, sure bool) {
	at := w.code[pc]
	switch {
	case at == nil:
		at = &step{s: *s, proven: sure}
		if len(w.code) >= labelCode || w.f.p.img.Foreign(pc) || x86.Decode(w.f.p.img.Code(pc), &at.in) != nil {
			w.failed = true
			return
		}
		w.code[pc] = at
	case at.s.Regs[rsp] != s.Regs[rsp]:
		w.failed = true
		return
	default:
		if changed := at.s.meet(s); !changed && (at.proven || !sure) {
			return
		}
		at.proven = at.proven || sure
	}
	if !at.todo {
		at.todo = true
		w.todo = append(w.todo, pc)
	}
}

func (w *walk) step(pc uint64, at *step) {
	in, s, sure := &at.in, at.s, at.proven
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
		if w.f.callNever(pc, in) {
			w.open = true
			return
		}
		if in.Args[0].Kind != x86.KRel || !w.f.p.comesBack(in.Target(pc), w.depth) {
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
		if g := w.f.p.find(next); g >= 0 && w.f.p.fns[g].Lo == next {
			w.open = true // what came before did not come back
			return
		}
	}
	w.notes(in, &s)
	w.f.exec(pc, in, &s)
	w.to(next, &s, sure)
}

// meets notes where the return address is by what is known of the code that the walk runs into, if it was reached otherwise.
func (w *walk) meets(pc uint64, s *State) {
	f := w.f
	o := f.pos(pc)
	if w.isolated || o < 0 || f.lead[o] <= 0 || f.basis[f.lead[o]-1] != FromEntry {
		return
	}
	here, known := s.Regs[rsp], f.states[f.lead[o]-1].Regs[rsp]
	if here.Kind == Base && here.Reg == 0 && known.Kind == Base && known.Reg == 0 {
		w.otherFrames = append(w.otherFrames, here.Off-known.Off-8)
	}
}

// notes adds the word that an instruction loads a callee-saved register from.
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

// leave adds a return.
func (w *walk) leave(s *State, sure bool) {
	r := s.Regs[rsp]
	if r.Kind != Base || r.Reg != 0 || r.Off < 0 || r.Off%8 != 0 || r.Off > labelFrame || w.frame >= 0 && w.frame != r.Off || w.ret >= 0 && s.top() != entryOf(RA) {
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
	w.frame, w.proven = r.Off, w.proven || sure
}
