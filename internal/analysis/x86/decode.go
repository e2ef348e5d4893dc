package x86

import "encoding/binary"

// This file measures an instruction and finds its form: prefixes, opcode, ModRM, SIB, displacement.
// operands.go and effects.go then say what it reads and writes. Encodings: Intel SDM volume 2,
// chapter 2, and AMD's manual volume 3 for XOP.

// state holds what decoding needs besides the result; it lives on Decode's stack.
type state struct {
	code []byte // at most 15 bytes
	in   *Inst
	pos  int // next byte
	r, x, b,
	rHi, vHi uint8 // register-number extensions
	vvvv uint8 // extra register of VEX and EVEX, no longer inverted
}

// The processor raises #GP for a longer instruction, whatever it is made of (SDM Vol. 2 §2.3.11). Only redundant
// prefixes get that far.
const maxLen = 15

// Decode decodes the instruction at the start of code; it looks at no more than 15 bytes and allocates nothing. If it
// returns an error, *in is undefined. A nil error with OpUnknown means that the length follows the encoding's rules and
// the effects are not known.
func Decode(code []byte, in *Inst) error {
	if quick(code, in) {
		return nil
	}
	return decode(code, in)
}

// decode is Decode for all instructions, in steps. Tests compare quick with it.
func decode(code []byte, in *Inst) error {
	*in = Inst{OpSize: 4} // the default of 64-bit mode (SDM Vol. 1 Table 3-4)
	in.Mem.Base, in.Mem.Index = None, None
	if len(code) > maxLen {
		code = code[:maxLen]
	}
	// Each step advances pos; the form is found last.
	s := state{code: code, in: in}
	if err := s.prefixes(); err != nil {
		return err
	}
	slot, err := s.opcode()
	if err != nil {
		return err
	}
	return s.body(slot)
}

// prefixBytes are the legacy prefixes and REX, a bit each.
var prefixBytes = [4]uint64{0x4040404000000000, 0xf00000ffff, 0, 0xd000000000000}

// isPrefix reports whether a byte is a legacy prefix (SDM Vol. 2 §2.1.1) or REX, 40 to 4f (§2.2.1).
func isPrefix(b byte) bool { return prefixBytes[b>>6]>>(b&63)&1 != 0 }

// prefixes reads legacy prefixes and REX. It leaves pos at the opcode, or at the first byte of VEX, EVEX, XOP or REX2,
// with at least one byte there. In.PP is the mandatory prefix as VEX.pp numbers it, so one table serves legacy and
// vector encodings.
func (s *state) prefixes() error {
	in := s.in
	if len(s.code) > 1 { // mostly there is none, or REX alone
		b := s.code[0]
		if !isPrefix(b) {
			return nil
		}
		// REX without any other prefix: the usual case of 64-bit code.
		if b&0xf0 == 0x40 && !isPrefix(s.code[1]) {
			in.Enc.Rex, s.pos = b, 1
			// Bits R, X and B become bit 3 of register numbers.
			s.r, s.x, s.b = b<<1&8, b<<2&8, b<<3&8
			in.Enc.W = b&8 != 0
			return nil
		}
	}
	for ; s.pos < len(s.code); s.pos++ {
		var p Prefix
		switch b := s.code[s.pos]; b {
		case 0xf0:
			p = PrefixLock
		// If f2 and f3 both occur, the last one selects the opcode, as objdump shows it. The SDM leaves the case
		// undefined.
		case 0xf3:
			p = PrefixF3
			in.Enc.PP = 2
		case 0xf2:
			p = PrefixF2
			in.Enc.PP = 3
		case 0x66:
			p = PrefixOpSize
		case 0x67:
			p = PrefixAddrSize
		case 0x2e, 0x36, 0x26:
			p = PrefixSeg
		case 0x3e:
			p = PrefixNotrack | PrefixSeg
		case 0x64:
			p = PrefixFS
			in.Mem.Seg = 4
		case 0x65:
			p = PrefixGS
			in.Mem.Seg = 5
		default:
			// REX counts only directly before the opcode.
			if b&0xf0 == 0x40 {
				if in.Enc.Rex != 0 {
					in.Prefix |= PrefixLateRex
				}
				in.Enc.Rex = b
				continue
			}
			// 66 selects an opcode only if neither f2 nor f3 is there.
			if in.Enc.PP == 0 && in.Prefix&PrefixOpSize != 0 {
				in.Enc.PP = 1
			}
			if in.Enc.Rex != 0 {
				s.r, s.x, s.b = in.Enc.Rex<<1&8, in.Enc.Rex<<2&8, in.Enc.Rex<<3&8
				in.Enc.W = in.Enc.Rex&8 != 0
			}
			return nil
		}
		// A second prefix of one kind is legal, and noted: compilers lengthen nops with several 66. 3e sets two bits;
		// it counts as the second one only after another 3e.
		if in.Prefix&p&^PrefixSeg != 0 || in.Prefix&p == PrefixSeg && p == PrefixSeg {
			in.Prefix |= PrefixDup
		}
		in.Prefix |= p
		// A legacy prefix after REX cancels it (SDM Vol. 2 §2.2.1): REX works only directly before the opcode or its
		// escape byte.
		if in.Enc.Rex != 0 {
			in.Enc.Rex = 0
			in.Prefix |= PrefixLateRex
		}
	}
	// Only prefixes, up to the end.
	return ErrTruncated
}

