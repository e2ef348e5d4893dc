package prove

// This file decodes the opcodes 0f xx that generated code uses; insn1.go has those of one byte.
// Numbers are from Intel SDM volume 2, opcode map. Whatever is not listed stays iBad, and the proof
// refuses it.

// vector is an SSE register as an operand.
func vector(r uint8) operand { return operand{kind: opXMM, reg: r} }

// two decodes the instructions whose opcode begins with 0f. word and rep are the prefixes 66 and f3.
func (d *decoder) two(i *inst, op byte, word, rep bool) {
	switch {
	case word:
		d.wordVector(i, op)
	// f3 0f 6f is movdqu.
	case rep && op == 0x6f:
		r, rm := d.modrm(true)
		i.op, i.w, i.dst, i.src = iMovdq, 16, vector(r), rm
	// f3 0f bc is tzcnt.
	case rep && op == 0xbc:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iTzcnt, general(r), rm
	case rep:
	// 0f 10 loads and 0f 11 stores; so the next two.
	case op == 0x10 || op == 0x11:
		d.half(i, iMovups, op == 0x11)
	case op == 0x12 || op == 0x13:
		d.half(i, iMovlps, op == 0x13)
	case op == 0x16 || op == 0x17:
		d.half(i, iMovhps, op == 0x17)
	// 0f 80 to 0f 8f: conditional jumps with 4 bytes of distance.
	case op&0xf0 == 0x80:
		i.op, i.cc, i.imm = iJcc, op&15, d.i32()
	default:
		d.twoGeneral(i, op)
	}
}

// half decodes moves between an SSE register, or half of one, and memory.
func (d *decoder) half(i *inst, kind instOp, store bool) {
	// The field reg names an SSE register here.
	r, rm := d.modrm(true)
	v := vector(r)
	v.high = kind == iMovhps
	i.op, i.w, i.dst, i.src = kind, 8, v, rm
	if kind == iMovups {
		i.w = 16
	}
	if store {
		i.dst, i.src = rm, v
	}
	// Between two registers these opcodes are movhlps and movlhps.
	if rm.kind == opXMM && kind != iMovups {
		i.op = iBad // other instructions
	}
}

// wordVector decodes the SSE2 instructions with the prefix 66. All but movd work on registers only: in memory
// they ask for alignment.
func (d *decoder) wordVector(i *inst, op byte) {
	// 66 0f 6e is movd; with REX.W it would be movq.
	if op == 0x6e {
		if d.rex&8 == 0 {
			r, rm := d.modrm(false)
			i.op, i.w, i.dst, i.src = iMovd, 4, vector(r), rm
		}
		return
	}
	var kind instOp
	// 66 0f: movdqa, pshufd, pcmpeqb, pmovmskb, pminub.
	switch op {
	case 0x6f:
		kind = iMovdq
	case 0x70:
		kind = iPshufd0
	case 0x74:
		kind = iPcmpeqb
	case 0xd7:
		kind = iPmovmskb
	case 0xda:
		kind = iPminub
	default:
		return
	}
	r, rm := d.modrm(true)
	i.op, i.w, i.dst, i.src = kind, 16, vector(r), rm
	switch kind {
	case iPshufd0:
		// Only the pattern 0, which copies the lowest 4 bytes into all four places.
		i.imm = d.i8()
	case iPmovmskb:
		// The destination is a general register.
		i.w, i.dst = 4, general(r)
	}
	// Memory operands would have to be aligned to 16 bytes; the emitter has none.
	if rm.kind != opXMM || i.imm != 0 {
		i.op = iBad
	}
}

// twoGeneral decodes the instructions on general registers.
func (d *decoder) twoGeneral(i *inst, op byte) {
	r, rm := d.modrm(false)
	i.dst, i.src = general(r), rm
	switch {
	// 0f 40 to 0f 4f.
	case op&0xf0 == 0x40:
		i.op, i.cc = iCmov, op&15
	// 0f 90 to 0f 9f write one byte.
	case op&0xf0 == 0x90:
		i.op, i.cc, i.w, i.dst, i.src = iSet, op&15, 1, reg8(d, rm), operand{}
	// 0f a3, ab, b3: bt, bts, btr. The bit number is in the register that the field reg names.
	case op == 0xa3 || op == 0xab || op == 0xb3:
		i.op, i.dst, i.src = [3]instOp{iBt, iBts, iBtr}[op>>3-0xa3>>3], rm, general(r)
		if rm.kind != opReg {
			i.op = iBad // it reads beside the operand
		}
	case op == 0xaf:
		i.op = iMul
	// 0f b6 and b7 extend with zeros, be and bf with the sign; the lowest bit says whether from 1
	// or from 2 bytes.
	case op == 0xb6 || op == 0xb7 || op == 0xbe || op == 0xbf:
		i.op, i.sw = iMovzx, 1+op&1
		if op >= 0xbe {
			i.op = iMovsx
		}
		if i.sw == 1 {
			i.src = reg8(d, rm)
		}
	case op == 0xbc:
		i.op = iBsf
	}
}
