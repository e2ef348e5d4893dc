package prove

// This file decodes the one-byte opcodes that generated code uses, numbers as in Intel SDM volume
// 2, opcode map. It accepts less than a processor does: what the emitter never writes stays iBad.

// general is a general register as an operand.
func general(r uint8) operand { return operand{kind: opReg, reg: r} }

// constant is an operand whose value is in inst.imm.
func constant() operand { return operand{kind: opImm} }

// reg8 returns an operand of one byte, and refuses the registers ah to bh.
func reg8(d *decoder, o operand) operand {
	// Without REX, 4 to 7 are the second bytes of rax to rbx, which no form uses.
	if o.kind == opReg && o.reg >= 4 && o.reg < 8 && d.rex == 0 {
		d.bad = true
	}
	return o
}

// one decodes the instructions of one opcode byte. word says that the operands have 2 bytes.
func (d *decoder) one(i *inst, op byte, word bool) {
	// With prefix 66: 83 and 81 have a constant of 1 or 2 bytes, 89 stores a register's low 2
	// bytes.
	if word && op != 0x83 && op != 0x81 && op != 0x89 {
		return // the word forms are a comparison with a constant and a store
	}
	switch {
	// 00 to 3f without the two last of each eight: add, or, adc, sbb, and, sub, xor, cmp.
	case op < 0x40 && op&7 < 6:
		d.alu(i, op)
	// 50 to 5f; the other codes stay iBad.
	case op < 0x60:
		d.pushPop(i, op)
	// 68 pushes 4 bytes, 6a one, both sign-extended to 8.
	case op == 0x68 || op == 0x6a:
		i.op, i.w, i.src, i.imm = iPush, 8, constant(), d.imm(op == 0x6a)
	// 63 is movsxd.
	case op == 0x63:
		r, rm := d.modrm(false)
		i.op, i.sw, i.dst, i.src = iMovsx, 4, general(r), rm
		if i.w != 8 {
			i.op = iBad
		}
	// 69 and 6b: imul with three operands.
	case op == 0x69 || op == 0x6b:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src, i.imm = iMul3, general(r), rm, d.imm(op == 0x6b)
	// 70 to 7f: conditional jumps with 1 byte of distance.
	case op >= 0x70 && op < 0x80:
		i.op, i.cc, i.imm = iJcc, op&15, d.i8()
	// 80: bytes; 81: a constant of the operand's size; 83: one byte, sign-extended.
	case op == 0x80 || op == 0x81 || op == 0x83:
		d.aluConst(i, op)
	case op == 0x84 || op == 0x85 || op == 0xa8 || op == 0xa9:
		d.test(i, op)
	// mov (89, 8b, b8 to bf, c7) and lea (8d).
	case op == 0x89 || op == 0x8b || op == 0x8d || op >= 0xb8 && op < 0xc0 || op == 0xc7:
		d.move(i, op)
	// c1: by a constant; d1: by 1; d3: by cl.
	case op == 0xc1 || op == 0xd1 || op == 0xd3:
		d.shift(i, op)
	// A REX prefix would change nothing, so the emitter has none here.
	case op == 0xe8 && d.rex == 0:
		i.op, i.imm = iCall, d.i32()
	case (op == 0xe9 || op == 0xeb) && d.rex == 0:
		i.op, i.imm = iJmp, d.imm(op == 0xeb)
	case op == 0xf6 || op == 0xf7:
		d.unary(i, op)
	case op == 0xff:
		d.incTo(i)
	default:
		d.bare(i, op)
	}
}

// imm reads a constant of one byte or of four.
func (d *decoder) imm(short bool) int64 {
	if short {
		return d.i8()
	}
	return d.i32()
}

// bare decodes the instructions without operands.
func (d *decoder) bare(i *inst, op byte) {
	switch {
	case op == 0x99 && i.w == 8:
		i.op = iCqo
	// The rest takes no prefix.
	case d.rex != 0:
	case op == 0xc3:
		i.op = iRet
	case op == 0xf8:
		i.op = iClc
	case op == 0xf9:
		i.op = iStc
	}
}

// alu decodes an operation on two registers, a register and memory, or rax and a constant. The low
// three bits of the opcode say which.
func (d *decoder) alu(i *inst, op byte) {
	i.op = aluOps[op>>3]
	switch op & 7 {
	// 01: r/m with r.
	case 1:
		r, rm := d.modrm(false)
		i.dst, i.src = rm, general(r)
	// 03: r with r/m.
	case 3:
		r, rm := d.modrm(false)
		i.dst, i.src = general(r), rm
	// 04: al with a byte.
	case 4:
		i.w, i.dst, i.src, i.imm = 1, general(rAX), constant(), d.i8()
	// 05: eax or rax with 4 bytes, sign-extended.
	case 5:
		i.dst, i.src, i.imm = general(rAX), constant(), d.i32()
	default:
		i.op = iBad
	}
}

