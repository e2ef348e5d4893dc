package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// The stack frame of the functions: offsets from rsp below the pushed registers, as
// the proof assumes them. It requires only that the code uses the same ones
// throughout.
const (
	slotFirst  = 0   // the cursor minus the number of steps taken
	slotLow    = 8   // lowest host address of the window
	slotRegs   = 16  // eh_elf_regs_t *; null in a step of _eh_elf
	slotMem    = 24  // eh_elf_memory_t *; in _eh_elf the callback
	slotBase   = 32  // load bias + base + 1; in _eh_elf the pc
	slotSync   = 40  // the cursor when eh_elf_regs_t was last up to date
	slotHigh   = 48  // one past the highest CFA
	slotLeft   = 56  // steps of later segments, where the caller wants no pcs
	slotResult = 64  // _eh_elf: where the result goes
	slotCursor = 72  // the cursor during the slow path; the pc in a packed lookup
	slotExact  = 80  // exact of the caller, during the slow path
	slotSaved  = 88  // the machine's registers during the slow path
	slotNew    = 128 // the caller's registers during the slow path
	slotExpr   = 264 // stack of an expression
	slotPCs    = 64  // end of the pcs during the slow path
	slotNext   = 408 // where the walk goes on when it leaves the object
	frameBase  = -(8 + 416)
	numRegs    = abi.NumRegs
	segment    = abi.NumRegs // pcs of a segment where the caller wants none
)

// Masks of registers by DWARF number.
const (
	needed      = uint64(1<<abi.RSP | 1<<abi.RIP)
	inRegisters = uint64(abi.CalleeSaved) | needed
	outside     = uint64(0xc000000000000000) // the host address of an invalid rbp, which no window of the fast path holds
)

// loop is the state of the machine between two steps, at a lookup. noTerm stands for
// what does not matter.
type loop struct {
	rel    term // the pc to look up, minus base
	mask   term // valid registers among inRegisters
	cursor term // minus the number of steps left in the segment
	base   term // load bias + base + 1
	pcs    term // where the segment's pcs end
	rsp    term // the target's rsp as a host address
	delta  term // host address - target address
	rbp    term
	place  [5]term // rbx, r12 to r15

	first, low, regs, mem, slotBase, sync, high, left, next, result term
}

// placeOf tells where the five registers of loop.place are.
var placeOf = [5]struct {
	xmm, half uint8
	dwarf     int
}{{5, 0, abi.RBX}, {3, 0, abi.R12}, {3, 1, abi.R13}, {4, 0, abi.R14}, {4, 1, abi.R15}}

func (l *loop) slots() [10]struct {
	off int64
	v   term
} {
	return [10]struct {
		off int64
		v   term
	}{{slotFirst, l.first}, {slotLow, l.low}, {slotRegs, l.regs}, {slotMem, l.mem}, {slotBase, l.slotBase}, {slotSync, l.sync},
		{slotHigh, l.high}, {slotLeft, l.left}, {slotNext, l.next}, {slotResult, l.result}}
}

// newState returns a state at pc inside the frame, with nothing known of registers.
func (p *prover) newState(pc uint64) *state {
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
	s.frame.keep[rBP] = p.v.callerRBP
	return s
}

func (p *prover) setSlot(s *state, slot int64, v term) {
	if v != noTerm {
		s.stack = append(s.stack, cell{frameBase + slot, 8, v})
	}
}

// inFrame adds the stack frame to a state.
func (p *prover) inFrame(s *state) *state {
	s.reg[rSP] = p.t.plus(p.x.sp, frameBase)
	s.stack = append(s.stack, cell{0, 8, p.v.ret}, cell{-8, 8, p.v.callerRBP})
	return s
}

// stateOf returns the state that a loop describes.
func (p *prover) stateOf(l *loop, pc uint64) *state {
	s := p.inFrame(p.newState(pc))
	for _, r := range [...]struct {
		reg uint8
		v   term
	}{{rAX, l.rel}, {rCX, l.mask}, {rDX, l.cursor}, {rSI, l.base}, {r8, l.pcs}, {r9, l.rsp}, {r11, l.delta}, {rBP, l.rbp}} {
		if r.v != noTerm {
			s.reg[r.reg] = r.v
		}
	}
	for i, at := range placeOf {
		if l.place[i] != noTerm {
			s.xmm[at.xmm][at.half] = l.place[i]
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
	got, want term
}

func (p *prover) require(s *state, list ...want) error {
	for _, w := range list {
		if w.want != noTerm && !p.same(s, w.got, w.want) {
			return p.mismatch(s, w)
		}
	}
	return nil
}

// same reports whether two values are equal on a path.
func (p *prover) same(s *state, a, b term) bool {
	if a == b || a == noTerm || b == noTerm {
		return a == b
	}
	truth, known := p.x.decide(s, p.t.eq(a, b))
	return known && truth
}

func (p *prover) mismatch(s *state, w want) error {
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

// slot returns what a slot of the frame holds.
func (p *prover) slot(s *state, slot int64) term {
	v, found, err := p.x.readCell(s.stack, frameBase+slot, 8)
	if err != nil || !found {
		return noTerm
	}
	return v
}

// matches checks that a state is what a loop describes.
func (p *prover) matches(s *state, l *loop) error {
	list := [9 + len(placeOf)]want{
		{"rsp of the machine", s.reg[rSP], p.x.spAt(frameBase)},
		{"the pc looked up", s.reg[rAX], l.rel}, {"the mask of valid registers", s.reg[rCX], l.mask},
		{"the cursor", s.reg[rDX], l.cursor}, {"the base", s.reg[rSI], l.base}, {"the end of the pcs", s.reg[r8], l.pcs},
		{"rsp", s.reg[r9], l.rsp}, {"the distance to host addresses", s.reg[r11], l.delta}, {"rbp", s.reg[rBP], l.rbp},
	}
	for i, at := range placeOf {
		list[9+i] = want{abi.RegName(at.dwarf), s.xmm[at.xmm][at.half], l.place[i]}
	}
	if err := p.require(s, list[:]...); err != nil {
		return err
	}
	return p.keeps(s, l)
}

// keeps checks the frame: its slots, what the caller of the function is owed.
func (p *prover) keeps(s *state, l *loop) error {
	for _, slot := range l.slots() {
		if slot.v == noTerm {
			continue
		}
		if got := p.slot(s, slot.off); !p.same(s, got, slot.v) {
			return p.mismatch(s, want{fmt.Sprintf("slot %d of the frame", slot.off), got, slot.v})
		}
	}
	if v, ok, _ := p.x.readCell(s.stack, -8, 8); !ok || v != p.v.callerRBP {
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

// only checks that a path has done nothing to memory but what is listed.
func (p *prover) only(s *state, kinds ...eventKind) error {
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

// holds is decide where the path must say.
func (p *prover) holds(s *state, c term) (bool, error) {
	truth, known := p.x.decide(s, c)
	if !known {
		return false, fmt.Errorf("%#x: reached without a decision on %s", s.pc, p.t.text(c))
	}
	return truth, nil
}
