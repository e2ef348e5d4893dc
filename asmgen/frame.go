package asmgen

import (
	"github.com/twitchyliquid64/golang-asm/obj/x86"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
)

// Registers of the walk's fast path. The target's rbp lives in the machine's own;
// an invalid one holds a value that is in no window. The other callee-saved
// registers live in places, so that the machine's need not be kept.
const (
	rPC     = x86.REG_AX  // lookup pc relative to the plan's base; on a way to dispatch: the run-time pc
	rMask   = x86.REG_CX  // ecx: which of inRegisters are valid, as in abi.Regs
	rCursor = x86.REG_DX  // minus the number of steps left in the segment
	rBase   = x86.REG_SI  // load bias + plan base + 1
	rTmp    = x86.REG_DI  // scratch; a descriptor's address on the way to the slow path
	rPCs    = x86.REG_R8  // where the segment's pcs end: the next one goes to rPCs + 8*rCursor
	rSP     = x86.REG_R9  // the target's rsp as a host address
	rCFA    = x86.REG_R10 // the row's CFA as a host address; scratch in dispatch
	rDelta  = x86.REG_R11 // host address - target address
	rBP     = x86.REG_BP
)

// Registers of the slow path, all callee-saved. It saves the caller's in
// slotSaved, except rbp, which every walk pushes.
const (
	sRegs  = x86.REG_BX  // the target's registers: eh_elf_regs_t
	sDesc  = x86.REG_BP  // next byte of the row's descriptor
	sCFA   = x86.REG_R12 // the row's CFA, a target address
	sState = x86.REG_R13 // bits 0-16: valid in the caller; bits 32-48: has a value in slotNew
	sMem   = x86.REG_R14 // eh_elf_memory_t
	sReg   = x86.REG_R15 // DWARF number of the register of the current rule
)

// home is half of an SSE register. Two registers that follow each other in
// eh_elf_regs_t share one, since functions push them one after the other: then one
// instruction restores both. The lookup of packed pages uses xmm0 to xmm2.
type home struct {
	xmm  int16
	high bool
}

// homes holds the home of each of plan.FastRegs except rbp.
var homes = [plan.NumFast]home{
	{x86.REG_X5, false}, {}, {x86.REG_X3, false}, {x86.REG_X3, true}, {x86.REG_X4, false}, {x86.REG_X4, true},
}

// pairs reports whether register i and the next one are the halves of one home.
func pairs(i int) bool {
	return i+1 < plan.NumFast && homes[i+1] == home{homes[i].xmm, true}
}

// Indices of plan.FastRegs.
const (
	fastBX = 0
	fastBP = 1
)

// The stack frame of _eh_elf_walk: offsets from rsp in bytes. With the pushed
// register, the return addresses and readWord's frame it stays below the 512
// bytes of the ABI; a test measures it.
const (
	slotFirst  = 0          // the cursor minus the number of steps taken
	slotLow    = 8          // lowest host address of the window, for signed comparison
	slotRegs   = 16         // eh_elf_regs_t *; null in _eh_elf's own step
	slotMem    = 24         // eh_elf_memory_t *
	slotBase   = 32         // rBase
	slotSync   = 40         // cursor at which *slotRegs was last up to date
	slotHigh   = 48         // host address of the window's end
	slotLeft   = 56         // steps of later segments, if pcs is null
	slotResult = 64         // _eh_elf: where the result goes
	slotCursor = 72         // the cursor during the slow path
	slotExact  = 80         // uint32: exact of the caller, during the slow path
	slotSaved  = 88         // [5]uint64: the machine's registers during the slow path or _eh_elf's callback
	slotNew    = 128        // [17]uint64: the caller's registers; the pcs if pcs is null
	slotExpr   = 264        // [16]uint64: stack of an expression
	slotPCs    = slotResult // rPCs during the slow path, which _eh_elf's own step never takes
	slotDeref  = slotMem    // _eh_elf: the callback
	slotStepPC = slotBase   // _eh_elf: the pc
	slotPC     = slotCursor // packed lookup: rPC
	slotKeys   = slotExpr   // packed lookup: the first key of a long record
	slotNext   = 408        // pushed: where the walk goes on when it leaves the object; 0: nowhere
	frameSize  = 416        // 0 mod 16: with the return address and the pushed rbp, rsp is aligned

	pcsBuffer = abi.NumRegs // pcs in one segment if pcs is null
)

// machineSave is a callee-saved register of the machine.
type machineSave struct {
	reg   int16 // golang-asm's number
	dwarf uint8 // DWARF number
}

// slowSaved are the registers in slotSaved, in order.
var slowSaved = [...]machineSave{
	{x86.REG_BX, abi.RBX}, {x86.REG_R12, abi.R12}, {x86.REG_R13, abi.R13},
	{x86.REG_R14, abi.R14}, {x86.REG_R15, abi.R15},
}

// saveMachine emits the saving of some of them; frame notes it. loadMachine emits the
// inverse.
func (a *assembler) saveMachine(regs []machineSave, frame *frameRows) {
	for i, r := range regs {
		a.store(r.reg, slotSaved+8*int64(i))
	}
	frame.keep(a.bindNew(), regs, slotSaved)
}

// loadMachine emits the loads of registers that saveMachine has stored.
func (a *assembler) loadMachine(regs []machineSave) {
	for i, r := range regs {
		a.loadSlot(slotSaved+8*int64(i), r.reg)
	}
}

// outside is a host address above every window of the fast path, which end below
// 2^63, and negative; adding a row's offsets changes neither.
const outside = -1 << 62

// regOff returns the offset of a register in eh_elf_regs_t.
func regOff(dwarf int) int64 { return int64(abi.RegsReg) + 8*int64(dwarf) }
