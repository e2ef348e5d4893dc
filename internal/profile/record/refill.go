//go:build linux && amd64

package record

import (
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/files/procfs"
)

// The kernel copies the top of a stack into each sample. A stack that is longer is completed with memory of the
// process, read a moment later. By then the thread may have returned and called other functions, so that memory alone
// does not prove that the rest belongs to the sample. The rest is used only if it was the same before the sample and
// after it: the last stacks of the thread must have had the same callers at the same place.
//
// The kernel's copy also ends at the first page that was never touched, such as one within a large frame. Reading the
// rest maps these pages, so that the next copies are complete.

// refill is the outcome of completing a stack.
type refill uint8

const (
	completed   refill = 1 + iota
	changed            // memory holds no whole stack behind the copy
	unconfirmed        // earlier stacks of the thread have other callers, or were read after the sample
)

// refiller reads the rest of stacks.
type refiller struct {
	memory []byte // the copy, followed by what was read later
	sizes  []int  // see sizesFor
	clock  clock
}

// word is the bytes of an address.
const word = 8

// restSizes lists how many bytes behind the copy are read: the first that completes the stack is enough. What is longer
// than longRest is read only if what is shorter has led to more frames, and the room for it is not kept.
var restSizes = [...]int{16 << 10, longRest, 256 << 10, 1 << 20, 8 << 20}

const (
	longRest   = 64 << 10
	longerRoom = 2 << 20 // of memory that is not kept
)

// outer is a thread's last whole stack, outermost frame first. It is empty until one is long.
type outer struct {
	frames []seenFrame
	sp     uint64 // of the outermost frame
}

// seenFrame is a return address, and when stacks in a row had it, with the same callers.
type seenFrame struct {
	pc    uint64
	times [confirmations]uint64 // ns, ascending: when the first ones were read; a sample lies between two of them
}

// confirmations is how many earlier stacks in a row must have the same callers. Compared with longer copies, of 9,100
// stacks of x264, x265, R and g++ with 2 such stacks before them 5 were wrong, of 7,900 with 3 of them one.
const confirmations = 3

// never is later than all samples.
const never = ^uint64(0)

// same returns how many frames of a whole stack, from the outermost on, the one before had.
func (o *outer) same(f *frameStack) int {
	if o.sp != f.last.Reg[abi.RSP] {
		return 0
	}
	last := len(f.pcs) - 1
	for n := range o.frames {
		if n > last || o.frames[n].pc != f.pcs[last-n] {
			return n
		}
	}
	return len(o.frames)
}

// see remembers a whole stack of a sample, which was read at a time.
func (o *outer) see(c *copied, f *frameStack, read uint64) {
	if len(o.frames) == 0 && f.extent(c) < uint64(c.limit)/2 {
		return
	}
	n := o.same(f)
	o.frames, o.sp = o.frames[:n], f.last.Reg[abi.RSP]
	for k := range o.frames {
		times := &o.frames[k].times
		for i := confirmations - 1; i > 0; i-- {
			if times[i-1] < c.time {
				times[i] = min(times[i], read)
			}
		}
	}
	for k := len(f.pcs) - 1 - n; k >= 0; k-- {
		o.frames = append(o.frames, seenFrame{f.pcs[k], [confirmations]uint64{read, never, never}})
	}
}

// confirms reports whether enough earlier stacks of the thread had the frames from the number from on.
func (o *outer) confirms(c *copied, f *frameStack, from int) bool {
	n := len(f.pcs) - from
	return n > 0 && o.same(f) >= n && o.frames[n-1].times[confirmations-1] < c.time
}

// complete walks on behind the end of a stack's copy, in the memory of the process. It returns the stack unchanged if
// what it finds is not confirmed to be the rest.
func (u *unwinder) complete(c *copied, f frameStack, th *thread) frameStack {
	all, ok := u.readRest(c, &th.outer)
	read, err := u.refiller.clock.now()
	if !ok || err != nil {
		f.refill = changed
		return f
	}
	confirmed := th.outer.confirms(c, &all, len(f.pcs))
	th.outer.see(c, &all, read)
	if !confirmed {
		f.refill = unconfirmed
		return f
	}
	all.refill = completed
	return all
}

// sizesFor returns how many bytes behind a copy are read. If the thread's last whole stack ended there, that much comes
// first: one read instead of several.
func (r *refiller) sizesFor(c *copied, o *outer) []int {
	const most, outermost = 1 << 20, 4 << 10 // the bytes of the outermost frame are not known
	first := o.sp - c.end()
	if len(o.frames) == 0 || first > most {
		return restSizes[:]
	}
	r.sizes = append(r.sizes[:0], int(first)+outermost)
	for _, size := range restSizes {
		if size > r.sizes[0] {
			r.sizes = append(r.sizes, size)
		}
	}
	return r.sizes
}

// readRest walks over the copy and the memory behind it. It returns false if the stack is not whole there.
func (u *unwinder) readRest(c *copied, o *outer) (f frameStack, ok bool) {
	r := &u.refiller
	copied, frames := len(c.memory.Bytes), 0
	r.memory = append(r.memory[:0], c.memory.Bytes...)
	defer func() {
		if cap(r.memory) > longerRoom {
			r.memory = nil
		}
	}()
	for i, size := range r.sizesFor(c, o) {
		if i > 0 && size > longRest && len(f.pcs) == frames {
			return f, false
		}
		have := len(r.memory)
		frames = len(f.pcs)
		r.memory = slices.Grow(r.memory, copied+size-have)[:copied+size]
		got := procfs.ReadMemory(c.pid, c.memory.Lo+uint64(have), r.memory[have:])
		all := ehelf.Memory{Lo: c.memory.Lo, Bytes: r.memory[:have+got]}
		f = u.walkIn(c, &all, &u.longer)
		if f.whole() {
			return f, true
		}
		if have+got < len(r.memory) || !u.endsAt(all.Lo+uint64(len(all.Bytes)), &f) {
			return f, false
		}
	}
	return f, false
}