// opcode reads the opcode with its VEX, EVEX or XOP prefix and returns the index in spans. The index is 256 times the
// number of the map in tables.go's order, plus the opcode. The errors are ErrTruncated, if code ends in the prefix or
// opcode, and ErrInvalid for combinations that the processor refuses (#UD).
func (s *state) opcode() (int, error) {
	// prefixes leaves at least one byte.
	in, c := s.in, s.code[s.pos:]
	op := c[0]
	// vector takes the bytes of a VEX, EVEX or XOP prefix with the opcode. After REX, 66, f2, f3 or
	// lock they are #UD.
	vector := func(n int, form Form) error {
		if len(c) < n {
			return ErrTruncated
		}
		if in.Enc.Rex != 0 || in.Prefix&(PrefixOpSize|PrefixF3|PrefixF2|PrefixLock) != 0 {
			return ErrInvalid
		}
		in.Enc.Form = form
		s.pos += n
		return nil
	}
	switch {
	case op == 0x0f:
		if len(c) < 2 {
			return 0, ErrTruncated
		}
		in.Enc.Map, in.Enc.Opcode = 1, c[1]
		s.pos += 2
		// 0f 38 is map 2, 0f 3a map 3.
		if c[1] == 0x38 || c[1] == 0x3a {
			if len(c) < 3 {
				return 0, ErrTruncated
			}
			in.Enc.Map, in.Enc.Opcode = 2+c[1]>>1&1, c[2]
			s.pos++
		}
		return int(in.Enc.Map)<<8 | int(in.Enc.Opcode), nil
	// Two-byte VEX: R, vvvv, L and pp; map 0f. R and vvvv are inverted.
	// c4, c5 and 62 were les, lds and bound; 64-bit mode has none of the three, so no look at ModRM is needed, unlike
	// in 32-bit code.
	case op == 0xc5:
		if err := vector(3, FormVEX); err != nil {
			return 0, err
		}
		v := c[1]
		s.r, s.vvvv, in.Enc.L, in.Enc.PP = ^v>>4&8, ^v>>3&15, v>>2&1, v&3
		in.Enc.Map, in.Enc.Opcode = 1, c[2]
		return 4<<8 | int(c[2]), nil
	// Three-byte VEX. XOP begins like pop r/m, 8f /0, whose ModRM byte has 0 to 7 in the map's
	// place.
	case op == 0xc4 || op == 0x8f && len(c) > 1 && c[1]&31 >= 8:
		enc, lo, hi, base := FormVEX, uint8(1), uint8(3), 3
		if op == 0x8f {
			enc, lo, hi, base = FormXOP, 8, 10, 5
		}
		if err := vector(4, enc); err != nil {
			return 0, err
		}
		// R, X, B and the map; then W, vvvv, L and pp.
		v, w := c[1], c[2]
		s.r, s.x, s.b = ^v>>4&8, ^v>>3&8, ^v>>2&8
		in.Enc.W, s.vvvv, in.Enc.L, in.Enc.PP = w&0x80 != 0, ^w>>3&15, w>>2&1, w&3
		in.Enc.Map, in.Enc.Opcode = v&31, c[3]
		// VEX maps 5 and 7, which AMX-FP8 and USER_MSR use, are not in the tables.
		if in.Enc.Map < lo || in.Enc.Map > hi {
			return 0, ErrInvalid
		}
		return (base+int(in.Enc.Map))<<8 | int(c[3]), nil
	// APX's REX2 is REX with the map, if it chooses none of the newer registers (r16 to r31: bits 4 to 6). d5 was aad,
	// which 64-bit mode does not have. The rows that mean something else are 4x, 7x, ax and ex of map 0, 3x and 8x of
	// map 1: a bit each in other. 0f is no escape here, since bit 7 chooses the map (Intel APX Architecture
	// Specification, REX2).
	case op == 0xd5:
		if len(c) < 3 {
			return 0, ErrTruncated
		}
		v := c[1]
		other := [2]uint16{0x4490, 0x0108}[v>>7] // rows
		if in.Enc.Rex != 0 || v&0x70 != 0 || other>>(c[2]>>4)&1 != 0 || v < 0x80 && c[2] == 0x0f {
			return 0, ErrInvalid
		}
		in.Enc.Rex, in.Enc.W, in.Enc.Map, in.Enc.Opcode = 0x40|v&15, v&8 != 0, v>>7, c[2]
		s.r, s.x, s.b = v<<1&8, v<<2&8, v<<3&8
		s.pos += 3
		return int(in.Enc.Map)<<8 | int(in.Enc.Opcode), nil
	// EVEX: four bytes, then the opcode.
	case op == 0x62:
		if err := vector(5, FormEVEX); err != nil {
			return 0, err
		}
		v, w, x := c[1], c[2], c[3]
		s.r, s.x, s.b = ^v>>4&8, ^v>>3&8, ^v>>2&8
		// R' and V' are bit 4 of vector registers, inverted.
		s.rHi, s.vHi = ^v&0x10, ^x<<1&0x10
		in.Enc.W, s.vvvv, in.Enc.PP = w&0x80 != 0, ^w>>3&15, w&3
		// L'L is the length; b asks for broadcast or rounding.
		in.Enc.L, in.Enc.Broadcast = x>>5&3, x&0x10 != 0
		in.Enc.Map, in.Enc.Opcode = v&7, c[4]
		// Fixed bits, and what is not decoded: of APX (map 4) all but push2 and pop2, ff /6 and 8f /0, of the older
		// registers. EVEX.b is APX's ND bit, which both must set; V' would name r16 to r31. GCC and Clang emit push2 in
		// prologues with -mapxf, so the CFA depends on it; the rest of APX does not move rsp.
		apx := in.Enc.Map == 4 && (c[4]|0x70 != 0xff || !in.Enc.Broadcast || s.vHi != 0)
		if v&8 != 0 || w&4 == 0 || in.Enc.Map == 0 || apx || in.Enc.Map == 7 {
			return 0, ErrInvalid
		}
		return (6+int(in.Enc.Map))<<8 | int(c[4]), nil
	}
	in.Enc.Opcode = op
	s.pos++
	return int(op), nil
}

