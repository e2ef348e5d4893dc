package unwind

import (
	"bytes"
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// A signal handler returns to code that asks the kernel to resume the interrupted
// code. glibc has unwind information for it; musl has none, and Go's describes it as an
// ordinary function. As in gdb, libgcc and libunwind, it is recognised by its bytes. The
// registers that the kernel restores are above it on the stack: uc of struct rt_sigframe
// in arch/x86/include/asm/sigframe.h.

// Offsets in struct ucontext, which rsp points to in such code.
const (
	ucFlags  = 0  // a few bits
	ucLink   = 8  // 0
	ucGregs  = 40 // struct sigcontext_64 in arch/x86/include/uapi/asm/sigcontext.h
	maxFlags = 15 // arch/x86/include/uapi/asm/ucontext.h has three bits
)

// gregs are the registers that struct sigcontext_64 begins with.
var gregs = [...]uint8{abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15,
	abi.RDI, abi.RSI, abi.RBP, abi.RBX, abi.RDX, abi.RAX, abi.RCX, abi.RSP, abi.RIP}

// stepSigreturn steps from the code that returns from a signal handler, at a file
// offset, to the interrupted frame. is reports whether this is such code; ok reports
// whether the stack is readable, without which regs do not change.
func (o *Object) stepSigreturn(offset uint64, regs *abi.Regs, mem *ehelf.Memory) (is, ok bool) {
	const word = 8
	if regs.Valid>>abi.RSP&1 == 0 {
		return false, false
	}
	var stack []byte // from rsp on
	if off := regs.Reg[abi.RSP] - mem.Lo; off <= uint64(len(mem.Bytes)) {
		stack = mem.Bytes[off:]
	}
	// Most stacks show without a look at the file that this is no such code.
	if len(stack) >= ucLink+word && (binary.LittleEndian.Uint64(stack[ucFlags:]) > maxFlags ||
		binary.LittleEndian.Uint64(stack[ucLink:]) != 0) {
		return false, false
	}
	if !o.isSigreturn(offset) {
		return false, false
	}
	if len(stack) < ucGregs+len(gregs)*word {
		return true, false
	}
	for i, reg := range gregs {
		regs.Reg[reg] = binary.LittleEndian.Uint64(stack[ucGregs+i*word:])
	}
	regs.Valid, regs.Exact = abi.AllRegs, 1
	return true, true
}

// isSigreturn reports whether the code at a file offset returns from a signal handler.
func (o *Object) isSigreturn(offset uint64) bool {
	const most = uint64(abi.MaxSigreturn - syscallSize) // bytes before the last instruction
	var buf [most + abi.MaxSigreturn]byte
	before := min(offset, most)
	n := o.readCode(buf[:before+abi.MaxSigreturn], offset-before)
	return sigreturnAt(buf[:n], int(before))
}

// syscallSize is the length of the instruction that each of abi.Sigreturn ends in, in bytes.
const syscallSize = len("\x0f\x05")

// sigreturnAt reports whether the instruction at an offset of code is the first or the last of one of abi.Sigreturn.
func sigreturnAt(code []byte, off int) bool {
	for _, insns := range abi.Sigreturn {
		for _, back := range []int{0, len(insns) - syscallSize} {
			if off >= back && off <= len(code) && bytes.HasPrefix(code[off-back:], []byte(insns)) {
				return true
			}
		}
	}
	return false
}
