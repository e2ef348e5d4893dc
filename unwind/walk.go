package unwind

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// Cause says why a walk ended.
type Cause uint8

// The causes. The statuses of eh_elfs keep their meaning. "No information" is
// split: nothing mapped at the pc, no file, no row.
const (
	Full      Cause = iota // no room for more frames
	Outermost              // the end of the stack
	// OutermostGuessed is Outermost by way of frames that were found by the frame
	// pointer: some may be missing.
	OutermostGuessed
	NoMapping  // nothing executable is mapped at the pc
	NoObject   // the object's file is missing, replaced or cannot be compiled, or there is none
	NoInfo     // the object has no row for the pc
	Unreadable // the return address is not in the memory that is given
	// BelowStack is Unreadable where the innermost frame's row reads below rsp: the
	// copy of a stack begins at rsp.
	BelowStack
	BadRegister // the row needs a register that is not known
	NotCompiled // the row has a rule that could not be compiled
	NumCauses
)

func (c Cause) String() string {
	return [NumCauses]string{"no room for more frames", "outermost frame", "outermost frame by guesses", "pc in no mapping", "object missing",
		"no unwind information", "memory not readable", "value below rsp not copied", "register not known", "rule not compiled"}[c]
}

// Walk walks from the frame regs to its callers and writes their pcs, as they
// stand in the frames, to pcs; the first is that of regs itself. It returns
// their number, why it ended, and the object it ended in, nil where there is
// none. The pcs after the first are return addresses but for those that
// follow a signal frame. mem.Read must be nil.
//
// Where code without unwind information keeps a frame pointer, the walk goes
// through it, if w.FramePointers says so: most such code is of the C run-time's
// own files, or is compiled at run time. w.Guesses says which frames it found so.
//
// All frames but the first lie in executable memory, and those from the first
// guess on, where the object's file is there, behind a call or a signal frame.
func (w *Walker) Walk(m *Maps, regs *abi.Regs, mem *ehelf.Memory, pcs []uint64) (int, Cause, *Object) {
	if len(pcs) == 0 {
		return 0, Full, nil
	}
	first := *regs
	w.Guesses = w.Guesses[:0]
	v := w.view(m)
	pcs[0] = regs.Reg[abi.RIP]
	// Most stacks end here; the rest takes as long as some frames.
	steps, i := v.spans.Walk(regs, mem, pcs[1:])
	if regs.Status == abi.StatusOutermost {
		return 1 + steps, Outermost, m.list[i].Object
	}
	n, cause, object := w.walk(v, regs, mem, pcs, 1+steps, false)
	if cause == BadRegister && n > 1 {
		*regs, w.Guesses = first, w.Guesses[:0]
		n, cause, object = w.walk(v, regs, mem, pcs, 1, true)
	}
	if len(w.Guesses) == 0 {
		return n, cause, object
	}
	n, cause, object = w.settle(m, pcs[:n], cause, object)
	if guessed := len(w.Guesses); guessed > 0 {
		w.Guessed += uint64(guessed)
		w.GuessedStacks++
	}
	return n, cause, object
}

// walk walks on from the last of n frames; with keep it leaves all registers as they
// are that the rows have no rule for, which takes a call for each step.
func (w *Walker) walk(v *view, regs *abi.Regs, mem *ehelf.Memory, pcs []uint64, n int, keep bool) (int, Cause, *Object) {
	m := v.maps
	guessed := 0 // the frame that was found last by the frame pointer
	for n < len(pcs) {
		var steps, i int
		if keep {
			steps, i = stepKeeping(v, regs, mem, pcs[n:])
		} else {
			steps, i = v.walk(regs, mem, pcs[n:])
		}
		n += steps
		if n == len(pcs) {
			break
		}
		if keep && steps > 0 {
			continue
		}
		if i < 0 {
			n, cause := noMapping(regs, n)
			return n, cause, nil
		}
		how, cause := ended, statusCause(v, i, regs, mem, n == 1)
		if cause == NoInfo {
			if v.state[i] == unasked {
				w.ask(v, i)
				continue
			}
			how, cause = w.without(v, i, regs, mem, n == 1, n == guessed)
		}
		switch how {
		case ended:
			return n, cause, m.list[i].Object
		case guess:
			w.Guesses = append(w.Guesses, n)
			guessed = n + 1
		}
		pcs[n] = regs.Reg[abi.RIP]
		n++
	}
	if mapping := m.Find(regs.LookupPC()); mapping != nil {
		return n, Full, mapping.Object
	}
	n, cause := noMapping(regs, n)
	return n, cause, nil
}

