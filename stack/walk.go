package stack

import (
	"cmp"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/unwind"
)

// This file walks over copies of stacks. A stack is mostly one piece of memory, but signal handlers and coroutines
// have others; a walk that needs a word that was not copied says which piece it wants.

// Bounds of copies of a stack, in bytes.
const (
	firstCopy = 256 << 10 // enough for nearly all stacks
	mostCopy  = 64 << 20  // for deep recursion, where ulimit -s allows it
	redZone   = 128       // below rsp: x86-64 psABI 3.2.2
	mostParts = 4         // of a stack, such as a signal handler's and the one it interrupted
)

// part is a piece of stack to copy: size bytes from the stack pointer sp on, and the red zone.
type part struct {
	sp   uint64
	size int
}

// copied is a part that was copied.
type copied struct {
	ehelf.Memory
	want part
}

// memory reads bytes of a target at an address and returns how many could be read.
type memory func(p []byte, addr uint64) int

// copyPart copies a part of a stack, as far as the mapping of its stack pointer reaches: what is mapped behind a stack
// is none. region returns the bounds of the mapping at an address; of an address in no mapping, two zeros. What cannot
// be read is missing at the end.
func copyPart(read memory, region func(uint64) (start, end uint64), p part) copied {
	const word = 8 // bytes: walks read aligned words
	// a leaf function may keep its caller's registers in the red zone, below rsp
	lo := p.sp&^(word-1) - redZone
	size := p.size
	if start, end := region(p.sp); end > p.sp {
		lo = max(lo, start)
		size = int(min(uint64(size), end-lo))
	}
	b := make([]byte, size)
	return copied{ehelf.Memory{Lo: lo, Bytes: b[:max(0, read(b, lo))]}, p}
}

// walker walks over copies of stacks.
type walker struct {
	unwind.Walker
	pcs  []uint64 // room for one walk
	most int      // frames that are kept
}

// newWalker returns a walker with room for a walk.
func newWalker(opt *Options) *walker {
	return &walker{unwind.Walker{FramePointers: opt.FramePointers}, make([]uint64, MaxFrames),
		max(2, cmp.Or(opt.MaxFrames, MaxFrames))}
}

// walk sets the stack of a thread from the parts that were copied. more has the parts to copy for the rest of the
// stack; it is nil if there is no more.
func (w *walker) walk(t *Thread, maps *unwind.Maps, regs abi.Regs, parts []copied) (more []part) {
	if more = w.walkAll(t, maps, regs, parts); more == nil {
		t.shorten(w.most)
	}
	return more
}

// shorten keeps n frames, half of them from each end.
func (t *Thread) shorten(most int) {
	t.LeftOut = max(0, len(t.PCs)-most)
	if t.LeftOut == 0 {
		return
	}
	inner := t.inner(most)
	t.PCs = slices.Concat(t.PCs[:inner], t.PCs[inner+t.LeftOut:])
	t.Guessed = slices.DeleteFunc(t.Guessed, func(i int) bool { return i >= inner && i < inner+t.LeftOut })
	for k := range t.Guessed {
		if t.Guessed[k] >= inner {
			t.Guessed[k] -= t.LeftOut
		}
	}
}

// inner returns how many of the frames that are kept come from the inner end.
func (t *Thread) inner(kept int) int { return (kept + 1) / 2 }

// FrameNumber returns the place in the whole stack of a frame of PCs.
func (t *Thread) FrameNumber(i int) int {
	if i >= t.inner(len(t.PCs)) {
		return i + t.LeftOut
	}
	return i
}

// walkAll is walk for the whole stack. If there are more frames than room for them, it begins anew with more.
func (w *walker) walkAll(t *Thread, maps *unwind.Maps, regs abi.Regs, parts []copied) (more []part) {
	start := regs
	t.PCs, t.Guessed, t.End = nil, nil, unwind.Unreadable
	if len(parts) == 0 {
		return nil
	}
	used := make([]bool, len(parts))
	// The walk goes from part to part: at each end, a word is missing that another part may have.
	for i := 0; i >= 0; {
		used[i] = true
		done := max(0, len(t.PCs)-1) // the frame that the last part ended with is met again
		n, cause, _ := w.Walk(maps, &regs, &parts[i].Memory, w.pcs[:len(w.pcs)-done])
		for _, g := range w.Guesses {
			t.Guessed = append(t.Guessed, done+g)
		}
		t.PCs = append(t.PCs[:done], w.pcs[:n]...)
		t.End = cause
		if cause == unwind.Full && len(w.pcs) < walked {
			const growth = 8 // times; each walk begins anew
			w.pcs = make([]uint64, min(growth*len(w.pcs), walked))
			return w.walkAll(t, maps, start, parts)
		}
		if cause != unwind.Unreadable || regs.Reg[abi.RIP] != t.PCs[len(t.PCs)-1] {
			return nil
		}
		if i, more = next(parts, used, i, regs.Reg[abi.RSP]); more != nil {
			return more
		}
	}
	return nil
}

// next returns the part that has the stack pointer sp, where the walk goes on after a word was missing in part at. If
// no part has it, found is -1 and more has the parts to copy.
func next(parts []copied, used []bool, from int, sp uint64) (found int, more []part) {
	for i, p := range parts {
		if !used[i] && sp-p.Lo < uint64(len(p.Bytes)) {
			return i, nil
		}
	}
	for _, p := range parts {
		more = append(more, p.want)
	}
	p := parts[from]
	switch inside := sp-p.Lo <= uint64(len(p.Bytes)); { // at its end: the stack goes on there
	case inside && len(p.Bytes) >= p.want.size && p.want.size < mostCopy:
		const growth = 8 // so that few copies reach the largest size
		more[from].size = min(p.want.size*growth, mostCopy)
	case !inside && len(parts) < mostParts && sp != 0:
		more = append(more, part{sp, firstCopy})
	default:
		more = nil
	}
	return -1, more
}
