package x86

// This file adds what an instruction does beyond its operands: implicit registers, rsp, string
// memory, condition codes.

// effects adds what the operands do not say. What moves rsp by a fixed distance goes to Stack; leave, enter and moves
// to rsp only to Writes, since their distance depends on other values.
func (s *state) effects(f *form) {
	in := s.in
	in.Reads |= f.read
	in.Writes |= f.write
	// Implicit registers whose size is the operand's, as of mul and div.
	if f.readOp|f.writeOp != 0 {
		size := in.OpSize
		if byteOp(in) {
			size = 1
		}
		in.Reads |= f.readOp
		in.Writes |= f.writeOp
		if size < 4 {
			in.Partial |= f.writeOp
		}
	}
	// Bytes that rsp moves; calls and returns always move 8: 66 does not change them on Intel's processors, and
	// immediates refuses it for relative ones.
	op := int16(in.OpSize)
	switch f.op {
	case OpPUSH, OpPUSHF:
		in.stack(-op)
	case OpPOP, OpPOPF:
		in.stack(op)
	// APX: two registers of 8 bytes in one instruction, whose stack must be aligned to 16.
	case OpPUSH2:
		in.stack(-16)
	case OpPOP2:
		in.stack(16)
	case OpCALL:
		in.OpSize = 8
		in.stack(-8)
	// The operand size of near jumps is always 64 bits (SDM Vol. 2, JMP).
	case OpJMP:
		in.OpSize = 8
	case OpRET:
		in.stack(8)
		// ret with a constant pops that many bytes more.
		in.Stack += int16(in.Imm)
	// rsp comes from rbp: no fixed distance.
	case OpLEAVE:
		in.Reads |= RBP.Mask()
		in.Writes |= RSP.Mask() | RBP.Mask()
	// How far enter moves rsp depends on its two immediates.
	case OpENTER:
		in.Reads |= RSP.Mask() | RBP.Mask()
		in.Writes |= RSP.Mask() | RBP.Mask()
	// The condition is in the opcode's low four bits.
	case OpJCC, OpCMOVCC, OpSETCC:
		in.Cond = Cond(in.Enc.Opcode & 15)
	case OpMOVS, OpSTOS, OpLODS, OpCMPS, OpSCAS, OpINS, OpOUTS:
		s.str(f.op)
	// lea computes an address and reads nothing there. A size would look like an access.
	case OpLEA:
		in.MemSize = 0
	// These write where rdi points, without a memory operand. A store that codeflow overlooked could change a saved
	// register.
	case OpVMASKMOVDQU, OpMASKMOVDQU:
		in.Mem.Base, in.Mem.Scale = RDI, 1
		in.MemWrite, in.MemSize = true, 16
	case OpMASKMOVQ:
		in.Mem.Base, in.Mem.Scale = RDI, 1
		in.MemWrite, in.MemSize = true, 8
	case OpCLZERO:
		in.Mem.Base, in.Mem.Scale = RAX, 1
		in.MemWrite, in.MemSize = true, 64
	case OpMOVDIR64B, OpENQCMD, OpENQCMDS:
		// writes through the register operand, which Mem can't say
		in.MemWrite, in.MemSize = true, 0
	case OpXSTORERNG, OpXSHA1, OpXSHA256, OpXCRYPTECB, OpXCRYPTCBC, OpXCRYPTCTR, OpXCRYPTCFB, OpXCRYPTOFB:
		// how much is in rcx; the initialisation vector at rax is another write, which Mem can't say
		in.Mem.Base, in.Mem.Scale = RDI, 1
		in.MemWrite, in.MemSize = true, 0
	case OpMONTMUL:
		in.Mem.Base, in.Mem.Scale = RSI, 1
		in.MemWrite, in.MemSize = true, 0
	// 90 is xchg of rax with rax, which is nop; with REX.B it exchanges with r8. As xchg it would clear eax's upper
	// half, which nop does not (SDM Vol. 2, XCHG and NOP).
	case OpXCHG:
		if in.Enc.Opcode == 0x90 && in.Enc.Map == 0 && s.b == 0 {
			// nop: pause with f3
			in.Op = OpNOP
			if in.Prefix&PrefixF3 != 0 {
				in.Op = OpPAUSE
			}
			in.NArgs, in.Reads, in.Writes, in.Partial = 0, 0, 0, 0
			in.Args = [5]Arg{}
		}
	}
}

// byteOp reports whether the first operand has a byte, as the implicit registers of mul, div and cmpxchg then have.
// Operands alone can't tell it for lods, xlat and lahf, which have none.
func byteOp(in *Inst) bool {
	if in.NArgs > 0 {
		return in.Args[0].Size == 1
	}
	switch in.Op {
	case OpLODS, OpXLAT, OpLAHF:
		return in.Enc.Opcode&1 == 0 || in.Op != OpLODS
	}
	return false
}

// stack notes that rsp changes by n bytes; negative n pushes.
func (in *Inst) stack(n int16) {
	in.Stack = n
	in.Reads |= RSP.Mask()
	in.Writes |= RSP.Mask()
}

// str is the memory access of the string instructions: one step of it if there is no repetition. The table gives rsi
// and rdi as read and written.
func (s *state) str(op Op) {
	in := s.in
	m := &in.Mem
	m.Scale = 1
	m.Addr32 = in.Prefix&PrefixAddrSize != 0
	// The lowest bit of the opcode tells bytes from larger units.
	n := in.OpSize
	if in.Enc.Opcode&1 == 0 {
		n = 1
	}
	// Ports have at most 4 bytes: REX.W does not widen ins and outs.
	if op == OpINS || op == OpOUTS {
		n = min(n, 4)
	}
	in.MemSize = uint16(n)
	in.OpSize = n
	// Repetition: rcx counts, and how much is accessed is not known.
	if in.Prefix&(PrefixF2|PrefixF3) != 0 {
		in.MemSize = 0
		in.Reads |= RCX.Mask()
		in.Writes |= RCX.Mask()
	}
	switch op {
	case OpMOVS, OpSTOS, OpINS:
		// The destination is always in es, whatever the prefix says (SDM Vol. 2, MOVS): fs and gs apply to the source
		// alone.
		m.Base, m.Seg = RDI, 0
		in.MemWrite = true
		in.MemRead = op == OpMOVS
	default:
		// lods, cmps and outs read at rsi; cmps reads at rdi, too, which Mem cannot say.
		m.Base = RSI
		if op == OpSCAS {
			m.Base = RDI
		}
		in.MemRead = true
	}
}