// noMapping returns how many of n frames count, and why they end, where nothing is mapped
// at the pc of the last.
func noMapping(regs *abi.Regs, n int) (int, Cause) {
	// A return address of zero is how hand-written starts of threads end their stacks.
	if regs.Reg[abi.RIP] == 0 && n > 1 {
		return n - 1, Outermost
	}
	return max(1, n-1), NoMapping
}

// statusCause says why the eh_elf of the span i, if there is one, made no step: NoInfo is
// not the end yet.
func statusCause(v *view, i int, regs *abi.Regs, mem *ehelf.Memory, innermost bool) Cause {
	switch regs.Status {
	case abi.StatusOutermost:
		return Outermost
	case abi.StatusUnreadable:
		if innermost && v.readsBelow(i, regs, mem) {
			return BelowStack
		}
		return Unreadable
	case abi.StatusBadRegister:
		return BadRegister
	case abi.StatusNoInfo:
		return NoInfo
	}
	return NotCompiled
}

// how says what became of a frame for which there is no row.
type how uint8

const (
	stepped how = iota // regs are the caller's
	guess              // they are by the frame pointer
	ended
)

// without goes on from a frame in the span i for which there is no row: it may be the
// kernel's return from a signal, the object's entry, a stub of the procedure linkage table
// or code that keeps a frame pointer. guessed says that the frame was found by one.
func (w *Walker) without(v *view, i int, regs *abi.Regs, mem *ehelf.Memory, innermost, guessed bool) (how, Cause) {
	mapping := &v.maps.list[i]
	object := mapping.Object
	if is, ok := object.stepSigreturn(mapping.FileOffset(regs.Reg[abi.RIP]), regs, mem); ok {
		return stepped, Full
	} else if is {
		return ended, Unreadable
	}
	var follow bool
	var cause Cause
	switch v.state[i] {
	case noBias:
		return ended, NoInfo
	case noCode:
		// perf inject makes files of code compiled at run time: with a table, but
		// not always with something in it.
		follow, cause = w.FramePointers == Always || w.FramePointers == Gaps && object.table, NoObject
	default: // loaded, stepping
		if object.isEntry(regs.LookupPC() - v.bias[i]) {
			return ended, Outermost
		}
		if object.stepPLT(regs.Reg[abi.RIP]-v.bias[i], regs, mem) {
			return stepped, Full
		}
		follow, cause = w.FramePointers != Never, NoInfo
	}
	if follow && v.maps.guess(regs, mem, innermost) {
		return guess, Full
	}
	return ended, chainEnd(guessed, regs, cause)
}

// stepKeeping takes one step, after which caller-saved registers without a rule have
// the values that they had before.
//
// By the psABI a call loses them, and eh_elfs take them for lost. But assembler code
// that calls its own subroutines may rely on one of them meanwhile, and say so: in
// OpenSSL's aesni_gcm_encrypt the CFA is rax+8, also where it calls a subroutine that
// leaves rax alone. libgcc, libunwind, libdw and gdb keep such registers.
func stepKeeping(v *view, regs *abi.Regs, mem *ehelf.Memory, pcs []uint64) (steps, last int) {
	const callerSaved = abi.AllRegs &^ (abi.CalleeSaved | 1<<abi.RSP | 1<<abi.RIP)
	before := *regs
	steps, last = v.walk(regs, mem, pcs[:1])
	if steps == 0 {
		return steps, last
	}
	lost := before.Valid &^ regs.Valid & callerSaved
	for i := range regs.Reg {
		if lost>>i&1 != 0 {
			regs.Reg[i] = before.Reg[i]
		}
	}
	regs.Valid |= lost
	return steps, last
}
