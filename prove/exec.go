package prove

import (
	"fmt"
	"slices"
)

// endKind says how a path ends.
type endKind uint8

const (
	endStop endKind = iota // at an address asked for
	endRet                 // returns from the function
	endJump                // jumps through a register or memory
)

// ending is the end of a path.
type ending struct {
	*state // the machine there
	kind   endKind
	target term // endJump: where to; else unset
}

// Bounds of a run, far above what any part of real code needs. A file that passes them is refused.
const (
	maxPathSteps = 4000 // instructions on one path between two cuts
	maxPaths     = 256  // paths of one run, finished ones included
)

// pathError is an error at an instruction of the code that was run.
type pathError struct {
	pc  uint64 // address of the file
	err error
}

func (e *pathError) Error() string { return fmt.Sprintf("at %#x: %v", e.pc, e.err) }
func (e *pathError) Unwrap() error { return e.err }

// run follows all paths from s up to the addresses that stop names, or to a return or indirect
// jump. The first instruction is run in any case, since a part's first instruction is usually a
// stop itself. The state s belongs to run from then on.
func (x *exec) run(s *state, stop func(pc uint64) bool) ([]ending, error) {
	var ends []ending
	work := []*state{s} // states whose paths are still to be followed, last in first out
	first := true
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		for n := 0; ; n++ {
			if !first && stop != nil && stop(s.pc) {
				ends = append(ends, ending{s, endStop, 0}) // a state at a stop has not run the instruction there
				break
			}
			first = false
			if n > maxPathSteps || len(work)+len(ends) > maxPaths {
				return nil, &pathError{s.pc, fmt.Errorf("the paths do not end")}
			}
			here := s.pc
			more, end, err := x.step(s)
			if err != nil {
				return nil, &pathError{here, err}
			}
			if end != nil {
				ends = append(ends, *end)
				break
			}
			if more != nil { // a branch: go on with the first, keep the others
				s = more[0]
				work = append(work, more[1:]...)
			}
		}
	}
	return ends, nil
}

// step runs one instruction of s. more, if not nil, are the states that take the place of s; end is
// not nil if the path ends here.
func (x *exec) step(s *state) (more []*state, end *ending, err error) {
	x.steps++
	i, ok := decode(x.code(s.pc))
	if !ok {
		return nil, nil, fmt.Errorf("no instruction of generated code")
	}
	if x.cover != nil {
		x.cover(s.pc, uint64(i.n))
	}
	// The unwind information of the code must be right before each instruction, where a signal may
	// come.
	if err := x.checkOwnRow(s); err != nil {
		return nil, nil, err
	}
	next := s.pc + uint64(i.n) // rip during the instruction
	switch i.op {
	case iJmp:
		s.pc = next + uint64(i.imm)
		return nil, nil, nil
	case iJcc:
		more, err := x.branch(s, &i, next)
		return more, nil, err
	case iCall:
		s.pc = next
		more, err := x.call(s, next+uint64(i.imm))
		return more, nil, err
	case iCallTo:
		s.pc = next // what an address relative to rip counts from
		to, err := x.read(s, &i, i.dst, 8)
		if err != nil {
			return nil, nil, err
		}
		if x.may.callTo == nil {
			return nil, nil, fmt.Errorf("a call of %s", x.t.text(to))
		}
		more, err := x.may.callTo(s, to)
		return more, nil, err
	case iRet:
		if len(s.outer) == 0 {
			return nil, &ending{s, endRet, 0}, x.checkReturn(s)
		}
		return nil, nil, x.ret(s)
	case iJmpTo:
		s.pc = next
		// The target stays a term; the caller decides which proven place it must be.
		to, err := x.read(s, &i, i.dst, 8)
		return nil, &ending{s, endJump, to}, err
	}
	s.pc = next
	// A change of rsp may have given up part of the stack.
	rsp := s.reg[rSP]
	if err := x.effect(s, &i); err != nil || s.reg[rSP] == rsp {
		return nil, nil, err
	}
	return nil, nil, x.moved(s)
}

