package prove

import "encoding/binary"

// inst is an instruction of the few forms in generated code (Intel SDM volume 2).
// Any other byte sequence is refused, and so are prefixes without effect.
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
	index uint8
	scale uint8 // 0: no index
	high  bool  // of an SSE register
	disp  int64
}

type operandKind uint8

const (
	opNone operandKind = iota
	opReg              // a general register
	opXMM
	opMem // reg + index*scale + disp
	opRIP // disp from the instruction's end
	opImm
)

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
	iMul // imul of two operands
	iMul3
	iDiv
	iIdiv
	iCqo
	iBt
	iBts
	iBtr
	iBsf
	iTzcnt
	iCmov
	iSet
	iJcc
	iJmp
	iJmpTo // through a register or memory
	iCall
	iCallTo
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

// decoder reads one instruction.
type decoder struct {
	b   []byte
	pos int
	bad bool
	rex byte
}

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

// modrm reads a ModRM byte and what follows: the register field, and the other operand.
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

var aluOps = [8]instOp{iAdd, iOr, iBad, iSbb, iAnd, iSub, iXor, iCmp}

// decode reads the instruction at the begin of b. ok is false if it is none of
// the forms.
func decode(b []byte) (i inst, ok bool) {
	d := decoder{b: b}
	op := d.u8()
	var word, rep bool
	switch op {
	case 0x66:
		word = true
		op = d.u8()
	case 0xf3:
		rep = true
		op = d.u8()
	}
	if op&0xf0 == 0x40 {
		d.rex = op
		op = d.u8()
	}
	i.w = 4
	if d.rex&8 != 0 {
		i.w = 8
	}
	if word {
		if i.w == 8 {
			return i, false
		}
		i.w = 2
	}
	if op == 0x0f {
		d.two(&i, d.u8(), word, rep)
	} else if rep {
		return i, false
	} else {
		d.one(&i, op, word)
	}
	i.n = uint8(d.pos)
	return i, i.op != iBad && !d.bad
}

func reg8(d *decoder, o operand) operand {
	// Without REX, 4 to 7 are the second bytes of rax to rbx, which no form uses.
	if o.kind == opReg && o.reg >= 4 && o.reg < 8 && d.rex == 0 {
		d.bad = true
	}
	return o
}

