package unwind

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// Generated knows the frames of code that a process has made while it ran, and that lies in no file. Its methods must
// be safe for concurrent use.
type Generated interface {
	// Step does for such code what ehelf.EhElf.Step does for an object's, with abi.StatusNoInfo if nothing is known.
	// guessed says that the step follows from neither a table nor all ways through the code.
	Step(regs *abi.Regs, mem *ehelf.Memory) (status abi.Status, guessed bool)
	// Scan does the same by what is found on the stack: a guess. isCode reports whether an address is executable.
	Scan(regs *abi.Regs, mem *ehelf.Memory, isCode func(addr uint64) bool) abi.Status
	// Returns reports whether an address of such code may be one that a call returns to.
	Returns(pc uint64) bool
}

// EndsInCall reports whether code may end in a call instruction. Only a negative answer is certain.
func EndsInCall(code []byte) bool { return endsInCall(code) }

// MaxCall is how many bytes of code EndsInCall looks at.
const MaxCall = maxCall

// generated takes a step from a frame in code that lies in no file. known is false if it cannot.
func (w *Walker) generated(v *view, regs *abi.Regs, mem *ehelf.Memory) (how outcome, cause Cause, known bool) {
	m := v.maps
	v.regs, v.mem = *regs, *mem // copies, as in view.walk
	defer func() { v.mem = ehelf.Memory{} }()
	status, guessed := m.generated.Step(&v.regs, &v.mem)
	if guessed && w.FramePointers != Always {
		return 0, 0, false
	}
	how = stepped
	if guessed {
		how = guess
	}
	switch status {
	case abi.StatusOutermost:
		return ended, Outermost, true
	case abi.StatusUnreadable:
		return ended, Unreadable, true
	case abi.StatusOK:
		if !guessed || m.ReturnsTo(v.regs.Reg[abi.RIP]) {
			*regs = v.regs
			return how, Full, true
		}
	}
	return 0, 0, false
}

// scan guesses the caller of a frame in code that lies in no file by what is on the stack. It comes after frame
// pointers, which a frame of HotSpot's interpreter has.
func (w *Walker) scan(v *view, regs *abi.Regs, mem *ehelf.Memory) bool {
	v.regs, v.mem = *regs, *mem // copies, as in view.walk
	status := v.maps.generated.Scan(&v.regs, &v.mem, func(addr uint64) bool { return v.maps.Find(addr) != nil })
	v.mem = ehelf.Memory{}
	if status != abi.StatusOK || !v.maps.ReturnsTo(v.regs.Reg[abi.RIP]) {
		return false
	}
	*regs = v.regs
	return true
}
