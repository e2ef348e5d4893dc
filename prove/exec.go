package prove

import (
	"fmt"
	"slices"
)

// exec runs the file's instructions on terms. It follows every path and refuses
// everything else: an unknown instruction, a condition that is not a
// comparison, a store to anything but the objects below.
type exec struct {
	t     *terms
	code  func(pc uint64) []byte        // bytes of the text from pc on; nil outside
	data  func(at uint64, n int) []byte // n bytes of the read-only data; nil outside
	sp    term                          // rsp at the entry of the exported function
	image term                          // where address 0 of the file lies
	// walkRegs is null in a step of _eh_elf, which has neither registers nor memory described.
	walkRegs term
	objects  []pointer // variables that are addresses of objects

	regsField func(off int64, size uint8) term // what eh_elf_regs_t held before
	ownRows   func(pc uint64) *ownRow          // unwind information of the code itself; nil: none

	may   permit             // what the proof that runs now allows
	cover func(pc, n uint64) // see image.cover
	steps int                // instructions that were run

	spOffsets [stackLimit/8 + 8]term // what spAt has made, plus 1
	free      []*state               // states that are no longer used
}

// permit is what code may do in one proof and not in others.
type permit struct {
	// call is asked before a call: ok means that it has done what the callee does.
	call func(s *state, to uint64) (ends []*state, ok bool, err error)
	// callTo does what the callee of an indirect call does; nil: there may be none.
	callTo func(s *state, to term) ([]*state, error)

	limit int64 // bytes of stack below rsp at the entry
	args  int64 // bytes from there on that may be read: the return address, what is passed on the stack

	indices []index // terms that are numbers of registers
	pcSlot  term    // address of the pcs' next element, or noTerm
	newKept bool    // slotNew has values of the caller: it is written by index only

	first    term                 // what the first byte of a descriptor is taken to be, or noTerm
	descFrom int64                // where what may be read of a descriptor begins
	descEnd  func(s *state) int64 // where it ends; nil: after the first byte
}

// allow replaces what code may do. The function that it returns takes that back.
func (x *exec) allow(m permit) (restore func()) {
	before := x.may
	x.may = m
	return func() { x.may = before }
}

// object is what a variable points to.
type object uint8

const (
	objNone   object = iota
	objRegs          // eh_elf_regs_t, written and read
	objMemory        // eh_elf_memory_t, read
	objDesc          // descriptor of a row, read
	objResult        // unwind_context_t to be returned, written
	objWord          // where a callback leaves a word, written
)

// pointer is a variable that is the address of an object.
type pointer struct {
	v    term
	kind object
}

// index is a term that is the number of a register where a condition holds.
type index struct{ v, where term }

func (x *exec) objectOf(v term) object {
	for i := range x.objects {
		if x.objects[i].v == v {
			return x.objects[i].kind
		}
	}
	return objNone
}

type endKind uint8

const (
	endStop endKind = iota // at an address asked for
	endRet                 // returns from the function
	endJump                // jumps through a register or memory
)

// ending is the end of a path.
type ending struct {
	*state
	kind   endKind
	target term
}

const (
	maxPathSteps = 4000
	maxPaths     = 256
)

type pathError struct {
	pc  uint64
	err error
}

func (e *pathError) Error() string { return fmt.Sprintf("at %#x: %v", e.pc, e.err) }
func (e *pathError) Unwrap() error { return e.err }

// run follows all paths from s up to the addresses that stop names. The first
// instruction is run in any case.
func (x *exec) run(s *state, stop func(pc uint64) bool) ([]ending, error) {
	var ends []ending
	work := []*state{s}
	first := true
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		for n := 0; ; n++ {
			if !first && stop != nil && stop(s.pc) {
				ends = append(ends, ending{s, endStop, 0})
				break
			}
			first = false
			if n > maxPathSteps || len(work)+len(ends) > maxPaths {
				return nil, &pathError{s.pc, fmt.Errorf("the paths do not end")}
			}
			at := s.pc
			more, end, err := x.step(s)
			if err != nil {
				return nil, &pathError{at, err}
			}
			if end != nil {
				ends = append(ends, *end)
				break
			}
			if more != nil {
				s = more[0]
				work = append(work, more[1:]...)
			}
		}
	}
	return ends, nil
}

