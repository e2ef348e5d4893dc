package x86

import "errors"

// Op is a mnemonic in Intel's spelling. Conditional jumps, moves and sets are OpJCC, OpCMOVCC and OpSETCC with
// Inst.Cond. Names that depend on the operand size are one Op: OpCBW also stands for cwde and cdqe, OpCWD for cdq and
// cqo. The numbers change with every run of gen; they are not for files.
type Op uint16

// Reg is a general register by the processor's number, as in the ModRM byte (SDM Vol. 2 Table 3-1). DWARF swaps some:
// its 1 is rdx, its 4 rsi, its 7 rsp (x86-64 psABI Figure 3.36).
type Reg uint8

// The general registers, and values that a memory operand may have in place of
// one.
const (
	RAX Reg = iota
	RCX
	RDX
	RBX
	RSP
	RBP
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	RIP             // as Mem.Base only: the address of the next instruction
	None Reg = 0xff // no base, no index
)

// Mask returns the register's bit in Reads, Writes and Partial; 0 for RIP and None, so callers need not ask whether an
// operand has a base.
func (r Reg) Mask() uint16 {
	if r > R15 {
		return 0
	}
	return 1 << r
}

// Cond is a condition as in the low four bits of Jcc's opcode (SDM Vol. 1 appendix B); Cond^1 is its opposite.
type Cond uint8

// The conditions.
const (
	CondO Cond = iota
	CondNO
	CondB
	CondAE
	CondE
	CondNE
	CondBE
	CondA
	CondS
	CondNS
	CondP
	CondNP
	CondL
	CondGE
	CondLE
	CondG
)

// Kind says what an operand is.
type Kind uint8

// The kinds of operands.
const (
	KNone Kind = iota
	KGPR       // a general register
	KVec       // xmm, ymm or zmm by Size
	KMMX
	KMask // k0-k7
	KTile
	KBnd
	KSeg
	KCtl
	KDbg
	KMem  // Inst.Mem
	KImm  // Inst.Imm
	KImm2 // Inst.Imm2
	KRel  // a jump's or call's distance from its end, in Inst.Imm
)

// Access says whether an operand is read, written or both.
type Access uint8

// Bits of Access.
const (
	Read  Access = 1
	Write Access = 2
)

// Arg is an explicit operand.
type Arg struct {
	Kind   Kind
	Access Access
	Reg    uint8 // register number of its kind
	Size   uint8 // bytes; 0 if the encoding does not say (lea, xsave, prefetch) or 255 if more
	High   bool  // ah, ch, dh or bh: bits 8 to 15 of Reg, which is 0 to 3
}

// Mem is a memory operand: Seg base + Base + Index*Scale + Disp.
type Mem struct {
	Disp   int64 // sign-extended; EVEX's compressed disp8 multiplied out; the whole address for movabs
	Base   Reg   // RIP or None too
	Index  Reg   // None if there is none; a vector register's number if VSIB
	Scale  uint8 // 1, 2, 4 or 8
	Seg    uint8 // FS (4) or GS (5) override, else 0
	Addr32 bool  // the address is cut to 32 bits
	VSIB   bool
}

// Prefix is the set of prefixes before the opcode: which of them occur, not in which order. Operands and effects take
// them into account already.
type Prefix uint16

// The prefixes. PrefixSeg: 2e, 36, 3e or 26, which 64-bit mode ignores (3e is notrack before an indirect branch).
// PrefixDup: one of them occurs twice. PrefixLateRex: a REX that a legacy prefix follows, and that so has no
// effect.
const (
	PrefixLock Prefix = 1 << iota
	PrefixF3
	PrefixF2
	PrefixOpSize
	PrefixAddrSize
	PrefixSeg
	PrefixFS
	PrefixGS
	PrefixNotrack
	PrefixDup
	PrefixLateRex
)

// Form is the form of encoding.
type Form uint8

// The encodings.
const (
	FormLegacy Form = iota
	FormVEX
	FormEVEX
	FormXOP
)

// Inst is a decoded instruction.
type Inst struct {
	Imm  int64 // immediate, sign-extended if the processor does so; for a relative target, the distance
	Imm2 int64 // enter's level, the second byte of extrq and insertq
	Mem  Mem
	Args [5]Arg // explicit operands in Intel's order, NArgs of them

	Reads   uint16 // general registers read, also for addresses
	Writes  uint16 // general registers written; a 32-bit write clears the upper half
	Partial uint16 // those of Writes of which only 8 or 16 bits change

	Op     Op
	Prefix Prefix
	Stack  int16 // what push, pop, call, ret and their kin add to rsp; leave, enter and moves to rsp are in Writes only

	// MemSize is the bytes that the access through Mem covers, 0 if unknown (rep, xsave); string instructions have rdi or
	// rsi as Mem.Base. The stack accesses of push, pop, call, ret, enter and leave are not in MemRead and MemWrite.
	MemSize  uint16
	MemRead  bool
	MemWrite bool

	Len    uint8
	NArgs  uint8
	Cond   Cond
	OpSize uint8 // 1, 2, 4 or 8: the operand size

	Enc Encoding
}

// Encoding says how an instruction is encoded, apart from its operands.
type Encoding struct {
	Form      Form
	Map       uint8 // 0 one-byte opcodes, 1 0f, 2 0f38, 3 0f3a, else as VEX, EVEX or XOP number them
	Opcode    uint8
	PP        uint8 // the mandatory prefix: 0 none, 1 66, 2 f3, 3 f2
	Rex       uint8 // the REX byte in effect, 0 if none
	W         bool  // REX.W or its like
	L         uint8 // vector length 0, 1, 2
	HasModRM  bool
	ModRM     uint8
	Broadcast bool  // EVEX.b with a memory operand
	DispLen   uint8 // bytes
	ImmLen    uint8 // bytes
}

// Target returns the target address of a relative jump or call at pc. It means nothing for other instructions, whose
// Imm is a value: look for KRel in Args first.
func (in *Inst) Target(pc uint64) uint64 { return pc + uint64(in.Len) + uint64(in.Imm) }

// RelTarget returns what a relative jump or call, or a lea on rip, at pc leads to; ok is false for others.
func (in *Inst) RelTarget(pc uint64) (target uint64, ok bool) {
	switch {
	case in.Args[0].Kind == KRel:
		return in.Target(pc), true
	case in.Op == OpLEA && in.Mem.Base == RIP:
		return pc + uint64(in.Len) + uint64(in.Mem.Disp), true
	}
	return 0, false
}

// MemAddr returns the link-time address of a rip-relative or absolute operand of the instruction at pc; ok is false if
// the address depends on a register or on a segment's base.
func (in *Inst) MemAddr(pc uint64) (uint64, bool) {
	if in.Mem.Index != None || in.Mem.Seg != 0 {
		return 0, false
	}
	switch in.Mem.Base {
	case RIP:
		return pc + uint64(in.Len) + uint64(in.Mem.Disp), true
	case None:
		return uint64(in.Mem.Disp), true
	}
	return 0, false
}

// Zeros returns how many bytes of 0 code begins with, if they are several: the fill between functions, also in an odd
// number that would take the first byte of an instruction with it.
func Zeros(code []byte) (n int) {
	for n < len(code) && code[n] == 0 {
		n++
	}
	if n < 2 {
		return 0
	}
	return n
}

// Errors of Decode for bytes that are not an instruction. ErrTruncated says that more bytes could make one: at the end
// of a section, or of the 15 bytes that are looked at.
var (
	ErrTruncated = errors.New("x86: the instruction is cut off")
	ErrInvalid   = errors.New("x86: no instruction")
)
