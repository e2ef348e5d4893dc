package x86

import (
	"strconv"
	"strings"
	"sync"
)

// This file writes instructions as text, for listings and messages. It follows objdump -M intel,
// which validate/objdumpcmp compares it with.

// By number, as encoded.
var (
	// The encoding's order, which differs from DWARF's.
	names64 = [16]string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
		"r14", "r15"}
	names32   = [8]string{"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi"}
	names16   = [8]string{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"}
	names8    = [8]string{"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"}
	names8h   = [4]string{"ah", "ch", "dh", "bh"}
	namesSeg  = [8]string{"es", "cs", "ss", "ds", "fs", "gs", "?", "?"}
	condNames = [16]string{"o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"}
)

// String returns the mnemonic in Intel's spelling; for OpJCC and its kin without the condition.
func (o Op) String() string {
	if o >= NumOps {
		o = OpUnknown
	}
	return opNames()[o]
}

// opNames is split when a listing or a message first needs it.
var opNames = sync.OnceValue(func() []string { return strings.Fields(mnemonics) })

// String returns the register's 64-bit name.
func (r Reg) String() string {
	switch {
	case r <= R15:
		return names64[r]
	case r == RIP:
		return "rip"
	}
	return "none"
}

// String returns the condition's suffix, as in jne.
func (c Cond) String() string { return condNames[c&15] }

// gprName returns the name of a general register of a size in bytes; high: ah to bh.
func gprName(r, size uint8, high bool) string {
	switch {
	case high:
		return names8h[r&3]
	case size == 8:
		return names64[r&15]
	case r >= 8:
		return names64[r&15] + map[uint8]string{4: "d", 2: "w", 1: "b"}[size]
	case size == 4:
		return names32[r]
	case size == 2:
		return names16[r]
	}
	return names8[r]
}

// Bytes to Intel's words. Larger memory, such as of fxsave, has no word.
var sizeNames = map[uint16]string{1: "BYTE", 2: "WORD", 4: "DWORD", 8: "QWORD", 10: "TBYTE", 16: "XMMWORD",
	32: "YMMWORD", 64: "ZMMWORD"}

// Mnemonic returns the mnemonic with its condition and, where Intel's name depends on it, its size.
func (in *Inst) Mnemonic() string {
	switch in.Op {
	case OpJCC:
		return "j" + in.Cond.String()
	case OpCMOVCC:
		return "cmov" + in.Cond.String()
	case OpSETCC:
		return "set" + in.Cond.String()
	// One opcode, three names by operand size.
	case OpCBW:
		return map[uint8]string{2: "cbw", 4: "cwde", 8: "cdqe"}[in.OpSize]
	case OpCWD:
		return map[uint8]string{2: "cwd", 4: "cdq", 8: "cqo"}[in.OpSize]
	case OpCMPXCHG8B:
		if in.Enc.W {
			return "cmpxchg16b"
		}
	case OpMOV:
		if in.Enc.ImmLen == 8 {
			return "movabs"
		}
	case OpFOTHER:
		return "x87"
	}
	return in.Op.String()
}

// Text returns the instruction at pc in Intel's syntax, as objdump -M intel prints it but without symbols. It is for
// people; no analysis parses it.
func (in *Inst) Text(pc uint64) string {
	var b strings.Builder
	if in.Prefix&PrefixLock != 0 {
		b.WriteString("lock ")
	}
	// Besides string instructions VIA's xstore and its kin.
	if in.isString() || in.Enc.Map == 1 && in.Enc.Opcode|1 == 0xa7 && in.Enc.Form == FormLegacy {
		switch {
		case in.Prefix&PrefixF3 != 0:
			b.WriteString("rep ")
		case in.Prefix&PrefixF2 != 0:
			b.WriteString("repnz ")
		}
	}
	b.WriteString(in.Mnemonic())
	for i := range in.Args[:in.NArgs] {
		if i > 0 {
			b.WriteByte(',')
		} else {
			b.WriteByte(' ')
		}
		b.WriteString(in.argText(&in.Args[i], pc))
	}
	return b.String()
}

