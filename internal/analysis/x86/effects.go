package x86

// effects adds what the operands do not say.
func (s *state) effects(f *form) {
	in := s.in
	in.Reads |= f.read
	in.Writes |= f.write
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
	op := int16(in.OpSize)
	switch f.op {
	case OpPUSH, OpPUSHF:
		in.stack(-op)
	case OpPOP, OpPOPF:
		in.stack(op)
	case OpCALL:
		in.OpSize = 8
		in.stack(-8)
	case OpJMP:
		in.OpSize = 8
	case OpRET:
		in.stack(8)
		in.Stack += int16(in.Imm)
	case OpLEAVE:
		in.Reads |= RBP.Mask()
		in.Writes |= RSP.Mask() | RBP.Mask()
	case OpENTER:
		in.Reads |= RSP.Mask() | RBP.Mask()
		in.Writes |= RSP.Mask() | RBP.Mask()
	case OpJCC, OpCMOVCC, OpSETCC:
		in.Cond = Cond(in.Opcode & 15)
	case OpMOVS, OpSTOS, OpLODS, OpCMPS, OpSCAS, OpINS, OpOUTS:
		s.str(f.op)
	case OpLEA:
		in.MemSize = 0
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
	case OpXCHG:
		if in.Opcode == 0x90 && in.Map == 0 && s.b == 0 {
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
func byteOp(in *Inst) bool {
	if in.NArgs > 0 {
		return in.Args[0].Size == 1
	}
	switch in.Op {
	case OpLODS, OpXLAT, OpLAHF:
		return in.Opcode&1 == 0 || in.Op != OpLODS
	}
	return false
}

func (in *Inst) stack(n int16) {
	in.Stack = n
	in.Reads |= RSP.Mask()
	in.Writes |= RSP.Mask()
}

// str is the memory access of the string instructions.
func (s *state) str(op Op) {
	in := s.in
	m := &in.Mem
	m.Scale = 1
	m.Addr32 = in.Prefix&PrefixAddrSize != 0
	n := in.OpSize
	if in.Opcode&1 == 0 {
		n = 1
	}
	if op == OpINS || op == OpOUTS {
		n = min(n, 4)
	}
	in.MemSize = uint16(n)
	in.OpSize = n
	if in.Prefix&(PrefixF2|PrefixF3) != 0 {
		in.MemSize = 0
		in.Reads |= RCX.Mask()
		in.Writes |= RCX.Mask()
	}
	switch op {
	case OpMOVS, OpSTOS, OpINS:
		m.Base, m.Seg = RDI, 0
		in.MemWrite = true
		in.MemRead = op == OpMOVS
	default:
		m.Base = RSI
		if op == OpSCAS {
			m.Base = RDI
		}
		in.MemRead = true
	}
}
