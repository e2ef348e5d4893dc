//go:build linux && amd64

package record

import (
	"bytes"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"

	"golang.org/x/sys/unix"
)

// A stack that is longer than its copy is completed with memory that is read a moment later. By then the thread may
// have returned to frames that are in the rest, and have called other functions. The words of the frames it
// has left stay below its stack pointer as they were, so unchanged words do not prove that the rest has not changed,
// and only a stop of the thread would tell where it is now. So the rest is believed if it was the same before the
// sample was taken and after: the thread's last samples have the same callers, from a copy, or
// read before this sample's time.

// refill says what came of completing a stack.
type refill uint8

const (
	completed   refill = 1 + iota
	unproven           // the copy has too few return addresses at its end
	changed            // the copy's end is not in memory any more as it was
	unconfirmed        // the thread's stacks before had other callers, or were read after the sample
)

// refiller reads the rest of stacks.
type refiller struct {
	memory []byte // the copy, followed by what was read later
	reread [farthest]byte
	clock  clock
}

// proofs is how many of a stack's return addresses, the last ones of the copy, must be
// the same still when the rest is read, with all that lies between them and the copy's end; the
// last but one may be farthest from it. In a large frame the next return address, which tells who called,
// lies after the copy's end, and may be another one by now: of 987 stacks of g++ with two
// unchanged return addresses 8 had other callers, of the 702 where they were so near none.
// With the last 256 bytes and one return address unchanged it was one in ten.
const (
	proofs   = 2
	farthest = 1024
)

// word is the bytes of an address.
const word = 8

// restSizes lists how much of a stack is read after the copy, in turn until the stack is
// complete.
var restSizes = [...]int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}

// outer is a thread's last stack, if it was whole and long.
type outer struct {
	pcs   []uint64
	sp    uint64                // of the outermost frame
	times [confirmations]uint64 // ns, ascending: its frames were found then, by reads with a sample between them
}

// confirmations is how many samples before must have the same frames from the last ones of the copy on. A thread that
// calls two functions in turn, for a millisecond each and with frames at the same places, was in the other one
// at 8 % of the reads, and beside 8 busy loops at 22 %.
const confirmations = 2

// never is later than all samples.
const never = ^uint64(0)

// set notes a stack and when its callers were there.
func (o *outer) set(c *copied, f *frameStack, times [confirmations]uint64) {
	o.pcs = o.pcs[:0]
	if f.whole() && f.extent(c) >= uint64(c.limit)/2 {
		o.pcs, o.sp, o.times = append(o.pcs, f.pcs...), f.last.Reg[abi.RSP], times
	}
}

// has reports whether the outermost frames are these, with this stack pointer.
func (o *outer) has(frames []uint64, sp uint64) bool {
	n := len(o.pcs) - len(frames)
	return n >= 0 && o.sp == sp && slices.Equal(o.pcs[n:], frames)
}

// confirm notes a stack whose rest was read at a time, and reports whether the thread's stacks before have the same
// frames from one of the copy's on. Those of the rest alone may be what the thread has called since.
func (o *outer) confirm(c *copied, f *frameStack, from int, read uint64) bool {
	times := [confirmations]uint64{read, never}
	confirmed := false
	if o.has(f.pcs[from:], f.last.Reg[abi.RSP]) {
		times = o.times
		if confirmed = times[1] < c.time; times[0] < c.time {
			times[1] = min(times[1], read)
		}
	}
	o.set(c, f, times)
	return confirmed
}

// complete goes on where the copy of a stack has ended, with the memory that is there now. It returns the
// stack as it was given where that is not proven to be the rest.
func (u *unwinder) complete(c *copied, f frameStack, th *thread) frameStack {
	ends, ok := u.lastReturns(c, &f)
	if !ok {
		f.refill = unproven
		return f
	}
	all, ok := u.readRest(c, ends.from)
	read, err := u.refiller.clock.now()
	switch {
	case !ok || err != nil || len(all.pcs) < ends.known:
		f.refill = changed
	case !th.outer.confirm(c, &all, ends.known-proofs, read):
		f.refill = unconfirmed
	default:
		all.refill = completed
		return all
	}
	return f
}

// readRest walks with memory that is read now. It returns false where that is not to be had, or from an address of
// the copy on does not fit it.
func (u *unwinder) readRest(c *copied, from uint64) (f frameStack, ok bool) {
	r := &u.refiller
	copied := c.memory.Bytes
	have := len(copied)
	r.memory = append(r.memory[:0], copied...)
	for _, size := range restSizes {
		r.memory = slices.Grow(r.memory[:have], size)[:have+size]
		got := readMemory(c.pid, c.end(), r.memory[have:])
		if got == 0 {
			return f, false
		}
		// After the rest: what is there still has been all the while.
		proof := copied[from-c.memory.Lo:]
		if readMemory(c.pid, from, r.reread[:len(proof)]) < len(proof) || !bytes.Equal(r.reread[:len(proof)], proof) {
			return f, false
		}
		all := ehelf.Memory{Lo: c.memory.Lo, Bytes: r.memory[:have+got]}
		f = u.walkIn(c, &all, &u.longer)
		if f.whole() {
			return f, true
		}
		if got < size || !u.endsAt(all.Lo+uint64(len(all.Bytes)), &f) {
			return f, false
		}
	}
	return f, false
}

// returns tells of the last frames of a stack whose return addresses its copy has.
type returns struct {
	known int    // frames up to the last of them
	from  uint64 // where the return address of the last but one lies
}

// lastReturns finds the last frames of a stack whose return addresses
// the copy has: each one's pc is at sp-8. It returns false
// if there are too few, or too far from the copy's end.
func (u *unwinder) lastReturns(c *copied, f *frameStack) (r returns, ok bool) {
	const tries = 8
	found, regs := 0, f.last
	n := len(f.pcs)
	for k := n; k > 1 && k > n-tries; k-- {
		if k < n {
			regs = c.regs
			if m, _, _ := u.walker.Walk(c.maps, &regs, &c.memory, u.longer.pcs[:k]); m != k {
				return r, false
			}
		}
		at := regs.Reg[abi.RSP] - word
		if pc, ok := c.memory.ReadWord(at); !ok || pc != regs.Reg[abi.RIP] {
			continue // as those have none that a signal has interrupted
		}
		if c.end()-at > farthest {
			return r, false
		}
		if found++; found == 1 {
			r.known = k
		}
		if found == proofs {
			r.from = at
			return r, true
		}
	}
	return r, false
}

// readMemory reads memory of a process, and returns how many bytes of it there are.
func readMemory(pid int32, addr uint64, b []byte) int {
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMReadv(int(pid), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil {
		return 0
	}
	return n
}