// body reads what follows the opcode. The order is the encoding's: ModRM, SIB, displacement, immediate. Operands and
// effects come last because they need all of them.
func (s *state) body(slot int) error {
	in := s.in
	// REX.W wins over 66.
	if in.Enc.W {
		in.OpSize = 8
	} else if in.Prefix&PrefixOpSize != 0 {
		in.OpSize = 2
	}
	sp := spans[slot]
	if s.hasModRM() {
		if s.pos >= len(s.code) {
			return ErrTruncated
		}
		in.Enc.HasModRM = true
		in.Enc.ModRM = s.code[s.pos]
		s.pos++
	}
	if in.Enc.Form == FormLegacy && in.Enc.Map == 1 && in.Enc.Opcode >= 0x20 && in.Enc.Opcode <= 0x23 {
		in.Enc.ModRM |= 0xc0 // the processor ignores mod in moves of control and debug registers
	}
	// An opcode has several forms: by prefix, length, ModRM.
	f := s.match(forms[sp.first : int(sp.first)+int(sp.n)])
	// Memory operands have mod other than 3.
	if in.Enc.HasModRM && (in.Enc.ModRM < 0xc0) {
		if err := s.memory(f); err != nil {
			return err
		}
	}
	// One-byte opcodes without a form are invalid, and so are 0f opcodes that have no form at all: the lists have both
	// maps in full. Elsewhere a missing form may be an instruction newer than the tables, whose length the encoding
	// still tells.
	if f == nil {
		if in.Enc.Form == FormLegacy && (in.Enc.Map == 0 || in.Enc.Map == 1 && sp.n == 0) ||
			in.Enc.Form == FormEVEX && in.Enc.Map == 4 {
			return ErrInvalid
		}
		return s.unknown()
	}
	in.Op = f.op
	// Immediates come last in the encoding.
	if err := s.immediates(f); err != nil {
		return err
	}
	in.Len = uint8(s.pos)
	s.operands(f)
	s.effects(f)
	return nil
}

