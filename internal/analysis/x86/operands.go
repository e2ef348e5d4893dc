package x86

import "encoding/binary"

// This file fills in the operands of an instruction from its form: kind, register or memory, size,
// and whether they are read or written.

// immediates reads the bytes after ModRM and the displacement. It sets Imm, Imm2 and ImmLen, and for movabs Mem.Disp.
// The error is ErrTruncated, or ErrInvalid where processors differ.
func (s *state) immediates(f *form) error {
	in := s.in
	got := 0 // bytes of a register-and-immediate byte shared by two operands
	for i := range f.args {
		a := &f.args[i]
		n := 0
		switch a.kind {
		case argNone:
			return nil
		case argImm, argImmU, argRel:
			// Immediates are as long as their size says; relative ones count from the end.
			n = int(s.size(a.size))
			if a.kind == argRel && n == 4 && in.OpSize == 2 {
				return ErrInvalid // AMD's processors take two bytes, Intel's four
			}
		// movabs: a full address in the instruction.
		case argAbs:
			n = 8
			if in.Prefix&PrefixAddrSize != 0 {
				n = 4
			}
		// is4: a register in the upper half of an immediate byte.
		case argVec, argMask, argGPR:
			if a.field != fieldImm {
				continue
			}
			n = 1
		default:
			continue
		}
		// The byte has been read with the register.
		if got > 0 && hasImmReg(f) {
			continue
		}
		if s.pos+n > len(s.code) {
			return ErrTruncated
		}
		var v int64
		b := s.code[s.pos:]
		switch n {
		case 1:
			v = int64(int8(b[0]))
			// Bytes of the other kinds are unsigned.
			if a.kind != argImm && a.kind != argRel {
				v = int64(b[0])
			}
		case 2:
			v = int64(int16(binary.LittleEndian.Uint16(b)))
			if a.kind == argImmU {
				v = int64(uint16(v))
			}
		case 4:
			v = int64(int32(binary.LittleEndian.Uint32(b)))
		case 8:
			v = int64(binary.LittleEndian.Uint64(b))
		}
		s.pos += n
		in.Enc.ImmLen += uint8(n)
		switch {
		case a.kind == argAbs:
			if n == 4 {
				v = int64(uint32(v))
			}
			in.Mem.Disp, in.Mem.Scale = v, 1
		// A second immediate, such as enter's.
		case got > 0:
			in.Imm2 = v
		default:
			in.Imm = v
		}
		if a.kind != argAbs {
			got++
		}
	}
	return nil
}

// hasImmReg reports whether one byte holds a register and an immediate.
func hasImmReg(f *form) bool {
	for i := range f.args {
		if f.args[i].kind == argVec && f.args[i].field == fieldImm {
			return true
		}
	}
	return false
}

// size turns a table's size into bytes.
func (s *state) size(n uint8) uint8 {
	switch n {
	// v: 2, 4 or 8 by the operand size.
	case sizeV:
		return s.in.OpSize
	// z: as v, at most 4.
	case sizeZ:
		return min(s.in.OpSize, 4)
	// y: 4, or 8 with W.
	case sizeY:
		if s.in.Enc.W {
			return 8
		}
		return 4
	// The vector length, or a half, a quarter or an eighth of it; with rounding control it is 512 bits.
	case sizeL, sizeL2, sizeL4, sizeL8:
		if s.in.Enc.Form == FormEVEX && s.in.Enc.Broadcast && s.in.Enc.ModRM >= 0xc0 {
			return 64 >> (n - sizeL)
		}
		return 16 << s.in.Enc.L >> (n - sizeL)
	// cmpxchg8b and cmpxchg16b.
	case sizeCX:
		if s.in.Enc.W {
			return 16
		}
		return 8
	// fxsave's 512 bytes do not fit a byte: 255 stands for them.
	case size512:
		return 255
	}
	return n
}

// stackOp reports whether the operand size is 8 unless 66 makes it 2.
func stackOp(op Op) bool {
	switch op {
	case OpPUSH, OpPOP, OpPUSHF, OpPOPF, OpENTER, OpLEAVE:
		return true
	}
	return false
}

