package x86

import "encoding/binary"

// This file is a shortcut through Decode. Nine of ten instructions of compiled code are moves, arithmetic, jumps and
// pushes of general registers; for these the search for a form and the loop over its operands are most of the work.
// Every fact about an instruction still comes from the tables of forms, and TestQuick requires equal results.

// How quick goes on after an opcode.
const (
	// The order matters: from quMR on a ModRM byte follows.
	quNone  = iota // to the general steps
	quNop          // nothing follows: nop
	quRet          // nothing follows: ret
	quPush         // nothing follows: the opcode names a register
	quReg          // the opcode names a register, an immediate as wide as it follows
	quRel8         // a relative byte
	quRel32        // four relative bytes
	quMR           // ModRM: r/m, register
	quRM           // ModRM: register, r/m
	quLEA          // ModRM: register, memory
	quMI8          // ModRM: r/m, immediate byte
	quMI32         // ModRM: r/m, immediate of four bytes
	quTwo          // 0f
)

// quickHow is how quick goes on after opcodes of one byte. What these do is in the general tables; of opcodes that
// several instructions share, ModRM tells them apart.
var quickHow = [256]uint8{
	0x01: quMR, 0x03: quRM, 0x09: quMR, 0x0b: quRM, 0x0f: quTwo, 0x21: quMR, 0x23: quRM, 0x29: quMR, 0x2b: quRM,
	0x31: quMR, 0x33: quRM, 0x39: quMR, 0x3b: quRM,
	0x50: quPush, 0x51: quPush, 0x52: quPush, 0x53: quPush, 0x54: quPush, 0x55: quPush, 0x56: quPush, 0x57: quPush,
	0x58: quPush, 0x59: quPush, 0x5a: quPush, 0x5b: quPush, 0x5c: quPush, 0x5d: quPush, 0x5e: quPush, 0x5f: quPush,
	0x70: quRel8, 0x71: quRel8, 0x72: quRel8, 0x73: quRel8, 0x74: quRel8, 0x75: quRel8, 0x76: quRel8, 0x77: quRel8,
	0x78: quRel8, 0x79: quRel8, 0x7a: quRel8, 0x7b: quRel8, 0x7c: quRel8, 0x7d: quRel8, 0x7e: quRel8, 0x7f: quRel8,
	0x63: quRM, 0x80: quMI8, 0x81: quMI32, 0x83: quMI8, 0x84: quMR, 0x85: quMR, 0x88: quMR,
	0x89: quMR, 0x8a: quRM, 0x8b: quRM, 0x8d: quLEA, 0x90: quNop,
	0xb8: quReg, 0xb9: quReg, 0xba: quReg, 0xbb: quReg, 0xbc: quReg, 0xbd: quReg, 0xbe: quReg, 0xbf: quReg,
	0xc1: quMI8, 0xc3: quRet, 0xc6: quMI8, 0xc7: quMI32, 0xe8: quRel32, 0xe9: quRel32, 0xeb: quRel8,
}

// quick decodes instructions on general registers, memory and immediates, without prefixes but REX. It does what the
// general steps do, in a third of the time. If it returns false, *in is undefined. Its instructions have at most 12
// bytes (REX, opcode, ModRM, SIB, 4 of displacement, 4 of immediate). With 15 bytes at hand no step needs to look for
// the end of code.
func quick(code []byte, in *Inst) bool {
	if len(code) < maxLen {
		return false
	}
	off, b, rex := 1, code[0], uint8(0)
	if b&0xf0 == 0x40 {
		off, b, rex = 2, code[1], b
	}
	how, slot := quickHow[b], int(b)
	if how == quTwo {
		b = code[off]
		off++
		switch {
		case b&0xf0 == 0x80:
			how = quRel32
		case b&0xf0 == 0x40, b == 0xaf, b&0xf6 == 0xb6: // cmov, imul, movzx and movsx
			how = quRM
		default:
			return false
		}
		slot = 1<<8 | int(b)
	}
	if how == quNone {
		return false
	}
	*in = Inst{}
	in.Mem.Base, in.Mem.Index = None, None
	in.OpSize = 4 + rex>>1&4 // 8 with REX.W
	in.Enc.W, in.Enc.Rex, in.Enc.Map, in.Enc.Opcode = rex&8 != 0, rex, uint8(slot>>8), b
	if how >= quMR {
		return in.quickModRM(code, off, how, slot)
	}
	// These opcodes have one form each, whatever the prefixes.
	f := &forms[spans[slot].first]
	in.Op = f.op
	a := &in.Args[0]
	switch how {
	case quNop:
		in.Op, in.Len = OpNOP, uint8(off)
		return rex == 0 // REX.B makes it xchg
	case quRet:
		in.Len = uint8(off)
		in.stack(8)
		return true
	case quPush:
		in.OpSize, in.Len, in.NArgs = 8, uint8(off), 1
		a.Access, a.Size = Access(f.acc&3), 8
		in.quickGPR(a, b&7|rex<<3&8)
		if b < 0x58 {
			in.stack(-8)
		} else {
			in.stack(8)
		}
		return true
	case quReg:
		in.NArgs = 2
		a.Access, a.Size = Access(f.acc&3), in.OpSize
		in.quickGPR(a, b&7|rex<<3&8)
		in.Args[1] = Arg{Kind: KImm, Access: Access(f.acc >> 2 & 3), Size: in.OpSize}
		if in.Enc.ImmLen = in.OpSize; in.Enc.W {
			in.Imm = int64(binary.LittleEndian.Uint64(code[off:]))
		} else {
			in.Imm = int64(int32(binary.LittleEndian.Uint32(code[off:])))
		}
		in.Len = uint8(off) + in.Enc.ImmLen
		return true
	case quRel8:
		in.Enc.ImmLen, in.Imm = 1, int64(int8(code[off]))
	case quRel32:
		in.Enc.ImmLen, in.Imm = 4, int64(int32(binary.LittleEndian.Uint32(code[off:])))
	}
	in.NArgs, in.Len = 1, uint8(off)+in.Enc.ImmLen
	*a = Arg{Kind: KRel, Access: Access(f.acc & 3), Size: in.Enc.ImmLen}
	switch f.op {
	case OpCALL:
		in.OpSize = 8
		in.stack(-8)
	case OpJMP:
		in.OpSize = 8
	default:
		in.Cond = Cond(b & 15)
	}
	return true
}

