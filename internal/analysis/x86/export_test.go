package x86

// DecodeInSteps is Decode without its quick path.
func DecodeInSteps(code []byte, in *Inst) error { return decode(code, in) }

// Probes returns an encoding of each form in the tables, one for every prefix, W, length and group
// value that it accepts.
func Probes() [][]byte {
	var out [][]byte
	for slot := range spans {
		sp := spans[slot]
		for i := range forms[sp.first : int(sp.first)+int(sp.n)] {
			f := &forms[int(sp.first)+i]
			for pp := range 4 {
				for w := range 2 {
					for l := range 3 {
						for reg := range 8 {
							if f.pp>>pp&1 == 0 || f.w>>w&1 == 0 || f.l>>l&1 == 0 || f.reg>>reg&1 == 0 ||
								slot < 4*256 && l > 0 || f.reg == 0xff && reg != 1 {
								continue
							}
							if f.mod&2 != 0 {
								out = append(out, probe(slot, f, pp, w, l, reg, 2))
							}
							if f.mod != 2 {
								out = append(out, probe(slot, f, pp, w, l, reg, 1))
							}
						}
					}
				}
			}
		}
	}
	return out
}

func probe(slot int, f *form, pp, w, l, reg, mod int) []byte {
	m, op := slot>>8, byte(slot)
	vvvv := byte(15)
	for _, a := range f.args {
		if a.kind != argNone && a.field == fieldV && (a.kind == argVec || a.kind == argMask || a.kind == argGPR) {
			vvvv = ^byte(5) & 15
		}
	}
	var b []byte
	switch {
	case m < 4:
		b = append(b, [][]byte{nil, {0x66}, {0xf3}, {0xf2}}[pp]...)
		if w == 1 {
			b = append(b, 0x48)
		}
		b = append(b, [][]byte{nil, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}}[m]...)
	case m < 7:
		b = append(b, 0xc4, 0xe0|byte(m-3), byte(w)<<7|vvvv<<3|byte(l)<<2|byte(pp))
	case m < 13:
		b = append(b, 0x62, 0xf0|byte(m-6), byte(w)<<7|vvvv<<3|4|byte(pp), byte(l)<<5|8)
		if in := (&Inst{Enc: Encoding{Form: FormEVEX, Map: uint8(m - 6), Opcode: op}}); isVSIB(in) {
			b[3] |= 1
		}
	default:
		b = append(b, 0x8f, 0xe0|byte(m-5), byte(w)<<7|vvvv<<3|byte(l)<<2|byte(pp))
	}
	b = append(b, op)
	s := state{in: &Inst{Enc: Encoding{Opcode: op}}}
	s.in.Enc.Map = uint8(m)
	if m >= 4 {
		s.in.Enc.Form = FormVEX
		s.in.Enc.Map = uint8(m - 3)
	}
	if s.hasModRM() {
		switch {
		case f.modrm != 0:
			b = append(b, f.modrm)
		case mod == 2:
			b = append(b, 0x44|byte(reg)<<3, 0xb1, 0x10) // [rcx+rsi*4+0x10]
		default:
			b = append(b, 0xc2|byte(reg)<<3)
		}
	}
	return b
}
