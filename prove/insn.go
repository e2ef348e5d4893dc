package prove

import "encoding/binary"

// This file has the form of decoded instructions and the reader of their operands. insn1.go and insn2.go know the
// opcodes, one after the other; semantics.go says what each does.

// inst is an instruction of the few forms in generated code (Intel SDM volume 2). Any other byte
// sequence is refused, and so are prefixes without effect: what is decoded here is what every
// processor runs.
type inst struct {
	op  instOp
	cc  uint8 // condition of a jump, set or move: the low four bits of the opcode
	n   uint8 // length in bytes
	w   uint8 // bytes of the operands
	sw  uint8 // bytes of the source of movzx and movsx
	dst operand
	src operand
	imm int64 // sign-extended to 64 bits; of a jump or call: the distance from its end
}

// operand is a register, a place in memory or the constant of the instruction.
type operand struct {
	kind  operandKind
	reg   uint8 // register number; base register in memory
	index uint8 // number of the index register, where scale is not 0
	scale uint8 // 0: no index
	high  bool  // of an SSE register
	disp  int64 // of memory: sign-extended
}

// operandKind says what an operand is.
type operandKind uint8

const (
	opNone operandKind = iota
	opReg              // a general register
	opXMM
	opMem // reg + index*scale + disp
	opRIP // disp from the instruction's end
	opImm
)

// instOp is an operation, by its mnemonic. Those with a suffix of their own differ in operands.
type instOp uint8

const (
	iBad instOp = iota
	iAdd
	iOr
	iSbb
	iAnd
	iSub
	iXor
	iCmp
	iTest
	iMov
	iMovzx
	iMovsx
	iLea
	iNot
	iNeg
	iInc
	iDec
	iShl
	iShr
	iSar
	iMul  // imul of two operands
	iMul3 // of three operands, the last a constant
	iDiv
	iIdiv
	iCqo // sign of rax to rdx
	iBt
	iBts
	iBtr
	iBsf
	iTzcnt
	iCmov
	iSet
	iJcc // conditional jump
	iJmp
	iJmpTo // through a register or memory
	iCall
	iCallTo // through a register or memory
	iRet
	iPush
	iPop
	iClc
	iStc
	iMovups  // 16 bytes
	iMovlps  // 8 bytes, low half
	iMovhps  // 8 bytes, high half
	iMovd    // 4 bytes of a general register to an SSE register, the rest 0
	iMovdq   // 16 bytes between SSE registers or from memory
	iPshufd0 // all four words become the lowest
	iPminub
	iPcmpeqb
	iPmovmskb
)

// Registers by their numbers in instructions.
const (
	rAX = iota
	rCX
	rDX
	rBX
	rSP
	rBP
	rSI
	rDI
	r8
	r9
	r10
	r11
	r12
	r13
	r14
	r15
)

// decoder reads one instruction. After a read behind the end, bad is set and reads return 0.
type decoder struct {
	b   []byte
	pos int
	bad bool // truncated, or a form that is refused
	rex byte // the REX prefix, 0 if there is none
}

// u8, i8, i32 and i64 read the next 1, 4 or 8 bytes, the signed ones sign-extended to 64 bits.
func (d *decoder) u8() byte {
	if d.pos >= len(d.b) {
		d.bad = true
		return 0
	}
	d.pos++
	return d.b[d.pos-1]
}

func (d *decoder) i8() int64 { return int64(int8(d.u8())) }

func (d *decoder) i32() int64 {
	if d.pos+4 > len(d.b) {
		d.bad = true
		return 0
	}
	d.pos += 4
	return int64(int32(binary.LittleEndian.Uint32(d.b[d.pos-4:])))
}

func (d *decoder) i64() int64 {
	if d.pos+8 > len(d.b) {
		d.bad = true
		return 0
	}
	d.pos += 8
	return int64(binary.LittleEndian.Uint64(d.b[d.pos-8:]))
}

// modrm reads a ModRM byte and what follows: the register field, and the other operand. xmm says
// that a register operand is an SSE register. Addresses without a base register, and index
// encodings without an index but with a scale, are refused.
func (d *decoder) modrm(xmm bool) (reg uint8, rm operand) {
	m := d.u8()
	reg = m>>3&7 | d.rex<<1&8
	mod, low := m>>6, m&7
	if mod == 3 {
		rm = operand{kind: opReg, reg: low | d.rex<<3&8}
		if xmm {
			rm.kind = opXMM
		}
		return reg, rm
	}
	rm = operand{kind: opMem, reg: low | d.rex<<3&8}
	switch {
	case low == 4: // SIB
		sib := d.u8()
		rm.reg = sib&7 | d.rex<<3&8
		if index := sib>>3&7 | d.rex<<2&8; index != rSP {
			rm.index, rm.scale = index, 1<<(sib>>6)
		} else if sib>>6 != 0 {
			d.bad = true
		}
		if sib&7 == 5 && mod == 0 {
			d.bad = true // no base
		}
	case low == 5 && mod == 0:
		rm = operand{kind: opRIP, disp: d.i32()}
		return reg, rm
	}
	switch mod {
	case 1:
		rm.disp = d.i8()
	case 2:
		rm.disp = d.i32()
	}
	return reg, rm
}

// aluOps are the operations by bits 3 to 5 of their opcode or ModRM byte (SDM volume 2, table A-6);
// adc is never emitted.
var aluOps = [8]instOp{iAdd, iOr, iBad, iSbb, iAnd, iSub, iXor, iCmp}
