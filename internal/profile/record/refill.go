//go:build linux && amd64

package record

import (
	"bytes"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"

	"golang.org/x/sys/unix"
)

// The kernel copies the top of a stack into each sample. A stack that is longer is completed with memory of the
// process, read a moment later. By then the thread may have returned and called other functions. The words of frames
// that it has left stay in memory, so a comparison of the copy with memory does not prove that the rest still belongs to
// the sample. The rest is used only if it was the same before the sample and after it: two earlier stacks
// of the thread, copied or read before the sample's time, must have the same callers.

// refill is the outcome of completing a stack.
type refill uint8

const (
	completed   refill = 1 + iota
	unproven           // the copy has too few return addresses at its end
	changed            // memory differs from the end of the copy
	unconfirmed        // earlier stacks of the thread have other callers, or were read after the sample
)

// refiller reads the rest of stacks.
type refiller struct {
	memory []byte // the copy, followed by what was read later
	reread [farthest]byte
	clock  clock
}

// proofs is how many return addresses at the end of the copy must still be in memory when the rest is read, and with
// them all bytes up to the end of the copy. The outer one of them lies at most farthest bytes before that
// end. The return address of a large frame lies behind the copy and may have been replaced:
// of 987 stacks of g++ with two unchanged return addresses at any distance, 8 had other callers; of the 702 with them so near,
// none. With one return address and the last 256 bytes unchanged, one stack in ten was wrong.
const (
	proofs   = 2
	farthest = 1024
)

// word is the bytes of an address.
const word = 8

// restSizes lists how many bytes behind the copy are read: the first that completes the stack is enough.
var restSizes = [...]int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}

// outer is a thread's last stack, if it was whole and long.
type outer struct {
	pcs   []uint64
	sp    uint64                // of the outermost frame
	times [confirmations]uint64 // ns, ascending: when its frames were read; a sample lies between two of them
}

// confirmations is how many earlier stacks must have the same callers. A thread that called two functions in turn, for a
// millisecond each and with frames at the same addresses, had changed to the other one in 8 % of the reads,
// and in 22 % beside 8 busy loops.
const confirmations = 2

// never is later than all samples.
const never = ^uint64(0)

// set remembers a stack, if it is whole and long, and when its callers were read.
func (o *outer) set(c *copied, f *frameStack, times [confirmations]uint64) {
	o.pcs = o.pcs[:0]
	if f.whole() && f.extent(c) >= uint64(c.limit)/2 {
		o.pcs, o.sp, o.times = append(o.pcs, f.pcs...), f.last.Reg[abi.RSP], times
	}
}

// has reports whether the remembered stack ends with these frames and this stack pointer.
func (o *outer) has(frames []uint64, sp uint64) bool {
	n := len(o.pcs) - len(frames)
	return n >= 0 && o.sp == sp && slices.Equal(o.pcs[n:], frames)
}

// confirm remembers a stack whose rest was read at a time. It reports whether earlier stacks of the thread have the same
// frames from the number from on. That frame lies in the copy: frames of the rest alone may belong
// to a later call.
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

// complete walks on behind the end of a stack's copy, in the memory of the process. It returns the stack unchanged if what
// it finds is not proven to be the rest.
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

// readRest walks over the copy and the memory behind it. It returns false if that memory cannot be read, or if memory
// differs from the copy at an address from from on.
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
		// The copy is compared after the rest was read: what is unchanged now was so meanwhile.
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

// returns describes the outermost return addresses that a copy holds.
type returns struct {
	known int    // frames up to the outermost return address
	from  uint64 // address of the last but one
}

// lastReturns finds the outermost return addresses in the copy; the one that a frame was returned to lies at its sp-8. It
// returns false if there are fewer than proofs, or if they are too far from the copy's end.
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
			continue // interrupted by a signal: it has no return address
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

// readMemory reads memory of a process into b, and returns the number of bytes read.
func readMemory(pid int32, addr uint64, b []byte) int {
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	n, err := unix.ProcessVMReadv(int(pid), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil {
		return 0
	}
	return n
}
