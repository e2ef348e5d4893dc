package x86

import "encoding/binary"

// This file measures instructions without their operands. Searches for function starts and jump targets sweep whole
// sections and ask only for lengths and where control goes.

// Outline is the result of Skim.
type Outline struct {
	Op   Op    // one of those that Skim distinguishes, otherwise OpUnknown
	Len  uint8 // bytes
	Rel  bool  // a relative jump or call, or a lea on rip
	Dist int64 // with Rel: from the instruction's end
}

// Target returns the address of a relative operand of the instruction at pc.
func (o *Outline) Target(pc uint64) uint64 { return pc + uint64(o.Len) + uint64(o.Dist) }

// Skim is a short form of Decode, three times as fast on compilers' code, for passes over whole sections. It accepts
// and measures what Decode does, and tells jumps (jmp, jcc), calls, returns (ret, retf, iret), lea, nop and traps (ud2,
// ud1, ud0, hlt, int3) apart from the rest. Jumps and calls through registers or memory have Rel false. The errors are
// Decode's; *o is undefined then.
func Skim(code []byte, o *Outline) error {
	if skim(code, o) {
		return nil
	}
	var in Inst
	if err := Decode(code, &in); err != nil {
		return err
	}
	*o = Outline{Len: in.Len}
	switch in.Op {
	case OpJMP, OpJCC, OpCALL:
		if in.Args[0].Kind == KRel {
			o.Rel, o.Dist = true, in.Imm
		}
	case OpLEA:
		if in.Mem.Base == RIP {
			o.Rel, o.Dist = true, in.Mem.Disp
		}
	case OpRET, OpRETF, OpIRET, OpNOP, OpUD2, OpUD1, OpUD0, OpHLT, OpINT3:
	default:
		return nil
	}
	o.Op = in.Op
	return nil
}

// How skim goes on after an opcode.
const (
	skNone   = iota // to Decode
	skPlain         // nothing follows
	skModRM         // ModRM
	skIb            // a byte
	skIz            // four bytes, two with 66
	skMIb           // ModRM and a byte
	skMIz           // ModRM and four bytes, two with 66
	skShift         // ModRM, whose reg is not 6
	skShiftI        // the same and a byte
	skMov           // ModRM with reg 0 and an immediate as skIz
	skMovB          // ModRM with reg 0 and a byte
	skJb            // a relative byte
	skJz            // four relative bytes
	skRIP           // ModRM that says rip, and four relative bytes
)

// skim measures the common instructions: legacy encodings with no prefix but 66 and REX; false sends the rest to
// Decode. With 15 bytes at hand it reads ModRM and displacement without looking for the end of code, as quick does.
func skim(code []byte, o *Outline) bool {
	if len(code) < maxLen {
		return false
	}
	off, b := 0, code[0]
	word, wide := b == 0x66, false
	if word {
		off, b = 1, code[1]
	}
	if b&0xf0 == 0x40 {
		wide = b&8 != 0
		off++
		b = code[off]
	}
	off++
	var op Op
	var how uint8
	if b == 0x0f {
		off++
		op, how = skimTwo(code[off-1], code[off])
	} else {
		op, how = skimOne(b, code[off], off > 1)
	}
	switch how {
	case skNone:
		return false
	// With 66 the length of a relative jump differs between processors: Decode refuses it.
	case skJb:
		*o = Outline{Op: op, Len: uint8(off + 1), Rel: true, Dist: int64(int8(code[off]))}
		return !word
	case skJz:
		*o = Outline{Op: op, Len: uint8(off + 4), Rel: true, Dist: int64(int32(binary.LittleEndian.Uint32(code[off:])))}
		return !word
	case skRIP:
		*o = Outline{Op: op, Len: uint8(off + 5), Rel: true, Dist: int64(int32(binary.LittleEndian.Uint32(code[off+1:])))}
		return true
	}
	n := skimOperands(code[off:], how)
	if n < 0 {
		return false
	}
	// 66 shortens the immediate to two bytes; REX.W wins over 66.
	if word && !wide && hasIz(how) {
		n -= 2
	}
	if off += n; off > maxLen {
		return false
	}
	*o = Outline{Op: op, Len: uint8(off)}
	return true
}

// skimOne returns what an opcode of one byte does and what follows it. next is the byte after it. It is skNone wherever
// the pair could be invalid, or could need more than the two bytes: Decode decides then.
func skimOne(b, next byte, prefixed bool) (Op, uint8) {
	how := skim0[b]
	switch b {
	case 0xe8:
		return OpCALL, how
	case 0xe9, 0xeb:
		return OpJMP, how
	case 0xc3:
		return OpRET, how
	case 0xcc:
		return OpINT3, how
	case 0xf4:
		return OpHLT, how
	case 0x90:
		// With REX.B or f3 this is xchg or pause; 66 90 is a nop, rare enough for Decode.
		if prefixed {
			return 0, skNone
		}
		return OpNOP, how
	case 0x8d:
		switch {
		// lea of a register is invalid.
		case next >= 0xc0:
			return 0, skNone
		case next&0xc7 == 5:
			return OpLEA, skRIP
		}
		return OpLEA, how
	// reg 0 and 1 are test with an immediate; the others have none.
	case 0xf6, 0xf7:
		switch {
		case next&0x30 != 0: // not test
			return OpUnknown, how
		case b == 0xf7:
			return OpUnknown, skMIz
		}
		return OpUnknown, skMIb
	case 0xff:
		switch next >> 3 & 7 {
		case 2:
			return OpCALL, how
		case 4:
			return OpJMP, how
		// Far calls and jumps, which Decode names apart, and an invalid opcode.
		case 3, 5, 7:
			return 0, skNone
		}
	}
	if b&0xf0 == 0x70 {
		return OpJCC, how
	}
	return OpUnknown, how
}