// operands fills in Args and the registers that they read and write.
func (s *state) operands(f *form) {
	in := s.in
	// In 64-bit mode push and pop have no 4-byte form.
	if stackOp(f.op) {
		in.OpSize = 8
		if in.Prefix&PrefixOpSize != 0 && !in.Enc.W {
			in.OpSize = 2
		}
	}
	// Address registers are read, also by lea.
	in.Reads |= in.Mem.Base.Mask()
	if !in.Mem.VSIB {
		in.Reads |= in.Mem.Index.Mask()
	}
	imms := 0
	for i := range f.args {
		a := &f.args[i]
		if a.kind == argNone {
			break
		}
		o := &in.Args[i]
		in.NArgs++
		// Two bits for each operand.
		o.Access = Access(f.acc >> (2 * i) & 3)
		// r/m: a register or memory, by mod.
		kind, size := a.kind, a.size
		if a.mem != 0 && in.Enc.ModRM < 0xc0 {
			kind, size = argMem, a.mem
		}
		o.Size = s.size(size)
		if a.kind == argGPR && stackOp(f.op) {
			o.Size = in.OpSize
		}
		switch kind {
		case argGPR, argFixed:
			s.gpr(o, a)
		case argMem, argAbs:
			s.mem(o)
		// Vector registers have bit 4 with EVEX.
		case argVec:
			o.Kind, o.Reg = KVec, s.number(a.field)|s.high(a.field)
		// The others have eight.
		case argMMX:
			o.Kind, o.Reg = KMMX, s.number(a.field)&7
		case argMask:
			o.Kind, o.Reg = KMask, s.number(a.field)&7
		case argTile:
			o.Kind, o.Reg = KTile, s.number(a.field)&7
		case argBnd:
			o.Kind, o.Reg = KBnd, s.number(a.field)&7
		case argSeg:
			o.Kind, o.Reg = KSeg, s.number(a.field)&7
		case argSegFixed:
			o.Kind, o.Reg = KSeg, uint8(a.field)
		case argCtl:
			o.Kind, o.Reg = KCtl, s.number(a.field)
		case argDbg:
			o.Kind, o.Reg = KDbg, s.number(a.field)
		// A second immediate is its own kind, unless it shares the byte with a register.
		case argImm, argImmU:
			o.Kind = KImm
			if imms > 0 && !hasImmReg(f) {
				o.Kind = KImm2
			}
			imms++
		// Shifts by 1 have no byte for it.
		case argOne:
			o.Kind = KImm
			in.Imm = 1
		case argRel:
			o.Kind = KRel
		}
	}
}

// number returns the register that a field holds.
func (s *state) number(f field) uint8 {
	in := s.in
	switch f {
	// With REX.R or VEX's R.
	case fieldReg:
		return in.Enc.ModRM>>3&7 | s.r
	// With REX.B.
	case fieldRM:
		return in.Enc.ModRM&7 | s.b
	// The extra operand of VEX and EVEX.
	case fieldV:
		return s.vvvv
	// is4's upper four bits.
	case fieldImm:
		return uint8(in.Imm) >> 4 & 15
	// In the opcode's low three bits.
	case fieldOp:
		return in.Enc.Opcode&7 | s.b
	}
	return 0
}

// high is bit 4 of a vector register's number.
func (s *state) high(f field) uint8 {
	if s.in.Enc.Form != FormEVEX {
		return 0
	}
	switch f {
	case fieldReg:
		return s.rHi
	case fieldRM:
		// EVEX uses X for r/m registers, which need no index.
		return s.x << 1
	case fieldV:
		return s.vHi
	}
	return 0
}

// gpr decodes a general register and notes that it is read or written.
func (s *state) gpr(o *Arg, a *argSpec) {
	in := s.in
	o.Kind = KGPR
	if a.kind == argFixed {
		o.Reg = uint8(a.field)
	} else {
		o.Reg = s.number(a.field) & 15
		// Without REX, byte registers 4 to 7 are ah, ch, dh and bh.
		if o.Size == 1 && in.Enc.Rex == 0 && in.Enc.Form == FormLegacy && o.Reg >= 4 && o.Reg < 8 {
			o.Reg -= 4
			o.High = true
		}
	}
	m := uint16(1) << o.Reg
	if o.Access&Read != 0 {
		in.Reads |= m
	}
	if o.Access&Write != 0 {
		in.Writes |= m
		// Writes of 4 bytes clear the upper half; smaller ones keep it.
		if o.Size < 4 {
			in.Partial |= m
		}
	}
}

// mem notes how the memory operand is accessed.
func (s *state) mem(o *Arg) {
	in := s.in
	o.Kind = KMem
	if o.Size == 0 {
		// lea, prefetch, xsave
		in.MemWrite = o.Access&Write != 0
		return
	}
	in.MemSize = uint16(o.Size)
	if o.Size == 255 {
		in.MemSize = 512
	}
	in.MemRead = o.Access&Read != 0
	in.MemWrite = o.Access&Write != 0
}
