// Package abi defines the eh_elf binary interface, version 1: the memory
// layouts that generated code reads and writes, the statuses of a walk, the
// exported symbol names and the identity notes. It imports no other package of
// the project; all others take these numbers from here.
package abi

import "fmt"

// Version is the number of the binary interface that this package describes.
const Version = 1

// Names of the two functions that an eh_elf exports.
const (
	SymbolStep = "_eh_elf"      // the interface of the original eh_elfs
	SymbolWalk = "_eh_elf_walk" // the full interface
)

// SymbolChain is a third function, with which the walkers of this project
// continue a walk in the next object with the registers in place. It is not part
// of the interface: a file may lack it, and its name changes when its behaviour
// does.
//
// It is called as _eh_elf_walk is, with an address in r9. When the walk leaves the object, its
// code jumps there: rax is the address to look up, plus one; rsi and rdi are free; rbx and r12 to
// r15 are the caller's; a jump to r10 with rsi 0 ends the walk; all else, including the stack
// frame, belongs to the walk. To go on in another object, jump to ChainNext bytes after that
// object's SymbolChain, with rax unchanged and the object's load bias in r10.
const (
	SymbolChain = "_eh_elf_chain_1"
	ChainNext   = 2
)

// Suffix is appended to an object's file name to get the name of its eh_elf.
const Suffix = ".eh_elf.so"

// TablesSuffix ends the names of files of tables by which the kernel unwinds, in caches.
const TablesSuffix = ".eh_elf.bpf"

// NumRegs is the number of registers a frame has: DWARF numbers 0 to 16 of the
// x86-64 psABI (figure 3.36), of which 16 is the return address.
const NumRegs = 17

// DWARF register numbers of the x86-64 psABI, figure 3.36.
const (
	RAX = iota
	RDX
	RCX
	RBX
	RSI
	RDI
	RBP
	RSP
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	RIP
)

// CalleeSaved has bit i set where register i is callee-saved in the psABI
// (figure 3.4), except rsp: rbx, rbp, r12 to r15.
const CalleeSaved uint32 = 1<<RBX | 1<<RBP | 1<<R12 | 1<<R13 | 1<<R14 | 1<<R15

// AllRegs has a bit set for each of the 17 registers.
const AllRegs uint32 = 1<<NumRegs - 1

// Regs is eh_elf_regs_t: the registers of one frame.
type Regs struct {
	Reg    [NumRegs]uint64 // by DWARF number; Reg[RIP] is the frame's pc, a run-time address
	Valid  uint32          // bit i: Reg[i] is known
	Exact  uint16          // 1: Reg[RIP] was executing; 0: it is a return address, looked up minus one
	Status Status          // out: why the walk stopped
}

// LookupPC returns the run-time address by which the frame is looked up: the pc, or
// one less if it is a return address, which may lie after the end of the calling
// function.
func (r *Regs) LookupPC() uint64 {
	if r.Exact == 0 {
		return r.Reg[RIP] - 1
	}
	return r.Reg[RIP]
}

// Memory is eh_elf_memory_t: what a walk may read of the target.
type Memory struct {
	Lo    uint64  // lowest readable target address of the window
	Size  uint64  // bytes readable from Lo on
	Bytes uintptr // host address at which target address Lo is found
	Read  uintptr // C function int (*)(void *arg, uint64_t addr, uint64_t *word); 0: none
	Arg   uintptr // first argument of Read
}

// Context is unwind_context_t of the original interface.
type Context struct {
	Flags uint8
	RIP   uint64
	RSP   uint64
	RBP   uint64
	RBX   uint64
}

// Bits of Context.Flags on return.
const (
	ContextRIP   = 1 << 0
	ContextRSP   = 1 << 1
	ContextRBP   = 1 << 2
	ContextRBX   = 1 << 3
	ContextError = 1 << 7
)

// Offsets and sizes of the three structures in bytes, as generated code uses
// them. They are those of the C declarations on x86-64 on any host: on a 32-bit
// host the Go types have another layout.
const (
	RegsReg    = 0
	RegsValid  = 136
	RegsExact  = 140
	RegsStatus = 142
	RegsSize   = 144

	MemoryLo    = 0
	MemorySize  = 8
	MemoryBytes = 16
	MemoryRead  = 24
	MemoryArg   = 32
	MemoryLen   = 40

	ContextFlagsOff = 0
	ContextRIPOff   = 8
	ContextRSPOff   = 16
	ContextRBPOff   = 24
	ContextRBXOff   = 32
	ContextSize     = 40
)

// Status says why a walk stopped.
type Status int16

const (
	StatusOK          Status = 0  // max steps were taken
	StatusOutermost   Status = 1  // the frame's return address is undefined: end of stack
	StatusNoInfo      Status = -1 // no unwind information for the pc
	StatusUnreadable  Status = -2 // the return address, or a word its expression or the CFA's needs, is unreadable
	StatusBadRegister Status = -3 // the row needs a register that is not valid
	StatusNotCompiled Status = -4 // the row holds a rule that could not be compiled
)

func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusOutermost:
		return "end of stack"
	case StatusNoInfo:
		return "no unwind information"
	case StatusUnreadable:
		return "unreadable memory"
	case StatusBadRegister:
		return "register not valid"
	case StatusNotCompiled:
		return "rule not compiled"
	}
	return fmt.Sprintf("status %d", int16(s))
}

// RegName returns the psABI name of a DWARF register number, or "rN".
func RegName(reg int) string {
	names := [NumRegs]string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip"}
	if reg >= 0 && reg < NumRegs {
		return names[reg]
	}
	return fmt.Sprintf("r%d", reg)
}