// skimTwo returns what an opcode after 0f does and what follows it.
func skimTwo(b, next byte) (Op, uint8) {
	how := skim1[b]
	switch {
	case b&0xf0 == 0x80:
		return OpJCC, how
	case b == 0x1f:
		// 0f 1f /0 is the nop that compilers pad with; the rest of 0f 1f is reserved.
		if next&0x38 != 0 {
			return 0, skNone
		}
		return OpNOP, how
	case b == 0x0b:
		return OpUD2, how
	}
	return OpUnknown, how
}

// hasIz reports whether an immediate of four bytes follows, of two with 66.
func hasIz(how uint8) bool { return how == skIz || how == skMIz || how == skMov }

// skimOperands returns the bytes of ModRM, SIB, displacement and immediate, at the beginning of code; -1 for what is
// left to Decode.
func skimOperands(code []byte, how uint8) int {
	n := 0
	switch how {
	case skPlain:
		return 0
	case skIb:
		return 1
	case skIz:
		return 4
	case skMIz, skMov:
		n = 4
	case skMIb, skShiftI, skMovB:
		n = 1
	}
	m := code[0]
	// Shifts have an undocumented reg 6; c6 and c7 have mov at reg 0 alone, and xbegin, whose immediate is a jump, at
	// 7.
	if how >= skShift {
		if reg := m >> 3 & 7; reg == 6 && how <= skShiftI || reg != 0 && how > skShiftI {
			return -1
		}
	}
	n++
	if m >= 0xc0 {
		return n
	}
	if m&7 == 4 {
		// SIB's base 5 with mod 0: a displacement of 4 bytes instead of a base.
		if m < 0x40 && code[1]&7 == 5 {
			n += 4
		}
		n++
	}
	switch {
	case m >= 0x80 || m&0xc7 == 5:
		n += 4
	case m >= 0x40:
		n++
	}
	return n
}

// skim0 and skim1 are how skim goes on after one-byte opcodes and after 0f opcodes (SDM Vol. 2 tables );
// opcodes that prefixes other than 66 and REX change, and those not valid with 66, are left to Decode.
var skim0, skim1 = skimTables()

// skimTables returns what follows the opcodes of one byte and those after 0f.
func skimTables() (one, two [256]uint8) {
	fill := func(t *[256]uint8, how uint8, ops ...int) {
		for _, op := range ops {
			t[op] = how
		}
	}
	span := func(t *[256]uint8, how uint8, lo, hi int) {
		for op := lo; op <= hi; op++ {
			t[op] = how
		}
	}
	for op := 0; op < 0x40; op += 8 { // add, or, adc, sbb, and, sub, xor, cmp
		span(&one, skModRM, op, op+3)
		one[op+4], one[op+5] = skIb, skIz
	}
	one[0x0f] = skNone
	span(&one, skPlain, 0x50, 0x5f)
	fill(&one, skModRM, 0x63, 0x8d, 0xf6, 0xf7, 0xff)
	fill(&one, skIz, 0x68, 0xa9)
	fill(&one, skIb, 0x6a, 0xa8)
	fill(&one, skMIz, 0x69, 0x81)
	fill(&one, skMIb, 0x6b, 0x80, 0x83)
	span(&one, skJb, 0x70, 0x7f)
	span(&one, skModRM, 0x84, 0x8b)
	fill(&one, skPlain, 0x90, 0x98, 0x99, 0xc3, 0xc9, 0xcc, 0xf4)
	span(&one, skIb, 0xb0, 0xb7)
	fill(&one, skShiftI, 0xc0, 0xc1)
	fill(&one, skShift, 0xd0, 0xd1, 0xd2, 0xd3)
	fill(&one, skMovB, 0xc6)
	fill(&one, skMov, 0xc7)
	fill(&one, skJz, 0xe8, 0xe9)
	fill(&one, skJb, 0xeb)

	fill(&two, skPlain, 0x0b)
	fill(&two, skModRM, 0x10, 0x11, 0x1f, 0x28, 0x29, 0x2e, 0x2f, 0x54, 0x57, 0x6f, 0x7f, 0xaf, 0xb6, 0xb7, 0xbe, 0xbf,
		0xef)
	span(&two, skModRM, 0x40, 0x4f)
	span(&two, skJz, 0x80, 0x8f)
	span(&two, skModRM, 0x90, 0x9f)
	return one, two
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
