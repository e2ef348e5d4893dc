package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"ehasm/abi"
	"ehasm/asmgen/plan"
)

// Registers of the walk's fast path. The target's rbx, rbp and r12 to r15 live in
// the machine's own; an invalid rbp holds a value that is in no window.
const (
	rPC     = x86.REG_AX  // lookup pc relative to the plan's base; on a way to dispatch: the run-time pc
	rMask   = x86.REG_CX  // ecx: which of inRegisters are valid, as in abi.Regs
	rCursor = x86.REG_DX  // where the next pc is written
	rBase   = x86.REG_SI  // load bias + plan base + 1
	rTmp    = x86.REG_DI  // scratch; descriptor offset on the way to the slow path
	rEnd    = x86.REG_R8  // host address of the window's end
	rSP     = x86.REG_R9  // the target's rsp as a host address
	rCFA    = x86.REG_R10 // the row's CFA as a host address; scratch in dispatch
	rDelta  = x86.REG_R11 // host address - target address
)

// Registers of the slow path, all of them kept by whatever it calls.
const (
	sRegs  = x86.REG_BX  // the target's registers: eh_elf_regs_t
	sDesc  = x86.REG_BP  // next byte of the row's descriptor
	sCFA   = x86.REG_R12 // the row's CFA, a target address
	sState = x86.REG_R13 // bits 0-16: valid in the caller; bits 32-48: has a value in slotNew
	sMem   = x86.REG_R14 // eh_elf_memory_t
	sReg   = x86.REG_R15 // DWARF number of the register of the current rule
)

// machineReg gives the machine register that holds each of plan.FastRegs.
var machineReg = [plan.NumFast]int16{
	x86.REG_BX, x86.REG_BP, x86.REG_R12, x86.REG_R13, x86.REG_R14, x86.REG_R15,
}

// The stack frame of _eh_elf_walk: offsets from rsp in bytes. With the pushed
// registers, the return addresses and readWord's frame it stays below the 512
// bytes of the ABI; a test measures it.
const (
	slotEnd    = 0          // cursor at which the segment ends
	slotLow    = 8          // lowest host address of the window, for signed comparison
	slotRegs   = 16         // eh_elf_regs_t *; null in _eh_elf's own step
	slotMem    = 24         // eh_elf_memory_t *
	slotBias   = 32         // load bias
	slotSync   = 40         // cursor at which *slotRegs was last up to date
	slotBegin  = 48         // the cursor less 8 bytes for each step taken
	slotLeft   = 56         // steps of later segments
	slotResult = 64         // _eh_elf: where the result goes
	slotCursor = 72         // the cursor during the slow path
	slotExact  = 80         // uint32: exact of the caller, during the slow path
	slotNew    = 88         // [17]uint64: the caller's registers; pcs of a caller that wants none
	slotExpr   = 224        // [16]uint64: stack of an expression
	slotDeref  = slotMem    // _eh_elf: the callback
	slotStepPC = slotBias   // _eh_elf: the pc
	slotPC     = slotCursor // packed lookup: rPC
	slotKeys   = slotExpr   // packed lookup: the first key of a long record
	frameSize  = 360        // 8 mod 16: with the return address and six pushes, rsp is aligned

	pcsBuffer = abi.NumRegs // pcs in one segment where the caller wants none
)

// pushed are the registers that _eh_elf_walk saves on entry, in order.
var pushed = [...]struct {
	reg   int16
	dwarf uint8
}{
	{x86.REG_BP, abi.RBP}, {x86.REG_BX, abi.RBX}, {x86.REG_R12, abi.R12},
	{x86.REG_R13, abi.R13}, {x86.REG_R14, abi.R14}, {x86.REG_R15, abi.R15},
}

// outside is a host address above every window of the fast path, and so far
// above that adding a row's offsets does not change that.
const outside = 1 << 62

// regOff is the offset of a register in eh_elf_regs_t.
func regOff(dwarf int) int64 { return int64(abi.RegsReg) + 8*int64(dwarf) }