// branch takes a conditional jump: to both places, if the path does not decide it.
func (x *exec) branch(s *state, i *inst, next uint64) (more []*state, err error) {
	l, ok := s.fl.condition(x.t, i.cc)
	if !ok {
		return nil, fmt.Errorf("a jump on a condition that is not known")
	}
	taken := next + uint64(i.imm)
	if truth, known := x.decide(s, l.t); known {
		if s.pc = next; truth != l.neg {
			// A condition that the path has decided before takes one way only; this keeps
			// impossible paths out.
			s.pc = taken
		}
		return nil, nil
	}
	// Both ways are possible: each state remembers the condition that it assumes.
	other := x.fork(s)
	s.pc, other.pc = next, taken
	s.assume(l.t, !l.neg)
	other.assume(l.t, l.neg)
	return []*state{s, other}, nil
}

// call does what the proof that runs now says of the callee, or goes on in it.
func (x *exec) call(s *state, to uint64) (more []*state, err error) {
	// A proof may replace the call by what the callee is proven to do.
	if x.may.call != nil {
		if more, done, err := x.may.call(s, to); done || err != nil {
			return more, err
		}
	}
	// Otherwise the callee is run as part of this path, with its own frame.
	if err := x.push(s, x.mapped(s.pc)); err != nil {
		return nil, err
	}
	ret, err := x.stackOff(s)
	if err != nil {
		return nil, err
	}
	s.outer = append(s.outer, s.frame)
	s.frame = callFrame{ret: ret, keep: s.reg}
	s.pc = to
	return nil, nil
}

// ret returns from a subroutine, which must have kept what its caller owns.
func (x *exec) ret(s *state) error {
	to, err := x.pop(s)
	if err != nil {
		return err
	}
	// The popped word must be the very address that call pushed.
	pc, ok := x.link(to)
	if !ok {
		return fmt.Errorf("a return to %s", x.t.text(to))
	}
	for _, r := range calleeSaved {
		if s.reg[r] != s.frame.keep[r] {
			return fmt.Errorf("a subroutine changes register %d", r)
		}
	}
	s.frame = s.outer[len(s.outer)-1]
	s.outer = s.outer[:len(s.outer)-1]
	s.pc = pc
	return x.moved(s)
}

// moved drops what lies below rsp, where a signal handler may overwrite it at any time (generated
// code has no red zone). rsp must stay at or below the return address.
func (x *exec) moved(s *state) error {
	off, err := x.stackOff(s)
	if err == nil && off > s.frame.ret {
		err = fmt.Errorf("the stack of a function is above its return address")
	}
	if err == nil {
		s.stack = slices.DeleteFunc(s.stack, func(c cell) bool { return c.off < off })
	}
	return err
}

// checkReturn checks what a function must preserve for its caller. Its return
// address is unchanged: nothing at or above rsp at the entry is written.
func (x *exec) checkReturn(s *state) error {
	if s.reg[rSP] != x.t.plus(x.sp, s.frame.ret) {
		return fmt.Errorf("returns with rsp %s", x.t.text(s.reg[rSP]))
	}
	for _, r := range calleeSaved {
		if s.reg[r] != s.frame.keep[r] {
			return fmt.Errorf("returns with register %d changed to %s", r, x.t.text(s.reg[r]))
		}
	}
	return nil
}

// checkOwnRow checks the row of the code's own unwind information at an instruction. The row must
// lead to the caller of the function, with the caller's registers.
func (x *exec) checkOwnRow(s *state) error {
	if x.ownRows == nil {
		return nil
	}
	row := x.ownRows(s.pc)
	if row == nil {
		return fmt.Errorf("no unwind information for this instruction")
	}
	cfa := s.frame.ret + 8 // the CFA is rsp before the call pushed the return address
	if s.reg[rSP] != x.spAt(cfa-row.cfa) {
		return fmt.Errorf("its own row says CFA = rsp%+d, rsp is %s", row.cfa, x.t.text(s.reg[rSP]))
	}
	for _, r := range calleeSaved {
		v := s.reg[r]
		// A register is at its saved place, or still in the machine's register.
		if slot := row.saved[r]; slot != 0 {
			var found bool
			if v, found, _ = s.stack.read(x.t, cfa+slot, 8); !found {
				v = noTerm
			}
		}
		if v != s.frame.keep[r] {
			return fmt.Errorf("its own row does not have the caller's register %d", r)
		}
	}
	return nil
}