// match returns the form that the prefixes and ModRM choose, or nil if there is none. The first form that fits wins;
// where two do, legacy.txt has the more special one first.
func (s *state) match(fs []form) *form {
	in := s.in
	// Bits for the tables: 1 and 2 for W0 and W1, for register and memory.
	w := uint8(1)
	if in.Enc.W {
		w = 2
	}
	mod := uint8(2)
	if in.Enc.ModRM >= 0xc0 {
		mod = 1
	}
	l := uint8(1) << in.Enc.L
	if in.Enc.Form == FormEVEX && in.Enc.Broadcast && mod == 1 {
		l = 4 // rounding in place of a length: 512 bits, or a scalar, which takes any
	}
	for i := range fs {
		f := &fs[i]
		// Each field of a form is a set of allowed values.
		if f.pp&(1<<in.Enc.PP) == 0 || f.w&w == 0 || f.l&l == 0 {
			continue
		}
		// reg says which of up to eight instructions share the opcode; modrm that there is just one
		// byte.
		if in.Enc.HasModRM && (f.mod&mod == 0 || f.reg&(1<<(in.Enc.ModRM>>3&7)) == 0 ||
			f.modrm != 0 && f.modrm != in.Enc.ModRM) {
			continue
		}
		return f
	}
	return nil
}

// unknown computes the length of an instruction without a form: VEX, EVEX and the three-byte maps are regular, one
// immediate byte or none by the map. A linear sweep thus stays in step over instructions newer than the tables; a wrong
// length would turn all that follows into rubbish, a missing name costs one instruction.
func (s *state) unknown() error {
	in := s.in
	in.Op = OpUnknown
	n := 0
	switch {
	// Map 3 (0f 3a) and XOP map 8 have an immediate byte.
	case in.Enc.Form == FormXOP && in.Enc.Map == 8, in.Enc.Form != FormXOP && in.Enc.Map == 3:
		n = 1
	// XOP map 10 has four bytes.
	case in.Enc.Form == FormXOP && in.Enc.Map == 10:
		n = 4
	case in.Enc.Map == 1 && hasImm0F(in.Enc.Opcode):
		n = 1
	}
	s.pos += n
	if s.pos > len(s.code) {
		return ErrTruncated
	}
	in.Enc.ImmLen = uint8(n)
	in.Len = uint8(s.pos)
	return nil
}

// hasImm0F reports whether the opcode in map 0f has an immediate byte, whatever its
// prefixes.
func hasImm0F(op byte) bool {
	return op >= 0x70 && op <= 0x73 || op == 0xa4 || op == 0xac || op == 0xba || op == 0xc2 || op >= 0xc4 && op <= 0xc6
}

