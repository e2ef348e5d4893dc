package x86

import "encoding/binary"

// Outline is the result of Skim.
type Outline struct {
	Op   Op    // one of those that Skim distinguishes, otherwise OpUnknown
	Len  uint8 // bytes
	Rel  bool  // a relative jump or call, or a lea on rip
	Dist int64 // with Rel: from the instruction's end
}

// Target returns the address of a relative operand of the instruction at pc.
func (o *Outline) Target(pc uint64) uint64 { return pc + uint64(o.Len) + uint64(o.Dist) }

// Skim is a short form of Decode, three times as fast on compilers' code, for passes over whole sections. It accepts and measures what Decode does, and
// tells jumps (jmp, jcc), calls, returns (ret, retf, iret), lea, nop and traps (ud2, ud1, ud0, hlt, int3) apart from the rest.
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
)

// skim measures the common instructions: legacy encodings with no prefix but 66 and REX; false sends the rest to Decode.
func skim(code []byte, o *Outline) bool {
	if len(code) < maxLen {
		return false
	}
	at := 0
	b := code[0]
	word := false
	if b == 0x66 {
		word = true
		at++
		b = code[1]
	}
	wide := false
	if b&0xf0 == 0x40 {
		wide = b&8 != 0
		at++
		b = code[at]
	}
	at++
	how := skim0[b]
	op := OpUnknown
	switch b {
	case 0x0f:
		b = code[at]
		at++
		how = skim1[b]
		switch {
		case b&0xf0 == 0x80:
			op = OpJCC
		case b == 0x1f:
			op = OpNOP
			if code[at]&0x38 != 0 {
				return false
			}
		case b == 0x0b:
			op = OpUD2
		}
	case 0xe8:
		op = OpCALL
	case 0xe9, 0xeb:
		op = OpJMP
	case 0xc3:
		op = OpRET
	case 0xcc:
		op = OpINT3
	case 0xf4:
		op = OpHLT
	case 0x90:
		if at != 1 {
			return false
		}
		op = OpNOP
	case 0x8d:
		op = OpLEA
		if code[at] >= 0xc0 {
			return false
		}
		if code[at]&0xc7 == 5 {
			*o = Outline{Op: op, Len: uint8(at + 5), Rel: true, Dist: int64(int32(binary.LittleEndian.Uint32(code[at+1:])))}
			return true
		}
	case 0xf6, 0xf7:
		if code[at]&0x30 == 0 { // test
			how = skMIb
			if b == 0xf7 {
				how = skMIz
			}
		}
	case 0xff:
		switch code[at] >> 3 & 7 {
		case 2:
			op = OpCALL
		case 4:
			op = OpJMP
		case 3, 5, 7:
			return false
		}
	default:
		if b&0xf0 == 0x70 {
			op = OpJCC
		}
	}
	imm := 0
	switch how {
	case skNone:
		return false
	case skPlain:
	case skIb:
		imm = 1
	case skIz, skMIz, skMov:
		imm = 4
		if word && !wide {
			imm = 2
		}
	case skMIb, skShiftI, skMovB:
		imm = 1
	case skJb:
		if word {
			return false
		}
		*o = Outline{Op: op, Len: uint8(at + 1), Rel: true, Dist: int64(int8(code[at]))}
		return true
	case skJz:
		if word {
			return false
		}
		*o = Outline{Op: op, Len: uint8(at + 4), Rel: true, Dist: int64(int32(binary.LittleEndian.Uint32(code[at:])))}
		return true
	}
	if how >= skModRM && how != skIb && how != skIz {
		m := code[at]
		if how >= skShift {
			if reg := m >> 3 & 7; reg == 6 && how <= skShiftI || reg != 0 && how > skShiftI {
				return false
			}
		}
		at++
		if m < 0xc0 {
			if m&7 == 4 {
				if m < 0x40 && code[at]&7 == 5 {
					at += 4
				}
				at++
			}
			switch {
			case m >= 0x80 || m&0xc7 == 5:
				at += 4
			case m >= 0x40:
				at++
			}
		}
	}
	if at += imm; at > maxLen {
		return false
	}
	*o = Outline{Op: op, Len: uint8(at)}
	return true
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
	fill(&two, skModRM, 0x10, 0x11, 0x1f, 0x28, 0x29, 0x2e, 0x2f, 0x54, 0x57, 0x6f, 0x7f, 0xaf, 0xb6, 0xb7, 0xbe, 0xbf, 0xef)
	span(&two, skModRM, 0x40, 0x4f)
	span(&two, skJz, 0x80, 0x8f)
	span(&two, skModRM, 0x90, 0x9f)
	return one, two
}
