//go:build linux && amd64

package record

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/unwind"
)

// copied is what the kernel has copied of a thread's user registers and stack for a sample.
type copied struct {
	pid    int32
	time   uint64 // of the sample, ns of CLOCK_MONOTONIC
	limit  int    // bytes of a copy that lacks a part of the stack
	maps   *unwind.Maps
	regs   abi.Regs
	memory ehelf.Memory
}

// end is the address after the copy.
func (c *copied) end() uint64 { return c.memory.Lo + uint64(len(c.memory.Bytes)) }

// full reports whether the copy is as long as the kernel makes it. Otherwise it has ended at a page
// that was never touched.
func (c *copied) full() bool { return len(c.memory.Bytes)+word > c.limit }

// frameStack is a user stack.
type frameStack struct {
	pcs     []uint64 // innermost first; valid until the next walk
	guesses []int    // which of pcs were found by the frame pointer; valid until the next walk
	cause   unwind.Cause
	last    abi.Regs // of the outermost frame
	cut     bool     // the copy has ended before the stack, and the rest was looked for
	refill  refill   // what came of that
	long    bool     // the copy was a longer one
}

// whole reports whether the stack has all frames.
func (f *frameStack) whole() bool {
	return f.cause == unwind.Outermost || f.cause == unwind.OutermostGuessed
}

// extent returns the bytes from the stack pointer up to the outermost frame.
func (f *frameStack) extent(c *copied) uint64 { return f.last.Reg[abi.RSP] - c.regs.Reg[abi.RSP] }

// unwinder walks user stacks, and completes those that are longer than their copies.
type unwinder struct {
	walker   unwind.Walker
	room     room
	longer   room // for a stack that is walked again, with more memory
	refills  bool // complete stacks
	refiller refiller
	ends     ends
}

// room holds the frames of a stack.
type room struct {
	pcs     []uint64
	guesses []int
}

func newUnwinder(o *Options) unwinder {
	u := unwinder{refills: o.Settings.Refill, refiller: refiller{clock: newClock()}, ends: ends{seen: make(map[fileOffset]bool)}}
	u.room.pcs, u.longer.pcs = make([]uint64, o.Settings.MaxStack), make([]uint64, o.Settings.MaxStack)
	u.walker.FramePointers, u.walker.OnObject = o.Settings.Pointers, o.OnObject
	return u
}

// walk walks a stack, and where the copy has not all of it, makes it whole if that is
// wanted and possible.
func (u *unwinder) walk(c *copied, th *thread) frameStack {
	f := u.walkIn(c, &c.memory, &u.room)
	if !u.refills {
		return f
	}
	if u.endsAt(c.end(), &f) {
		f = u.complete(c, f, th)
		f.cut = true
	} else if f.whole() {
		th.outer.see(c, &f, c.time)
	}
	return f
}

// walkIn walks the stack of a copy with some memory.
func (u *unwinder) walkIn(c *copied, memory *ehelf.Memory, into *room) (f frameStack) {
	f.last = c.regs
	n, cause, _ := u.walker.Walk(c.maps, &f.last, memory, into.pcs)
	into.guesses = append(into.guesses[:0], u.walker.Guesses...)
	f.pcs, f.cause, f.guesses = into.pcs[:n], cause, into.guesses
	return f
}

// endsAt reports whether a walk has ended where memory ends: the return address is not in it, or the
// frame that a frame pointer leads to.
func (u *unwinder) endsAt(end uint64, f *frameStack) bool {
	switch f.cause {
	case unwind.Unreadable:
		return true
	case unwind.NoInfo, unwind.NoObject:
		const frame, most = 16, 8 << 20
		over := f.last.Reg[abi.RBP] + frame - end
		return u.walker.FramePointers != unwind.Never && f.last.Valid>>abi.RBP&1 != 0 && over-1 < most
	}
	return false
}
