package prove

import "github.com/ehasm/ehasm/abi"

// The stack frame of the functions: offsets from rsp below the pushed registers, as
// the proof assumes them. It requires only that the code uses the same ones
// throughout.
const (
	slotFirst  = 0   // the cursor minus the number of steps taken
	slotLow    = 8   // lowest host address of the window
	slotRegs   = 16  // eh_elf_regs_t *; null in a step of _eh_elf
	slotMem    = 24  // eh_elf_memory_t *; in _eh_elf the callback
	slotBase   = 32  // load bias + base + 1; in _eh_elf the pc
	slotSync   = 40  // the cursor when eh_elf_regs_t was last up to date
	slotHigh   = 48  // one past the highest CFA
	slotLeft   = 56  // steps of later segments, where the caller wants no pcs
	slotResult = 64  // _eh_elf: where the result goes
	slotCursor = 72  // the cursor during the slow path; the pc in a packed lookup
	slotExact  = 80  // exact of the caller, during the slow path
	slotSaved  = 88  // the machine's registers during the slow path
	slotNew    = 128 // the caller's registers during the slow path
	slotExpr   = 264 // stack of an expression
	slotPCs    = 64  // end of the pcs during the slow path
	slotNext   = 408 // where the walk goes on when it leaves the object
	frameBase  = -(8 + 416)
	numRegs    = abi.NumRegs
	segment    = abi.NumRegs // pcs of a segment where the caller wants none
)

// Masks of registers by DWARF number.
const (
	needed      = uint64(1<<abi.RSP | 1<<abi.RIP)
	inRegisters = uint64(abi.CalleeSaved) | needed
	outside     = uint64(0xc000000000000000) // the host address of an invalid rbp, which no window of the fast path holds
)

// The stack below rsp at the entry that own code may use, and what it may read from rsp
// on: the return address, and in _eh_elf the context.
const (
	stackLimit  = 512
	stackReturn = 8
	stackArgs   = 8 + 40
)

// readDepth is how deep the stack may be where readWord begins, its return address
// included: it is called in the frame, or in an expression. The rest is its own.
const readDepth = -(frameBase - exprPad - 8 - 8)

// exprPad is by how much an expression's code runs further down.
const exprPad = 8

// maxOffset bounds what the window's proof allows for: offsets of a CFA from rsp or
// rbp, and of a word from the CFA.
const maxOffset = 1 << 30

// A descriptor of a row, as the slow path reads it.
const (
	descCFAGiven  = 0 // the CFA is in r10, from rsp
	descCFAFromBP = 1 // the same, from rbp
	descCFAReg    = 2 // byte register, int64 offset
	descCFAExpr   = 3 // int32 offset of the code from _eh_elf
	descSignal    = 0x80

	ruleEnd       = 0
	ruleOffset8   = 1 // int8: saved at CFA + 8*operand
	ruleOffset    = 2 // int64: saved at CFA + operand
	ruleUndefined = 3
	ruleSame      = 4
	ruleValOffset = 5 // int64: is CFA + operand
	ruleRegister  = 6 // byte: is that register's value
	ruleExpr      = 7 // byte: 0 value, 1 saved there; int32 offset of the code
)

const (
	baseAlign   = 256 // of what pcs are looked up less
	maxPageBits = 8   // of pcs that an entry of the page table is for: a page is told by the low byte
)
