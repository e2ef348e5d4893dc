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

// refiller makes stacks whole that are longer than the kernel's copy of them.
type refiller struct {
	memory []byte // the copy, and after it what was read later
	again  [8 + proof]byte
	pcs    []uint64
}

// proof is how many bytes at the end of the copy have to be the same still when the rest
// is read, and so has the return address to the last frame. Without that, up to half of
// what is read has nothing to do with the copy.
const proof = 256

// restSizes is how much of a stack is read after the copy, one after the other until that
// has all of it.
var restSizes = [...]int{16 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20}

// complete goes on where the copy of a stack has ended: with the memory itself, if the
// end of the copy is still there, else with the callers that the same frame had in the
// thread's last stack. at is the registers of the last of its frames. It
// returns what Walk would have.
func (f *refiller) complete(s *Session, pid int32, th *thread, maps *unwind.Maps, first, at abi.Regs, mem *ehelf.Memory, pcs []uint64) (int, unwind.Cause, How) {
	if m, cause := f.readRest(s, pid, th, maps, first, at, mem, pcs); cause != unwind.Unreadable {
		return m, cause, FromLater
	}
	// The first walk's frames are overwritten by that of more memory.
	regs := first
	n, cause, _ := s.walker.Walk(maps, &regs, mem, pcs)
	s.guesses = append(s.guesses[:0], s.walker.Guesses...)
	i := slices.IndexFunc(th.last, func(p place) bool { return p.pc == at.Reg[abi.RIP] && p.sp == at.Reg[abi.RSP] })
	if i < 0 {
		th.last = th.last[:0]
		return n, cause, 0
	}
	outer := th.last[i+1:]
	if n+len(outer) > len(pcs) {
		th.last = th.last[:0]
		return n, cause, 0
	}
	for _, p := range outer {
		if p.guessed {
			s.guesses = append(s.guesses, n)
		}
		pcs[n] = p.pc
		n++
	}
	th.last = th.last[i:]
	cause = unwind.Outermost
	if len(s.guesses) > 0 {
		cause = unwind.OutermostGuessed
	}
	return n, cause, FromLast
}

// readRest walks again with memory that is read now. It returns unwind.Unreadable where
// that is not to be had, or does not fit the copy.
func (f *refiller) readRest(s *Session, pid int32, th *thread, maps *unwind.Maps, first, at abi.Regs, mem *ehelf.Memory, pcs []uint64) (int, unwind.Cause) {
	have := len(mem.Bytes)
	const word = 8
	returns := at.Reg[abi.RSP] - word // where the return address to the last frame is
	if have < proof || returns < mem.Lo || returns+word > mem.Lo+uint64(have) {
		returns = mem.Lo + uint64(max(have, proof)-proof) // the last frame is the first
	}
	if have < proof {
		return 0, unwind.Unreadable
	}
	f.memory = append(f.memory[:0], mem.Bytes...)
	end := mem.Lo + uint64(have)
	for _, size := range restSizes {
		f.memory = slices.Grow(f.memory[:have], size)[:have+size]
		rest := f.memory[have:]
		local := []unix.Iovec{{Base: &f.again[0], Len: word + proof}, {Base: &rest[0], Len: uint64(size)}}
		remote := []unix.RemoteIovec{{Base: uintptr(returns), Len: word}, {Base: uintptr(end - proof), Len: proof + size}}
		got, err := unix.ProcessVMReadv(int(pid), local, remote, 0)
		if err != nil || got <= word+proof {
			return 0, unwind.Unreadable
		}
		got -= word
		if !bytes.Equal(f.again[:word], mem.Bytes[returns-mem.Lo:][:word]) || !bytes.Equal(f.again[word:], mem.Bytes[have-proof:]) {
			s.counts.Changed++
			return 0, unwind.Unreadable
		}
		whole := ehelf.Memory{Lo: mem.Lo, Bytes: f.memory[:have+got-proof]}
		regs := first
		n, cause, _ := s.walker.Walk(maps, &regs, &whole, pcs)
		if isWhole(cause) {
			s.guesses = append(s.guesses[:0], s.walker.Guesses...)
			f.remember(s, th, maps, first, regs, &whole, pcs[:n], cause)
			return n, cause
		}
		if got < proof+size || !s.isCut(cause, &regs, &whole) {
			break
		}
	}
	return 0, unwind.Unreadable
}

// remember keeps the outer frames of a whole stack for the thread's next one. Where the
// stack is short, the next one will hardly be longer than its copy and share frames with it.
func (f *refiller) remember(s *Session, th *thread, maps *unwind.Maps, first, end abi.Regs, mem *ehelf.Memory, pcs []uint64, cause unwind.Cause) {
	th.last = th.last[:0]
	near := s.copied() / 2
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
	th.last = th.last[:0] // not the same walk, as far as can be told
}

// isWhole reports whether a walk that ended so has all frames.
func isWhole(cause unwind.Cause) bool {
	return cause == unwind.Outermost || cause == unwind.OutermostGuessed
}