// step runs one instruction. more, if not nil, are the states that take the place of s.
func (x *exec) step(s *state) (more []*state, end *ending, err error) {
	x.steps++
	i, ok := decode(x.code(s.pc))
	if !ok {
		return nil, nil, fmt.Errorf("no instruction of generated code")
	}
	if x.cover != nil {
		x.cover(s.pc, uint64(i.n))
	}
	if err := x.checkOwnRow(s); err != nil {
		return nil, nil, err
	}
	next := s.pc + uint64(i.n)
	if i.op == iJmpTo || i.op == iCallTo {
		s.pc = next // what an address relative to rip counts from
	}
	switch i.op {
	case iJmp:
		s.pc = next + uint64(i.imm)
		return nil, nil, nil
	case iJcc:
		l, ok := x.condition(s.fl, i.cc)
		if !ok {
			return nil, nil, fmt.Errorf("a jump on a condition that is not known")
		}
		taken := next + uint64(i.imm)
		if truth, known := x.decide(s, l.t); known {
			if s.pc = next; truth != l.neg {
				s.pc = taken
			}
			return nil, nil, nil
		}
		other := x.fork(s)
		s.pc, other.pc = next, taken
		s.assume(l.t, !l.neg)
		other.assume(l.t, l.neg)
		return []*state{s, other}, nil, nil
	case iCall:
		s.pc = next
		to := next + uint64(i.imm)
		if x.may.call != nil {
			if more, done, err := x.may.call(s, to); done || err != nil {
				return more, nil, err
			}
		}
		if err := x.push(s, x.place(next)); err != nil {
			return nil, nil, err
		}
		ret, err := x.stackOff(s)
		if err != nil {
			return nil, nil, err
		}
		s.outer = append(s.outer, s.frame)
		s.frame = callFrame{ret: ret, keep: s.reg}
		s.pc = to
		return nil, nil, nil
	case iCallTo:
		to, err := x.read(s, &i, i.dst, 8)
		if err != nil {
			return nil, nil, err
		}
		if x.may.callTo == nil {
			return nil, nil, fmt.Errorf("a call of %s", x.t.text(to))
		}
		s.pc = next
		more, err := x.may.callTo(s, to)
		return more, nil, err
	case iRet:
		if len(s.outer) == 0 {
			return nil, &ending{s, endRet, 0}, x.checkReturn(s)
		}
		to, err := x.pop(s)
		if err != nil {
			return nil, nil, err
		}
		pc, ok := x.link(to)
		if !ok {
			return nil, nil, fmt.Errorf("a return to %s", x.t.text(to))
		}
		for _, r := range calleeSaved {
			if s.reg[r] != s.frame.keep[r] {
				return nil, nil, fmt.Errorf("a subroutine changes register %d", r)
			}
		}
		s.frame = s.outer[len(s.outer)-1]
		s.outer = s.outer[:len(s.outer)-1]
		s.pc = pc
		return nil, nil, x.moved(s)
	case iJmpTo:
		to, err := x.read(s, &i, i.dst, 8)
		return nil, &ending{s, endJump, to}, err
	}
	s.pc = next
	rsp := s.reg[rSP]
	if err := x.effect(s, &i); err != nil || s.reg[rSP] == rsp {
		return nil, nil, err
	}
	return nil, nil, x.moved(s)
}

// moved forgets what lies below rsp, where a signal may come at any time. The return address
// stays above.
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

// spAt is rsp at the entry plus an offset.
func (x *exec) spAt(off int64) term {
	i := (off + stackLimit) / 8
	if off%8 != 0 || i < 0 || i >= int64(len(x.spOffsets)) {
		return x.t.plus(x.sp, off)
	}
	if x.spOffsets[i] == 0 {
		x.spOffsets[i] = x.t.plus(x.sp, off) + 1
	}
	return x.spOffsets[i] - 1
}

// stackOff returns rsp minus rsp at the entry.
func (x *exec) stackOff(s *state) (int64, error) {
	d, ok := x.t.value(x.t.sub(s.reg[rSP], x.sp))
	if !ok || int64(d) < -x.may.limit || int64(d) > 8 {
		return 0, fmt.Errorf("rsp is %s", x.t.text(s.reg[rSP]))
	}
	return int64(d), nil
}

func (x *exec) push(s *state, v term) error {
	s.reg[rSP] = x.t.plus(s.reg[rSP], -8)
	if _, err := x.stackOff(s); err != nil {
		return err
	}
	return x.store(s, s.reg[rSP], 8, v)
}

func (x *exec) pop(s *state) (term, error) {
	v, err := x.load(s, s.reg[rSP], 8)
	s.reg[rSP] = x.t.plus(s.reg[rSP], 8)
	return v, err
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

// place returns the run-time address of an address of the file. Terms keep the two apart: the
// file is loaded anywhere.
func (x *exec) place(at uint64) term { return x.t.plus(x.image, int64(at)) }

// link returns the address of the file that a run-time address is known to be.
func (x *exec) link(addr term) (uint64, bool) { return x.t.value(x.t.sub(addr, x.image)) }

// address computes the address of an operand in memory.
func (x *exec) address(s *state, o operand) term {
	if o.kind == opRIP {
		return x.place(s.pc + uint64(o.disp)) // s.pc is past the instruction already
	}
	a := x.t.plus(s.reg[o.reg], o.disp)
	if o.scale > 0 {
		a = x.t.scaled(a, s.reg[o.index], uint64(o.scale))
	}
	return a
}

// checkOwnRow checks the row of the code itself at an instruction: it must lead to
// the caller of the function, with the caller's registers.
func (x *exec) checkOwnRow(s *state) error {
	if x.ownRows == nil {
		return nil
	}
	row := x.ownRows(s.pc)
	if row == nil {
		return fmt.Errorf("no unwind information for this instruction")
	}
	cfa := s.frame.ret + 8
	if s.reg[rSP] != x.spAt(cfa-row.cfa) {
		return fmt.Errorf("its own row says CFA = rsp%+d, rsp is %s", row.cfa, x.t.text(s.reg[rSP]))
	}
	for _, r := range calleeSaved {
		v := s.reg[r]
		if at := row.saved[r]; at != 0 {
			var found bool
			if v, found, _ = x.readCell(s.stack, cfa+at, 8); !found {
				v = noTerm
			}
		}
		if v != s.frame.keep[r] {
			return fmt.Errorf("its own row does not have the caller's register %d", r)
		}
	}
	return nil
}
