package prove

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
