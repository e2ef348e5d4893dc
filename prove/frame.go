package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// newState returns a state at pc with the registers of an arbitrary caller: variables of which
// nothing is known. They are also what the function must keep for its caller.
func (p *proof) newState(pc uint64) *state {
	s := p.x.newState()
	s.pc, s.fl = pc, flags{}
	s.frame.ret = 0
	for i := range s.reg {
		s.reg[i] = p.any[i]
	}
	for i := range s.xmm {
		s.xmm[i] = [2]term{p.anyXMM[i][0], p.anyXMM[i][1]}
	}
	s.frame.keep = p.any
	s.frame.keep[rBP] = p.v.args.callerRBP
	return s
}

// setSlot puts a value into a slot of the frame, at an offset of layout.go; noTerm leaves it
// unknown.
func (p *proof) setSlot(s *state, slot int64, v term) {
	if v != noTerm {
		s.stack = append(s.stack, cell{frameBase + slot, 8, v})
	}
}

// inFrame adds the stack frame to a state: rsp below all slots, the return address at 0 and the
// pushed rbp at -8 from rsp at the entry.
func (p *proof) inFrame(s *state) *state {
	s.reg[rSP] = p.t.plus(p.x.sp, frameBase)
	s.stack = append(s.stack, cell{0, 8, p.v.args.ret}, cell{-8, 8, p.v.args.callerRBP})
	return s
}

// stateOf returns a state at pc in which a loop's invariant holds, and nothing else is known.
func (p *proof) stateOf(l *loop, pc uint64) *state {
	s := p.inFrame(p.newState(pc))
	for _, r := range [...]struct {
		reg uint8
		v   term
	}{{rAX, l.rel}, {rCX, l.mask}, {rDX, l.cursor}, {rSI, l.base}, {r8, l.pcs}, {r9, l.rsp}, {r11, l.delta},
		{rBP, l.rbp}} {
		if r.v != noTerm {
			s.reg[r.reg] = r.v
		}
	}
	for i, home := range homeOf {
		if l.home[i] != noTerm {
			s.xmm[home.xmm][home.half] = l.home[i]
		}
	}
	for _, slot := range l.slots() {
		p.setSlot(s, slot.off, slot.v)
	}
	return s
}

// want says that a value must be what is expected.
type want struct {
	what      string
	got, want term // noTerm in want: anything is right
}

// require checks that values are as wanted on a path. A want of noTerm holds always.
func (p *proof) require(s *state, list ...want) error {
	for _, w := range list {
		if w.want != noTerm && !p.same(s, w.got, w.want) {
			return p.mismatch(s, w)
		}
	}
	return nil
}

// same reports whether two values are equal on a path: the same term, or equal by the path's
// conditions. An unknown value equals only an unknown one.
func (p *proof) same(s *state, a, b term) bool {
	if a == b || a == noTerm || b == noTerm {
		return a == b
	}
	truth, known := p.x.decide(s, p.t.eq(a, b))
	return known && truth
}

// mismatch returns the error that a value is not what is wanted, with the conditions of the path.
func (p *proof) mismatch(s *state, w want) error {
	got := "unknown"
	if w.got != noTerm {
		got = p.t.text(w.got)
	}
	path := ""
	for _, c := range s.conds {
		not := ""
		if c.neg {
			not = "not "
		}
		path += ", " + not + p.t.text(c.t)
	}
	return fmt.Errorf("%#x: %s is %s, not %s%s", s.pc, w.what, got, p.t.text(w.want), path)
}

// slot returns the 8 bytes in a slot of the frame, noTerm if they are not known as a whole.
func (p *proof) slot(s *state, slot int64) term {
	v, found, err := s.stack.read(p.x.t, frameBase+slot, 8)
	if err != nil || !found {
		return noTerm
	}
	return v
}

// matches checks that a state satisfies a loop's invariant: registers, SSE registers, frame.
func (p *proof) matches(s *state, l *loop) error {
	list := [9 + len(homeOf)]want{
		{"rsp of the machine", s.reg[rSP], p.x.spAt(frameBase)},
		{"the pc looked up", s.reg[rAX], l.rel}, {"the mask of valid registers", s.reg[rCX], l.mask},
		{"the cursor", s.reg[rDX], l.cursor}, {"the base", s.reg[rSI], l.base}, {"the end of the pcs", s.reg[r8], l.pcs},
		{"rsp", s.reg[r9], l.rsp}, {"the distance to host addresses", s.reg[r11], l.delta}, {"rbp", s.reg[rBP], l.rbp},
	}
	for i, home := range homeOf {
		list[9+i] = want{abi.RegName(home.dwarf), s.xmm[home.xmm][home.half], l.home[i]}
	}
	if err := p.require(s, list[:]...); err != nil {
		return err
	}
	return p.keeps(s, l)
}

// keeps checks the frame of a state: the loop's slots, the caller's rbp, and the callee-saved
// registers of the machine, which the fast path does not touch. No subroutine may be open.
func (p *proof) keeps(s *state, l *loop) error {
	for _, slot := range l.slots() {
		if slot.v == noTerm {
			continue
		}
		if got := p.slot(s, slot.off); !p.same(s, got, slot.v) {
			return p.mismatch(s, want{fmt.Sprintf("slot %d of the frame", slot.off), got, slot.v})
		}
	}
	if v, ok, _ := s.stack.read(p.x.t, -8, 8); !ok || v != p.v.args.callerRBP {
		return fmt.Errorf("%#x: the caller's rbp is lost", s.pc)
	}
	for _, r := range calleeSaved {
		if r != rBP && s.reg[r] != s.frame.keep[r] {
			return p.mismatch(s, want{fmt.Sprintf("register %d of the machine", r), s.reg[r], s.frame.keep[r]})
		}
	}
	if len(s.outer) > 0 {
		return fmt.Errorf("%#x: inside a subroutine", s.pc)
	}
	return nil
}

// only checks that a path has no event but of the listed kinds: no other access to memory outside
// of the known objects.
func (p *proof) only(s *state, kinds ...eventKind) error {
next:
	for _, e := range s.event {
		for _, k := range kinds {
			if e.kind == k {
				continue next
			}
		}
		return fmt.Errorf("%#x: an access at %s", s.pc, p.t.text(e.addr))
	}
	return nil
}

// holds returns the truth of a condition on a path. It is an error if the path does not decide it.
func (p *proof) holds(s *state, c term) (bool, error) {
	truth, known := p.x.decide(s, c)
	if !known {
		return false, fmt.Errorf("%#x: reached without a decision on %s", s.pc, p.t.text(c))
	}
	return truth, nil
}

// entered returns a state at the first instruction of an exported function, as a caller reaches it:
// rsp at the return address.
func (p *proof) entered(pc uint64) *state {
	s := p.newState(pc)
	s.reg[rSP] = p.x.sp
	s.reg[rBP] = p.v.args.callerRBP
	s.stack = append(s.stack, cell{0, 8, p.v.args.ret})
	return s
}