// memory reads SIB and displacement (SDM Vol. 2 Tables 2-2 and 2-3). f, the instruction's form, gives disp8's factor
// and may be nil: the length needs neither.
func (s *state) memory(f *form) error {
	in := s.in
	m := &in.Mem
	mod, rm := in.Enc.ModRM>>6, in.Enc.ModRM&7
	m.Scale = 1
	m.Addr32 = in.Prefix&PrefixAddrSize != 0
	d := 0
	switch {
	// rm 4 is a SIB byte.
	case rm == 4:
		if s.pos >= len(s.code) {
			return ErrTruncated
		}
		b := s.code[s.pos]
		s.pos++
		m.VSIB = f != nil && isVSIB(in)
		// Index 4 means none, unless it is a vector register: rsp can't be an index. With REX.X it is r12, which can.
		if x := b>>3&7 | s.x; x != 4 || m.VSIB {
			m.Index = Reg(x)
			m.Scale = 1 << (b >> 6)
			if m.VSIB {
				m.Index = Reg(x | s.vHi)
			}
		}
		// Base 5 with mod 0: no base, but a displacement of 4 bytes. REX.B does not change that, so r13 needs one, too
		// (SDM Vol. 2 Table 2-5).
		if b&7 == 5 && mod == 0 {
			d = 4
		} else {
			m.Base = Reg(b&7 | s.b)
		}
	// In 64-bit code this is relative to rip (SDM Vol. 2 §2.2.1.6), with 67 to eip, which Addr32 says.
	case rm == 5 && mod == 0:
		d = 4
		m.Base = RIP
	default:
		m.Base = Reg(rm | s.b)
	}
	// mod 1 and 2: a displacement of 1 or 4 bytes.
	switch mod {
	case 1:
		d = 1
	case 2:
		d = 4
	}
	if s.pos+d > len(s.code) {
		return ErrTruncated
	}
	switch d {
	case 1:
		m.Disp = int64(int8(s.code[s.pos]))
		// EVEX multiplies byte displacements by the operand's size: disp8*N (SDM Vol. 2 chapter 2, compressed
		// displacement). Without it, stores of zmm registers to the stack would seem to lie 64 times nearer to rsp.
		if in.Enc.Form == FormEVEX && f != nil {
			n := f.n
			if in.Enc.Broadcast && f.nb != 0 {
				n = f.nb
			}
			m.Disp *= int64(s.size(n))
		}
	case 4:
		m.Disp = int64(int32(binary.LittleEndian.Uint32(s.code[s.pos:])))
	}
	in.Enc.DispLen = uint8(d)
	s.pos += d
	return nil
}

// isVSIB reports whether the index is a vector register: gathers and scatters (SDM Vol. 2 §2.3.12). It asks the opcode,
// not the form, because SIB must be read before a form with unknown operands is given up.
func isVSIB(in *Inst) bool {
	if in.Enc.Map != 2 {
		return false
	}
	op := in.Enc.Opcode
	// vgather; and in EVEX vgather, vscatter, and their prefetches.
	return in.Enc.Form == FormVEX && op >= 0x90 && op <= 0x93 ||
		in.Enc.Form == FormEVEX && (op >= 0x90 && op <= 0x93 || op >= 0xa0 && op <= 0xa3 || op == 0xc6 || op == 0xc7)
}

// hasModRM reports whether a ModRM byte follows the opcode. It does not need a form: the length of unknown instructions
// depends on it.
func (s *state) hasModRM() bool {
	in := s.in
	switch {
	case in.Enc.Form == FormVEX:
		// vzeroupper and vzeroall have none.
		return in.Enc.Map != 1 || in.Enc.Opcode != 0x77
	case in.Enc.Form != FormLegacy:
		return true
	case in.Enc.Map == 0:
		return modRM0[in.Enc.Opcode>>6]>>(in.Enc.Opcode&63)&1 != 0
	case in.Enc.Map == 1:
		return modRM1[in.Enc.Opcode>>6]>>(in.Enc.Opcode&63)&1 != 0
	}
	return true
}

// The opcodes with a ModRM byte, a bit each (SDM Vol. 2 tables ).
var (
	modRM0 = [4]uint64{0xf0f0f0f0f0f0f0f, 0xa0c00000000, 0xffff, 0xc0c00000ff0f00f3}
	modRM1 = [4]uint64{0xff0fffffa00f, 0xff7fffffffffffff, 0xfffff8f8ffff0000, 0xffffffffffff00ff}
)
