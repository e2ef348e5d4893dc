package prove

// two decodes the instructions whose opcode begins with 0f.
func (d *decoder) two(i *inst, op byte, word, rep bool) {
	general := func(r uint8) operand { return operand{kind: opReg, reg: r} }
	vector := func(r uint8) operand { return operand{kind: opXMM, reg: r} }
	half := func(kind instOp, store, high bool) {
		r, rm := d.modrm(true)
		v := vector(r)
		v.high = high
		i.op, i.w, i.dst, i.src = kind, 8, v, rm
		if kind == iMovups {
			i.w = 16
		}
		if store {
			i.dst, i.src = rm, v
		}
		if rm.kind == opXMM && kind != iMovups {
			i.op = iBad // other instructions
		}
	}
	switch {
	case word && op == 0x6e && d.rex&8 == 0:
		r, rm := d.modrm(false)
		i.op, i.w, i.dst, i.src = iMovd, 4, vector(r), rm
	case (word || rep) && op == 0x6f:
		r, rm := d.modrm(true)
		i.op, i.w, i.dst, i.src = iMovdq, 16, vector(r), rm
		if word && rm.kind != opXMM {
			i.op = iBad // it asks for alignment
		}
	case word && op == 0x70:
		r, rm := d.modrm(true)
		i.op, i.w, i.dst, i.src, i.imm = iPshufd0, 16, vector(r), rm, d.i8()
		if i.imm != 0 || rm.kind != opXMM {
			i.op = iBad
		}
	case word && (op == 0x74 || op == 0xda):
		r, rm := d.modrm(true)
		i.op, i.w, i.dst, i.src = iPcmpeqb, 16, vector(r), rm
		if op == 0xda {
			i.op = iPminub
		}
		if rm.kind != opXMM {
			i.op = iBad
		}
	case word && op == 0xd7:
		r, rm := d.modrm(true)
		i.op, i.w, i.dst, i.src = iPmovmskb, 4, general(r), rm
		if rm.kind != opXMM {
			i.op = iBad
		}
	case rep && op == 0xbc:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iTzcnt, general(r), rm
	case word || rep:
	case op == 0x10 || op == 0x11:
		half(iMovups, op == 0x11, false)
	case op == 0x12 || op == 0x13:
		half(iMovlps, op == 0x13, false)
	case op == 0x16 || op == 0x17:
		half(iMovhps, op == 0x17, true)
	case op&0xf0 == 0x40:
		r, rm := d.modrm(false)
		i.op, i.cc, i.dst, i.src = iCmov, op&15, general(r), rm
	case op&0xf0 == 0x80:
		i.op, i.cc, i.imm = iJcc, op&15, d.i32()
	case op&0xf0 == 0x90:
		_, rm := d.modrm(false)
		i.op, i.cc, i.w, i.dst = iSet, op&15, 1, reg8(d, rm)
	case op == 0xa3 || op == 0xab || op == 0xb3:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = [3]instOp{iBt, iBts, iBtr}[op>>3-0xa3>>3], rm, general(r)
		if rm.kind != opReg {
			i.op = iBad // it reads beside the operand
		}
	case op == 0xaf:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iMul, general(r), rm
	case op == 0xb6 || op == 0xb7 || op == 0xbe || op == 0xbf:
		r, rm := d.modrm(false)
		i.op, i.sw, i.dst, i.src = iMovzx, 1+op&1, general(r), rm
		if op >= 0xbe {
			i.op = iMovsx
		}
		if i.sw == 1 {
			i.src = reg8(d, rm)
		}
	case op == 0xbc:
		r, rm := d.modrm(false)
		i.op, i.dst, i.src = iBsf, general(r), rm
	}
}
