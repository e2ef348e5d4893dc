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

// frame returns the two words of the frame that rbp points to, if rbp is known and they lie in the window above rsp.
func frame(regs *abi.Regs, mem *ehelf.Memory) (rbp, pc uint64, ok bool) {
	const need, word = 1<<abi.RBP | 1<<abi.RSP, 8
	link := regs.Reg[abi.RBP]
	if regs.Valid&need != need || link < regs.Reg[abi.RSP] { // a frame pointer below rsp is the value of something else
		return 0, 0, false
	}
	rbp, readable := mem.ReadWord(link)
	pc, ok = mem.ReadWord(link + word)
	return rbp, pc, readable && ok
}

// framed reports whether rbp looks like a frame pointer: above it lies an address of code.
func (m *Maps) framed(regs *abi.Regs, mem *ehelf.Memory) bool {
	_, pc, ok := frame(regs, mem)
	return ok && m.Find(pc) != nil
}

// chainEnd returns Outermost if a chain of frame pointers has led to its end, and otherwise the given cause. Zero marks
// the end (x86-64 psABI 3.4.1): in rbp, or as the saved rbp of a frame whose return address no call precedes. The first
// function of a process of Erlang has one, and returns to code that ends the process.
func (m *Maps) chainEnd(guessed bool, regs *abi.Regs, mem *ehelf.Memory, otherwise Cause) Cause {
	if !guessed {
		return otherwise
	}
	if regs.Reg[abi.RBP] == 0 {
		return Outermost
	}
	if saved, pc, ok := frame(regs, mem); ok && saved == 0 && m.Find(pc) != nil && !m.ReturnsTo(pc) {
		return Outermost
	}
	return otherwise
}

// lastOfChain returns the return address with which the chain of frame pointers ends that begins at the innermost frame
// regs: zero is the saved rbp there, which marks the end (x86-64 psABI 3.4.1). Where Go's run-time goes to another
// stack for good, as morestack does, it clears rbp, and the rows of such code say nothing of the end.
func lastOfChain(regs *abi.Regs, mem *ehelf.Memory) (uint64, bool) {
	const word = 8
	for link := regs.Reg[abi.RBP]; ; {
		next, ok := mem.ReadWord(link)
		if !ok {
			return 0, false
		}
		if next == 0 {
			return mem.ReadWord(link + word)
		}
		if next <= link {
			return 0, false
		}
		link = next
	}
}

// endOfChain returns how many of the frames there are up to the end of the chain of frame pointers; 0: it ends at none
// of them.
func endOfChain(regs *abi.Regs, mem *ehelf.Memory, pcs []uint64) int {
	last, ok := lastOfChain(regs, mem)
	if !ok {
		return 0
	}
	for n := len(pcs); n > 1; n-- {
		if pcs[n-1] == last {
			return n
		}
	}
	return 0
}

// guess steps over a frame by its frame pointer: rbp points to the caller's
// rbp, and the return address is above that (x86-64 psABI figure 3.3). It does
// so only if both lie in the window above rsp, and ReturnsTo accepts the return
// address.
//
// The innermost function may have no frame: see guessLeaf.
func (m *Maps) guess(regs *abi.Regs, mem *ehelf.Memory, innermost bool) bool {
	if innermost && m.guessLeaf(regs, mem) {
		return true
	}
	const frameBytes = 16 // the caller's rbp and the return address
	link := regs.Reg[abi.RBP]
	rbp, pc, ok := frame(regs, mem)
	if !ok || !m.ReturnsTo(pc) {
		return false
	}
	// All other registers are lost: the frame may have saved them at unknown places.
	*regs = abi.Regs{Valid: 1<<abi.RIP | 1<<abi.RSP | 1<<abi.RBP}
	regs.Reg[abi.RIP], regs.Reg[abi.RSP], regs.Reg[abi.RBP] = pc, link+frameBytes, rbp
	return true
}
