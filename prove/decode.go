package prove

// This file decodes generated code. It is another decoder than internal/analysis/x86, on purpose: a mistake shared with
// the tests of the emitter would hide wrong code. It is small, since it refuses all that asmgen does not emit.

// decode reads the instruction at the beginning of b: prefixes, REX, opcode, operands (Intel SDM
// volume 2, chapter 2). ok is false unless it is one of the forms of generated code, complete and
// without a redundant prefix.
func decode(b []byte) (i inst, ok bool) {
	d := decoder{b: b}
	op := d.u8()
	var word, rep bool // prefixes 66 and f3: at most one of them, before REX
	switch op {
	case 0x66:
		word = true
		op = d.u8()
	case 0xf3:
		rep = true
		op = d.u8()
	}
	// REX (40 to 4f) follows the prefixes; bit 3, W, asks for 64-bit operands.
	if op&0xf0 == 0x40 {
		d.rex = op
		op = d.u8()
	}
	i.w = 4
	if d.rex&8 != 0 {
		i.w = 8
	}
	if word {
		if i.w == 8 { // 66 with REX.W would be ignored by the processor
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
