package unwind

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// Cause says why a walk ended.
type Cause uint8

// Causes. The statuses of eh_elfs keep their meaning; "no information" is
// split into no mapping, no object and no row.
const (
	Full      Cause = iota // no room for more frames
	Outermost              // the end of the stack
	// OutermostGuessed is Outermost, reached through frames found by frame
	// pointer: some may be missing.
	OutermostGuessed
	NoMapping  // nothing executable is mapped at the pc
	NoObject   // the object's file is missing, replaced or cannot be compiled, or there is none
	NoInfo     // the object has no row for the pc
	Unreadable // the return address is not in the memory given
	// BelowStack is Unreadable because the innermost frame's row reads below
	// rsp, where the copy of a stack begins.
	BelowStack
	BadRegister // the row needs a register that is not known
	NotCompiled // the row has a rule that could not be compiled
	NumCauses
)

// String says in words why the walk ended.
func (c Cause) String() string {
	return [NumCauses]string{"no room for more frames", "outermost frame", "outermost frame by guesses",
		"pc in no mapping", "object missing",
		"no unwind information", "memory not readable", "value below rsp not copied", "register not known",
		"rule not compiled"}[c]
}

// Walk walks from the frame regs to its callers and writes the frames'
// run-time pcs to pcs, unadjusted; the first is the pc of regs. It returns
// the number of pcs, why the walk ended, and the object it ended in, or nil if
// there is none. The pcs after the first are return addresses, except those
// that follow a signal frame. mem.Read must be nil.
//
// If w.FramePointers allows it, the walk steps by frame pointer through code
// without unwind information: most such code comes from the C run-time's startup
// files, or is compiled at run time. w.Guesses lists the frames found so. Where rows
// lead to no code, the stack ends at the frame with which the chain of frame pointers
// ends, if it does.
//
// All frames but the first lie in executable memory. From the first guess on
// they also lie after a call or a signal frame, if the object's file is
// available.
func (w *Walker) Walk(m *Maps, regs *abi.Regs, mem *ehelf.Memory, pcs []uint64) (int, Cause, *Object) {
	if len(pcs) == 0 {
		return 0, Full, nil
	}
	first := *regs
	w.Guesses = w.Guesses[:0]
	v := w.view(m)
	pcs[0] = regs.Reg[abi.RIP]
	// Most stacks end here; the code below takes as long as several frames.
	steps, i := v.spans.Walk(regs, mem, pcs[1:])
	if regs.Status == abi.StatusOutermost {
		return 1 + steps, Outermost, m.list[i].Object
	}
	n, cause, object := w.walk(v, regs, mem, pcs, 1+steps, false)
	if cause == BadRegister && n > 1 { // a register without a rule was needed: once more, with such registers kept
		*regs, w.Guesses = first, w.Guesses[:0]
		n, cause, object = w.walk(v, regs, mem, pcs, 1, true)
	}
	if len(w.Guesses) == 0 {
		if (cause == NoInfo || cause == NoMapping) && w.FramePointers != Never {
			if ends := endOfChain(&first, mem, pcs[:n]); ends > 0 {
				return ends, OutermostGuessed, object
			}
		}
		return n, cause, object
	}
	n, cause, object = w.settle(m, pcs[:n], cause, object)
	if guessed := len(w.Guesses); guessed > 0 {
		w.Guessed += uint64(guessed)
		w.GuessedStacks++
	}
	return n, cause, object
}

// walk walks on from the last of n frames. With keep, registers without a rule keep their values, which takes a call
// for each step. It returns the number of frames, why they end, and where. regs are the last frame's.
func (w *Walker) walk(v *view, regs *abi.Regs, mem *ehelf.Memory, pcs []uint64, n int, keep bool) (int, Cause,
	*Object) {
	m := v.maps
	guessed := 0 // the last frame found by frame pointer
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
		if i < 0 { // the pc lies in no mapping
			n, cause := noMapping(m, regs, pcs[:n])
			return n, cause, nil
		}
		how, cause := ended, statusCause(v, i, regs, mem, n == 1)
		if cause == NoInfo { // else the eh_elf has decided that the walk ends
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
	// The room is used up. The last pc counts as a frame only if it lies in a mapping.
	if mapping := m.Find(regs.LookupPC()); mapping != nil {
		return n, Full, mapping.Object
	}
	n, cause := noMapping(m, regs, pcs[:n])
	return n, cause, nil
}

// noMapping returns how many frames count, and why they end, if nothing is mapped
// at the pc of the last.
func noMapping(m *Maps, regs *abi.Regs, pcs []uint64) (int, Cause) {
	n := len(pcs)
	// Hand-written thread entries end the stack with a return address of zero, or have rows that say nothing of their end.
	if n > 1 && regs.Reg[abi.RIP] == 0 || n > 2 && m.startsAt(pcs[n-2]) {
		return n - 1, Outermost
	}
	return max(1, n-1), NoMapping
}

// statusCause returns why the eh_elf of the span i, if there is one, took no step.
// NoInfo need not end the walk.
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

// outcome says how a walk went on from a frame without a row.
type outcome uint8

// Ways on from a frame without a row.
const (
	stepped outcome = iota // regs are the caller's
	guess                  // they are, found by frame pointer or by the code's bytes
	ended
)

// without goes on from a frame in the span i that has no row: it may be the return from
// a signal handler, the object's entry, a stub of the procedure linkage table or code that
// keeps a frame pointer, or nothing called it: see isStarter. guessed says that the frame itself was found by frame
// pointer.
func (w *Walker) without(v *view, i int, regs *abi.Regs, mem *ehelf.Memory, innermost, guessed bool) (outcome, Cause) {
	mapping := &v.maps.list[i]
	object := mapping.Object
	if is, ok := object.stepSigreturn(mapping.FileOffset(regs.Reg[abi.RIP]), regs, mem); ok {
		return stepped, Full
	} else if is {
		return ended, Unreadable
	}
	var follow, generated bool
	var cause Cause
	switch v.state[i] {
	case noBias:
		return ended, NoInfo
	case noCode:
		// perf inject makes files from code compiled at run time: with a
		// table, which may be empty.
		follow, cause = w.FramePointers == Always || w.FramePointers == Gaps && object.file.table, NoObject
		if generated = v.maps.generated != nil && object.IsAnonymous(); generated {
			if how, end, ok := w.generated(v, regs, mem); ok {
				return how, end
			}
		}
	default: // loaded, stepping
		if object.isEntry(regs.LookupPC() - v.bias[i]) {
			return ended, Outermost
		}
		if !innermost && regs.Exact == 0 && object.isStarter(mapping.FileOffset(regs.Reg[abi.RIP])) {
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
	if generated && w.FramePointers == Always && !v.maps.framed(regs, mem) && w.scan(v, regs, mem) {
		return guess, Full
	}
	return ended, v.maps.chainEnd(guessed, regs, mem, cause)
}

// stepKeeping takes one step in which caller-saved registers without a rule keep
// their values.
//
// By the psABI a call loses them, and eh_elfs make them invalid. But assembler
// code that calls its own subroutines may rely on one of them across the call: in
// OpenSSL's aesni_gcm_encrypt the CFA is rax+8, even at calls of a subroutine that
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
