//go:build linux && amd64

package record

import (
	"bytes"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// place is a frame of a stack: two frames with the same pc and stack pointer are most
// likely the same call.
type place struct {
	pc, sp  uint64
	guessed bool // found by the frame pointer
}

// refiller completes stacks that are longer than the kernel's copy of them.
type refiller struct {
	memory []byte // the copy, followed by what was read later
	reread [farthest]byte
	pcs    []uint64
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

// complete goes on where the copy of a stack of n frames has ended: with the memory itself, if
// the copy's last frames are still there, else with the callers that the same frame had in the
// thread's last stack. at is the registers of the last of its frames. It
// returns what Walk would have.
func (f *refiller) complete(s *Session, pid int32, th *thread, maps *unwind.Maps, first, at abi.Regs, mem *ehelf.Memory, n int, pcs []uint64) (int, unwind.Cause, Origin) {
	ends, proven := s.lastReturns(n, maps, first, at, mem, pcs)
	if !proven {
		s.counts.Unproven++
	} else if m, cause := f.readRest(s, pid, th, maps, first, mem, ends, pcs); cause != unwind.Unreadable {
		return m, cause, fromLater
	}
	// The first walk's frames are overwritten by the walk of more memory.
	regs := first
	n, cause, _ := s.walker.Walk(maps, &regs, mem, pcs)
	s.guesses = append(s.guesses[:0], s.walker.Guesses...)
	i := -1
	if proven {
		i = slices.IndexFunc(th.last, func(p place) bool { return p.pc == ends[0].pc && p.sp == ends[0].sp })
	}
	if i < 1 || th.last[i-1].pc != ends[1].pc || th.last[i-1].sp != ends[1].sp || n+len(th.last)-i-1 > len(pcs) {
		th.last = th.last[:0]
		return n, cause, 0
	}
	for _, p := range th.last[i+1:] {
		if p.guessed {
			s.guesses = append(s.guesses, n)
		}
		pcs[n] = p.pc
		n++
	}
	th.last = th.last[i-1:]
	cause = unwind.Outermost
	if len(s.guesses) > 0 {
		cause = unwind.OutermostGuessed
	}
	return n, cause, fromLast
}

// readRest walks again with memory that is read now. It returns unwind.Unreadable where
// that is not to be had, or does not fit the copy.
func (f *refiller) readRest(s *Session, pid int32, th *thread, maps *unwind.Maps, first abi.Regs, mem *ehelf.Memory, ends [proofs]place, pcs []uint64) (int, unwind.Cause) {
	have := len(mem.Bytes)
	f.memory = append(f.memory[:0], mem.Bytes...)
	end := mem.Lo + uint64(have)
	for _, size := range restSizes {
		f.memory = slices.Grow(f.memory[:have], size)[:have+size]
		rest := f.memory[have:]
		got := readMemory(pid, end, rest)
		if got == 0 {
			return 0, unwind.Unreadable
		}
		// After the rest: what is there still has been all the while.
		from := ends[proofs-1].sp - word
		proof := mem.Bytes[from-mem.Lo:]
		if readMemory(pid, from, f.reread[:len(proof)]) < len(proof) || !bytes.Equal(f.reread[:len(proof)], proof) {
			s.counts.Changed++
			return 0, unwind.Unreadable
		}
		whole := ehelf.Memory{Lo: mem.Lo, Bytes: f.memory[:have+got]}
		regs := first
		n, cause, _ := s.walker.Walk(maps, &regs, &whole, pcs)
		if isWhole(cause) {
			s.guesses = append(s.guesses[:0], s.walker.Guesses...)
			f.remember(s, th, maps, first, regs, &whole, pcs[:n], cause)
			return n, cause
		}
		if got < size || !s.isCut(cause, &regs, &whole) {
			break
		}
	}
	return 0, unwind.Unreadable
}

// lastReturns finds the last frames of a stack of n, from the outermost on, whose return addresses
// the copy has: each one's pc is at sp-8. at is the registers of the last frame. It returns false
// if there are too few, or too far from the copy's end.
func (s *Session) lastReturns(n int, maps *unwind.Maps, first, at abi.Regs, mem *ehelf.Memory, pcs []uint64) (ends [proofs]place, ok bool) {
	const tries = 8
	found := 0
	for k := n; k > 1 && k > n-tries; k-- {
		if k < n {
			at = first
			if m, _, _ := s.walker.Walk(maps, &at, mem, pcs[:k]); m != k {
				return ends, false
			}
		}
		p := place{pc: at.Reg[abi.RIP], sp: at.Reg[abi.RSP]}
		if got, ok := mem.ReadWord(p.sp - word); !ok || got != p.pc {
			continue // as those have none that a signal has interrupted
		}
		if mem.Lo+uint64(len(mem.Bytes))-(p.sp-word) > farthest {
			return ends, false
		}
		ends[found] = p
		if found++; found == proofs {
			return ends, true
		}
	}
	return ends, false
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

// remember keeps the outer frames of a whole stack for the thread's next one. Where the
// stack is short, the next one will hardly be longer than its copy and share frames with it.
func (f *refiller) remember(s *Session, th *thread, maps *unwind.Maps, first, end abi.Regs, mem *ehelf.Memory, pcs []uint64, cause unwind.Cause) {
	th.last = th.last[:0]
	near := s.copied / 2
	if !isWhole(cause) || end.Reg[abi.RSP]-first.Reg[abi.RSP] < uint64(near) || len(mem.Bytes) <= near {
		return
	}
	if len(f.pcs) < len(pcs) {
		f.pcs = make([]uint64, len(pcs))
	}
	regs, part := first, ehelf.Memory{Lo: mem.Lo, Bytes: mem.Bytes[:near]}
	n, cause, _ := s.walker.Walk(maps, &regs, &part, f.pcs)
	if cause != unwind.Unreadable {
		return
	}
	for i := n - 1; i < len(pcs) && regs.Reg[abi.RIP] == pcs[i]; i++ {
		th.last = append(th.last, place{pcs[i], regs.Reg[abi.RSP], slices.Contains(s.guesses, i)})
		var two [2]uint64
		if n, _, _ := s.walker.Walk(maps, &regs, mem, two[:]); n < 2 {
			if i == len(pcs)-1 {
				return
			}
			break
		}
	}
	th.last = th.last[:0] // not known to be the same walk
}

// isWhole reports whether a walk with this end has all frames.
func isWhole(cause unwind.Cause) bool {
	return cause == unwind.Outermost || cause == unwind.OutermostGuessed
}