// quickModRM goes on at ModRM, code[off]. slot is the index in spans. If it returns false, *in is undefined.
func (in *Inst) quickModRM(code []byte, off int, how uint8, slot int) bool {
	modrm := code[off]
	off++
	in.Enc.HasModRM, in.Enc.ModRM = true, modrm
	f := &forms[spans[slot].first]
	if f.reg != 0xff { // reg chooses one of eight
		// 80, 81, 83 and c1 have eight forms in the order of reg. c6 and c7 have mov at 0, xabort and xbegin at 7. The
		// SDM does not list c1 /6 (it works as shl), so the general steps decide.
		k := modrm >> 3 & 7
		switch {
		case slot < 0xc6:
			if f = &forms[int(spans[slot].first)+int(k)]; slot == 0xc1 && k == 6 {
				return false
			}
		case k != 0:
			return false
		}
	}
	in.Op, in.NArgs = f.op, 2
	in.Args[0].Access, in.Args[1].Access = Access(f.acc&3), Access(f.acc>>2&3)
	in.Args[0].Size, in.Args[1].Size = in.quickSize(f.args[0].size), in.quickSize(f.args[1].size)
	rm, other := &in.Args[0], &in.Args[1]
	if how == quRM || how == quLEA {
		rm, other = other, rm
	}
	// The r/m operand. lea of a register is invalid; ah to bh need the general steps.
	if modrm >= 0xc0 {
		if how == quLEA || !in.quickGPR(rm, modrm&7|in.Enc.Rex<<3&8) {
			return false
		}
	} else {
		off = in.quickMem(code, off)
		in.Reads |= in.Mem.Base.Mask() | in.Mem.Index.Mask()
		rm.Kind = KMem
		in.MemWrite = rm.Access&Write != 0
		if how != quLEA {
			in.MemSize, in.MemRead = uint16(rm.Size), rm.Access&Read != 0
		}
	}
	switch how {
	case quMI8:
		other.Kind = KImm
		in.Enc.ImmLen, in.Imm = 1, int64(int8(code[off]))
		if f.args[1].kind == argImmU {
			in.Imm = int64(code[off])
		}
	case quMI32:
		other.Kind = KImm
		in.Enc.ImmLen, in.Imm = 4, int64(int32(binary.LittleEndian.Uint32(code[off:])))
	default:
		if !in.quickGPR(other, modrm>>3&7|in.Enc.Rex<<1&8) {
			return false
		}
		if f.op == OpCMOVCC {
			in.Cond = Cond(in.Enc.Opcode & 15)
		}
	}
	in.Len = uint8(off) + in.Enc.ImmLen
	return true
}

// quickMem reads SIB and displacement, from code[off] on, and returns where they end. It is memory without VSIB, EVEX
// and address prefixes.
func (in *Inst) quickMem(code []byte, off int) int {
	m, mod, rm := &in.Mem, in.Enc.ModRM>>6, in.Enc.ModRM&7
	m.Scale = 1
	n := [4]uint8{0, 1, 4, 0}[mod]
	switch {
	case rm == 4:
		b := code[off]
		off++
		if x := b>>3&7 | in.Enc.Rex<<2&8; x != 4 {
			m.Index, m.Scale = Reg(x), 1<<(b>>6)
		}
		if b&7 == 5 && mod == 0 {
			n = 4
		} else {
			m.Base = Reg(b&7 | in.Enc.Rex<<3&8)
		}
	case rm == 5 && mod == 0:
		n = 4
		m.Base = RIP
	default:
		m.Base = Reg(rm | in.Enc.Rex<<3&8)
	}
	switch n {
	case 1:
		m.Disp = int64(int8(code[off]))
	case 4:
		m.Disp = int64(int32(binary.LittleEndian.Uint32(code[off:])))
	}
	in.Enc.DispLen = n
	return off + int(n)
}

// quickSize turns a table's size into bytes. The operand size of 2 needs 66, which quick leaves to the general steps.
func (in *Inst) quickSize(n uint8) uint8 {
	switch n {
	case sizeV:
		return in.OpSize
	case sizeZ:
		return 4
	}
	return n
}

// quickGPR makes an operand, whose access and size are set, a general register; false for ah, ch, dh and bh.
func (in *Inst) quickGPR(a *Arg, reg uint8) bool {
	if a.Size == 1 && in.Enc.Rex == 0 && reg >= 4 {
		return false
	}
	a.Kind, a.Reg = KGPR, reg
	m := uint16(1) << reg
	if a.Access&Read != 0 {
		in.Reads |= m
	}
	if a.Access&Write != 0 {
		in.Writes |= m
		if a.Size < 4 {
			in.Partial |= m
		}
	}
	return true
}