// isString reports whether repetition prefixes count iterations.
func (in *Inst) isString() bool {
	switch in.Op {
	case OpMOVS, OpSTOS, OpLODS, OpCMPS, OpSCAS, OpINS, OpOUTS:
		return true
	}
	return false
}

// hex writes a number as its 64 bits.
func hex(v int64) string { return "0x" + strconv.FormatUint(uint64(v), 16) }

// argText returns an operand in Intel's spelling.
func (in *Inst) argText(a *Arg, pc uint64) string {
	switch a.Kind {
	case KGPR:
		return gprName(a.Reg, a.Size, a.High)
	case KVec:
		return map[uint8]string{16: "x", 32: "y", 64: "z"}[a.Size] + "mm" + strconv.Itoa(int(a.Reg))
	case KMMX:
		return "mm" + strconv.Itoa(int(a.Reg))
	case KMask:
		return "k" + strconv.Itoa(int(a.Reg))
	case KTile:
		return "tmm" + strconv.Itoa(int(a.Reg))
	case KBnd:
		return "bnd" + strconv.Itoa(int(a.Reg))
	case KSeg:
		return namesSeg[a.Reg&7]
	case KCtl:
		return "cr" + strconv.Itoa(int(a.Reg))
	case KDbg:
		return "db" + strconv.Itoa(int(a.Reg))
	case KRel:
		return hex(int64(in.Target(pc)))
	case KImm:
		if in.Enc.ImmLen == 0 {
			return "1"
		}
		return hex(in.cut(in.Imm))
	case KImm2:
		return hex(in.Imm2)
	case KMem:
		return in.memText(a)
	}
	return "?"
}

// cut truncates an immediate to the size of the other operand: objdump prints and eax,-16 as 0xfffffff0, push -16 as 64
// bits.
func (in *Inst) cut(v int64) int64 {
	n := in.OpSize
	if in.Args[0].Size == 1 && in.Enc.Form == FormLegacy && in.Args[0].Kind != KImm {
		n = 1
	}
	if v < 0 && n < 8 && in.Op != OpPUSH {
		v &= 1<<(8*n) - 1
	}
	return v
}

// memText returns a memory operand in Intel's spelling, with its size.
func (in *Inst) memText(a *Arg) string {
	var b strings.Builder
	// lea and movabs take no size word.
	if n := sizeNames[uint16(a.Size)]; n != "" && in.Op != OpLEA && in.Op != OpMOVABS {
		if in.Enc.Broadcast {
			b.WriteString("BCST ")
		} else {
			b.WriteString(n + " PTR ")
		}
	}
	m := &in.Mem
	if m.Seg != 0 {
		b.WriteString(namesSeg[m.Seg] + ":")
	}
	// Without registers an absolute address, in ds unless another segment is named.
	if m.Base == None && m.Index == None {
		if m.Seg == 0 {
			b.WriteString("ds:")
		}
		b.WriteString(hex(m.Disp))
		return b.String()
	}
	b.WriteByte('[')
	size := uint8(8)
	if m.Addr32 {
		size = 4
	}
	plus := ""
	if m.Base != None {
		if m.Base == RIP {
			b.WriteString("rip")
		} else {
			b.WriteString(gprName(uint8(m.Base), size, false))
		}
		plus = "+"
	}
	if m.Index != None {
		b.WriteString(plus)
		if m.VSIB {
			b.WriteString("mm" + strconv.Itoa(int(m.Index)))
		} else {
			b.WriteString(gprName(uint8(m.Index), size, false))
		}
		b.WriteString("*" + strconv.Itoa(int(m.Scale)))
		plus = "+"
	}
	// objdump shows a displacement of 0 if it is encoded.
	if m.Disp != 0 || in.Enc.DispLen > 0 {
		if m.Disp < 0 {
			b.WriteString("-" + hex(-m.Disp))
		} else {
			b.WriteString(plus + hex(m.Disp))
		}
	}
	b.WriteByte(']')
	return b.String()
}
