//go:build linux && amd64

package main

import (
	"github.com/ehasm/ehasm/abi"
)

// saved lists the registers that a frame's truth has besides CFA and return
// address, by DWARF number (x86-64 psABI figure 3.4).
var saved = [...]int{abi.RBX, abi.RBP, abi.R12, abi.R13, abi.R14, abi.R15}

// frame is the frame of a callee as its call determines it.
type frame struct {
	cfa    uint64             // rsp before the call
	ra     uint64             // the return address; 0: not known
	regs   [len(saved)]uint64 // the callee-saved registers at the call
	signal bool               // the frame that the kernel pushed; cfa is the interrupted rsp
}

// shadow is the stack of a thread's frames, built from its calls, outermost
// first.
type shadow struct {
	frames []frame
}

// farAway is larger than any stack, in bytes: an rsp that far from the frames is on
// another stack.
const farAway = 64 << 20

// top returns the frame that executes, or nil if it is not known.
func (s *shadow) top() *frame {
	if len(s.frames) == 0 {
		return nil
	}
	return &s.frames[len(s.frames)-1]
}

// newFrame returns the frame of a call with the registers r before it.
func newFrame(cfa, ra uint64, r *abi.Regs) frame {
	f := frame{cfa: cfa, ra: ra}
	for i, reg := range saved {
		f.regs[i] = r.Reg[reg]
	}
	return f
}

// step follows one instruction: k is its kind, before and after are the registers
// around it.
func (s *shadow) step(k kind, before, after *abi.Regs, mem *memory) {
	rsp := after.Reg[abi.RSP]
	switch k {
	case call:
		if rsp != before.Reg[abi.RSP]-8 { // faulted, and did not execute
			return
		}
		if ra, ok := mem.ReadWord(rsp); ok {
			s.frames = append(s.frames, newFrame(rsp+8, ra, before))
		}
	case ret, indirectJump:
		s.leave(k, after)
	case systemCall:
		if before.Reg[abi.RAX] == sigreturn && after.Reg[abi.RIP] != before.Reg[abi.RIP] {
			s.endSignal(rsp)
		}
	}
}

// sigreturn is the number of rt_sigreturn (Linux, arch/x86/entry/syscalls/syscall_64.tbl).
const sigreturn = 15

// leave drops the frames that a return, or a jump such as longjmp's, has left.
func (s *shadow) leave(k kind, after *abi.Regs) {
	top := s.top()
	if top == nil {
		return
	}
	rsp := after.Reg[abi.RSP]
	if rsp+farAway < top.cfa || rsp > top.cfa+farAway { // to another stack: which frames are left is not known
		s.frames = s.frames[:0] // a change of stacks
		return
	}
	if k == ret && rsp == top.cfa && top.ra != 0 && after.Reg[abi.RIP] != top.ra {
		s.frames = s.frames[:0] // other code wrote the return address
		return
	}
	if top.cfa > rsp && top.ra != 0 && after.Reg[abi.RIP] == top.ra { // it returns with its own words left on the stack
		s.frames = s.frames[:len(s.frames)-1]
		return
	}
	// Drop all frames whose CFA is at or below rsp: a longjmp leaves several.
	for top != nil && top.cfa <= rsp && !top.signal {
		s.frames = s.frames[:len(s.frames)-1]
		top = s.top()
	}
}

// endSignal drops the frames of a signal handler, which rt_sigreturn has ended.
func (s *shadow) endSignal(rsp uint64) {
	for i := len(s.frames) - 1; i >= 0; i-- {
		if f := &s.frames[i]; f.signal {
			s.frames = s.frames[:i]
			if f.cfa != rsp { // the handler changed what it returns to
				s.frames = s.frames[:0]
			}
			return
		}
	}
	s.frames = s.frames[:0]
}

// beginSignal adds the frames of a handler that is about to execute its first
// instruction: the one that the kernel pushed and the handler's own.
func (s *shadow) beginSignal(interrupted, now *abi.Regs, mem *memory) {
	ra, ok := mem.ReadWord(now.Reg[abi.RSP])
	if !ok || now.Reg[abi.RSP] == interrupted.Reg[abi.RSP] || !mem.isRestorer(ra) {
		return // ignored, or not delivered yet
	}
	// A system call that will be started again is returned to at its own start, so
	// that the address is left open.
	kernel := newFrame(interrupted.Reg[abi.RSP], 0, interrupted)
	kernel.signal = true
	handler := newFrame(now.Reg[abi.RSP]+8, ra, now)
	s.frames = append(s.frames, kernel, handler)
}