// aluConst decodes an operation with a constant.
func (d *decoder) aluConst(i *inst, op byte) {
	if op == 0x80 {
		i.w = 1
	}
	r, rm := d.modrm(false)
	if i.w == 1 {
		rm = reg8(d, rm)
	}
	// The field reg says which of the eight operations.
	i.op, i.dst, i.src = aluOps[r&7], rm, constant()
	switch {
	case op != 0x81:
		i.imm = d.i8()
	case i.w == 2: // a constant of the operand's size, at most 4 bytes
		lo := d.u8()
		i.imm = int64(int16(uint16(lo) | uint16(d.u8())<<8))
	default:
		i.imm = d.i32()
	}
}

// pushPop decodes push and pop of a register.
func (d *decoder) pushPop(i *inst, op byte) {
	// The low 3 bits of the opcode, and REX.B, are the register.
	r := general(op&7 | d.rex<<3&8)
	switch op &^ 7 {
	case 0x50:
		i.op, i.w, i.src = iPush, 8, r
	case 0x58:
		i.op, i.w, i.dst = iPop, 8, r
	}
}

// test decodes test of two operands, and of rax with a constant.
func (d *decoder) test(i *inst, op byte) {
	i.op = iTest
	if op&1 == 0 {
		i.w = 1
	}
	// a8 and a9 test al, eax or rax with a constant.
	if op >= 0xa8 {
		i.dst, i.src, i.imm = general(rAX), constant(), d.imm(i.w == 1)
		return
	}
	r, rm := d.modrm(false)
	i.dst, i.src = rm, general(r)
	if i.w == 1 {
		i.dst, i.src = reg8(d, i.dst), reg8(d, i.src)
	}
}

// move decodes mov and lea.
func (d *decoder) move(i *inst, op byte) {
	// b8 to bf: a constant into a register; with REX.W it has 8 bytes.
	if op&0xf8 == 0xb8 {
		i.op, i.dst, i.src = iMov, general(op&7|d.rex<<3&8), constant()
		if i.w == 8 {
			i.imm = d.i64()
		} else {
			i.imm = d.i32()
		}
		return
	}
	// 89 stores, 8b loads, 8d is lea, c7 stores a constant.
	r, rm := d.modrm(false)
	switch op {
	case 0x89:
		i.op, i.dst, i.src = iMov, rm, general(r)
	case 0x8b:
		i.op, i.dst, i.src = iMov, general(r), rm
	case 0x8d:
		i.op, i.dst, i.src = iLea, general(r), rm
		// lea of a register is an illegal instruction.
		if rm.kind == opReg {
			i.op = iBad
		}
	case 0xc7:
		i.dst, i.src, i.imm = rm, constant(), d.i32()
		// c7 with another field reg is not mov.
		if r&7 == 0 {
			i.op = iMov
		}
	}
}

// shift decodes shifts by a constant, by 1 and by cl.
func (d *decoder) shift(i *inst, op byte) {
	r, rm := d.modrm(false)
	i.dst, i.src = rm, constant()
	// The field reg: 4 shl, 5 shr, 7 sar; rotations are not decoded.
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
}

// unary decodes test with a constant, not, neg, div and idiv.
func (d *decoder) unary(i *inst, op byte) {
	if op == 0xf6 {
		i.w = 1
	}
	r, rm := d.modrm(false)
	i.dst = rm
	// The field reg: 0 test, 2 not, 3 neg, 6 div, 7 idiv; mul and imul are not decoded.
	switch r & 7 {
	case 0:
		i.op, i.src = iTest, constant()
		if i.w == 1 {
			i.dst = reg8(d, rm)
		}
		i.imm = d.imm(i.w == 1)
		return
	case 2:
		i.op = iNot
	case 3:
		i.op = iNeg
	case 6:
		i.op = iDiv
	case 7:
		i.op = iIdiv
	}
	// Apart from test, the emitter has no such operation on bytes.
	if i.w == 1 {
		i.op = iBad
	}
}

// incTo decodes inc, dec, and calls and jumps through a register or memory.
func (d *decoder) incTo(i *inst) {
	r, rm := d.modrm(false)
	i.dst = rm
	// The field reg: 0 inc, 1 dec, 2 call, 4 jmp.
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