// one decodes the instructions of one opcode byte.
func (d *decoder) one(i *inst, op byte, word bool) {
	general := func(r uint8) operand { return operand{kind: opReg, reg: r} }
	immediate := func() int64 { // of the operand's size, at most 4 bytes
		if i.w == 2 {
			lo := d.u8()
			return int64(int16(uint16(lo) | uint16(d.u8())<<8))
		}
		return d.i32()
	}
	if word && op != 0x83 && op != 0x81 && op != 0x89 {
		return // the word forms are a comparison with a constant and a store
	}
	switch {
	case op < 0x40 && op&7 < 6:
		i.op = aluOps[op>>3]
		switch op & 7 {
		case 1:
			r, rm := d.modrm(false)
			i.dst, i.src = rm, general(r)
		case 3:
			r, rm := d.modrm(false)
			i.dst, i.src = general(r), rm
		case 4:
			i.w, i.dst, i.src, i.imm = 1, general(rAX), operand{kind: opImm}, d.i8()
		case 5:
			i.dst, i.src, i.imm = general(rAX), operand{kind: opImm}, d.i32()
		default:
			i.op = iBad
		}
	case op >= 0x50 && op < 0x58:
		i.op, i.w, i.src = iPush, 8, general(op&7|d.rex<<3&8)
	case op >= 0x58 && op < 0x60:
		i.op, i.w, i.dst = iPop, 8, general(op&7|d.rex<<3&8)
	case op == 0x63:
		r, rm := d.modrm(false)
		i.op, i.sw, i.dst, i.src = iMovsx, 4, general(r), rm
		if i.w != 8 {
			i.op = iBad
		}
	case op == 0x68:
		i.op, i.w, i.src, i.imm = iPush, 8, operand{kind: opImm}, d.i32()
	case op == 0x6a:
		i.op, i.w, i.src, i.imm = iPush, 8, operand{kind: opImm}, d.i8()
	case op == 0x69 || op == 0x6b:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iMul3, general(r), rm
		if op == 0x69 {
			i.imm = d.i32()
		} else {
			i.imm = d.i8()
		}
	case op >= 0x70 && op < 0x80:
		i.op, i.cc, i.imm = iJcc, op&15, d.i8()
	case op == 0x80 || op == 0x81 || op == 0x83:
		if op == 0x80 {
			i.w = 1
		}
		r, rm := d.modrm(false)
		if i.w == 1 {
			rm = reg8(d, rm)
		}
		i.op, i.dst, i.src = aluOps[r&7], rm, operand{kind: opImm}
		if op == 0x81 {
			i.imm = immediate()
		} else {
			i.imm = d.i8()
		}
	case op == 0x84 || op == 0x85:
		if op == 0x84 {
			i.w = 1
		}
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iTest, rm, general(r)
		if i.w == 1 {
			i.dst, i.src = reg8(d, i.dst), reg8(d, i.src)
		}
	case op == 0x89 || op == 0x8b:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iMov, rm, general(r)
		if op == 0x8b {
			i.dst, i.src = general(r), rm
		}
	case op == 0x8d:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iLea, general(r), rm
		if rm.kind == opReg {
			i.op = iBad
		}
	case op == 0x99:
		i.op = iCqo
		if i.w != 8 {
			i.op = iBad
		}
	case op == 0xa8 || op == 0xa9:
		i.op, i.dst, i.src = iTest, general(rAX), operand{kind: opImm}
		if op == 0xa8 {
			i.w, i.imm = 1, d.i8()
		} else {
			i.imm = d.i32()
		}
	case op >= 0xb8 && op < 0xc0:
		i.op, i.dst, i.src = iMov, general(op&7|d.rex<<3&8), operand{kind: opImm}
		if i.w == 8 {
			i.imm = d.i64()
		} else {
			i.imm = d.i32()
		}
	case op == 0xc1 || op == 0xd1 || op == 0xd3:
		r, rm := d.modrm(false)
		i.dst, i.src = rm, operand{kind: opImm}
		switch r & 7 {
		case 4:
			i.op = iShl
		case 5:
			i.op = iShr
		case 7:
			i.op = iSar
		}
		switch op {
		case 0xc1:
			i.imm = d.i8()
			if i.imm <= 0 || i.imm >= 8*int64(i.w) {
				i.op = iBad // by 0, flags keep their value
			}
		case 0xd1:
			i.imm = 1
		default:
			i.src = general(rCX)
		}
	case op == 0xc7:
		r, rm := d.modrm(false)
		i.dst, i.src, i.imm = rm, operand{kind: opImm}, d.i32()
		if r&7 == 0 {
			i.op = iMov
		}
	case op == 0xc3 && d.rex == 0:
		i.op = iRet
	case op == 0xe8 && d.rex == 0:
		i.op, i.imm = iCall, d.i32()
	case op == 0xe9 && d.rex == 0:
		i.op, i.imm = iJmp, d.i32()
	case op == 0xeb && d.rex == 0:
		i.op, i.imm = iJmp, d.i8()
	case op == 0xf6 || op == 0xf7:
		if op == 0xf6 {
			i.w = 1
		}
		r, rm := d.modrm(false)
		i.dst = rm
		switch r & 7 {
		case 0:
			i.op, i.src = iTest, operand{kind: opImm}
			if i.w == 1 {
				i.dst, i.imm = reg8(d, rm), d.i8()
			} else {
				i.imm = d.i32()
			}
		case 2:
			i.op = iNot
		case 3:
			i.op = iNeg
		case 6:
			i.op = iDiv
		case 7:
			i.op = iIdiv
		}
		if i.w == 1 && i.op != iTest {
			i.op = iBad
		}
	case op == 0xf8 && d.rex == 0:
		i.op = iClc
	case op == 0xf9 && d.rex == 0:
		i.op = iStc
	case op == 0xff:
		r, rm := d.modrm(false)
		i.dst = rm
		switch r & 7 {
		case 0:
			i.op = iInc
		case 1:
			i.op = iDec
		case 2:
			i.op, i.w = iCallTo, 8
		case 4:
			i.op, i.w = iJmpTo, 8
		}
	}
}
