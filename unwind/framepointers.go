package unwind

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// FramePointers says in which code without unwind information a walk goes on
// by frame pointer, provided that rbp looks like one.
type FramePointers uint8

// Values of FramePointers.
const (
	Always FramePointers = iota // in all
	Gaps                        // in objects that have a table, even an empty one
	Never                       // in none: tables describe all frames
)

// framePointersNames are the values of the flag --frame-pointers.
var framePointersNames = []string{Always: "always", Gaps: "gaps", Never: "never"}

// String returns the value's name, as flags have it.
func (f FramePointers) String() string { return framePointersNames[f] }

// ParseFramePointers is the inverse of String.
func ParseFramePointers(s string) (FramePointers, error) {
	if i := slices.Index(framePointersNames, s); i >= 0 {
		return FramePointers(i), nil
	}
	return 0, fmt.Errorf("unknown value %q: want one of %q", s, framePointersNames)
}

// chainEnd returns Outermost if a chain of frame pointers has led to zero,
// which marks its end (x86-64 psABI 3.4.1), and otherwise the given cause.
func chainEnd(guessed bool, regs *abi.Regs, otherwise Cause) Cause {
	if guessed && regs.Reg[abi.RBP] == 0 {
		return Outermost
	}
	return otherwise
}

// guess steps over a frame by its frame pointer: rbp points to the caller's
// rbp, and the return address is above that (x86-64 psABI figure 3.3). It does
// so only if both lie in the window above rsp, and returnsTo accepts the return
// address.
//
// The innermost function may have no frame: see guessLeaf.
func (m *Maps) guess(regs *abi.Regs, mem *ehelf.Memory, innermost bool) bool {
	if innermost && m.guessLeaf(regs, mem) {
		return true
	}
	const need = 1<<abi.RBP | 1<<abi.RSP
	const word = 8
	at := regs.Reg[abi.RBP]
	if regs.Valid&need != need || at < regs.Reg[abi.RSP] { // a frame pointer below rsp is the value of something else
		return false
	}
	rbp, ok := mem.ReadWord(at)
	if !ok {
		return false
	}
	pc, ok := mem.ReadWord(at + word)
	if !ok || !m.returnsTo(pc) {
		return false
	}
	// All other registers are lost: the frame may have saved them at unknown places.
	*regs = abi.Regs{Valid: need | 1<<abi.RIP}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBP] = pc, at+2*word, rbp
	return true
}
