package codeflow

import (
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

const (
	rsp = uint8(x86.RSP)
	rbp = uint8(x86.RBP)
)

// This file executes single instructions on a State. It follows what moves addresses around; arithmetic on anything
// else makes unknown values.

// callClobbers are the registers that a call may change (x86-64 psABI figure 3.4).
const callClobbers = 1<<x86.RAX | 1<<x86.RCX | 1<<x86.RDX | 1<<x86.RSI | 1<<x86.RDI | 0x0f00

// addr returns the memory operand's address as base and offset; ok is false if
// it is not known.
func (s *State) addr(in *x86.Inst) (base uint8, off int32, ok bool) {
	m := &in.Mem
	if m.Base > x86.R15 || m.Index != x86.None || m.Seg != 0 || m.Addr32 {
		return 0, 0, false
	}
	v := s.Regs[m.Base].Plus(m.Disp)
	return v.Reg, v.Off, v.Kind == Base
}

// machine executes instructions: it changes a State as they change registers and stack.
type machine struct {
	code  *listing // around the instructions: what came before them, and where functions begin
	bases []uint64 // the addresses at which bases arise
}

// baseID returns the number of the base that arises at pc. Numbers 1 to 250 are of instructions, base 0 is the CFA.
// Bases after the 250th share one unknown base, 251; 252 and 253 are those of other functions (foreignFrame).
func (m *machine) baseID(pc uint64) uint8 {
	for i, b := range m.bases {
		if b == pc {
			return uint8(i + 1)
		}
	}
	if len(m.bases) < 250 {
		m.bases = append(m.bases, pc)
		return uint8(len(m.bases))
	}
	return 251
}

// base makes rsp a new base, after it moved by an unknown amount.
func (m *machine) base(pc uint64, s *State) {
	s.Regs[rsp] = baseAt(m.baseID(pc), 0)
	s.dropBase(s.Regs[rsp].Reg)
}

// push moves rsp by size bytes and stores v there. store keeps no register that calls may change; a push of one is
// kept all the same, since rows may name it.
func (s *State) push(size int32, v Value) {
	s.move(-size)
	if r := s.Regs[rsp]; r.Kind == Base {
		s.store(r.Reg, r.Off, size, v)
		if size == 8 && v.Kind == Entry && !keeps(v) {
			s.put(r.Reg, r.Off, v) // a register that calls may change, which a row may call unchanged
		}
	}
}

// move adds n to rsp.
func (s *State) move(n int32) {
	s.Regs[rsp] = s.Regs[rsp].Plus(int64(n)) // an entry value, of a stack in a register, is one no more
}

// top returns the word that rsp points to, unknown if the stack pointer is.
func (s *State) top() Value {
	if r := s.Regs[rsp]; r.Kind == Base {
		return s.Slot(r.Reg, r.Off)
	}
	return Value{}
}

// popsElsewhere reports whether a pop of register h, which is saved, has read a word that the code did not write: rsp
// is not known, or was set to an unknown address since.
func (s *State) popsElsewhere(h uint8) bool {
	r := s.Regs[rsp]
	return s.saves()>>h&1 != 0 && (r.Kind == Unknown || r.Kind == Base && r.Reg != 0 && r.Off >= 8)
}

func gpr64(a *x86.Arg) bool { return a.Kind == x86.KGPR && a.Size == 8 }

// exec executes an instruction from which control goes on to the next one.
func (m *machine) exec(pc uint64, in *x86.Inst, s *State) {
	before := s.Regs[rsp]
	switch classes[in.Op] {
	case classMov:
		m.mov(pc, in, s)
	case classAdd:
		m.add(pc, in, s)
	case classLea:
		m.lea(pc, in, s)
	case classPush:
		s.push(int32(in.OpSize), s.read(in))
	case classPop:
		m.pop(in, s)
	case classRare:
		m.rare(pc, in, s)
	case classCall:
		m.call(pc, in, s)
	default:
		m.other(pc, in, s)
	}
	if s.Regs[rsp] != before {
		s.moved(before)
	}
}

// rare executes instructions that do more to rsp or to an address than they write, and are not common.
func (m *machine) rare(pc uint64, in *x86.Inst, s *State) {
	a, b := &in.Args[0], &in.Args[1]
	switch in.Op {
	case x86.OpPUSHF:
		s.push(int32(in.OpSize), Value{})
		return
	case x86.OpPOPF:
		s.move(int32(in.OpSize))
		return
	case x86.OpPUSH2: // the first operand goes to the higher word
		s.push(8, s.Regs[a.Reg])
		s.push(8, s.Regs[b.Reg])
		return
	case x86.OpPOP2:
		for _, h := range []uint8{a.Reg, b.Reg} {
			v := s.top()
			s.move(8)
			s.Regs[h] = v
		}
		return
	case x86.OpLEAVE:
		s.leave(int32(in.OpSize))
		return
	case x86.OpENTER:
		m.enterFrame(pc, in, s)
		return
	case x86.OpINC, x86.OpDEC:
		if gpr64(a) && s.Regs[a.Reg].Kind == Base {
			if in.Op == x86.OpINC {
				s.Regs[a.Reg].Off++
			} else {
				s.Regs[a.Reg].Off--
			}
			return
		}
	case x86.OpAND: // the stack is aligned: by how much it moves is not known
		if gpr64(a) && a.Reg == rsp && s.Regs[rsp].Kind == Base {
			m.base(pc, s)
			return
		}
	case x86.OpXCHG:
		if gpr64(a) && gpr64(b) {
			s.Regs[a.Reg], s.Regs[b.Reg] = s.Regs[b.Reg], s.Regs[a.Reg]
			if s.Regs[rsp].Kind == Unknown {
				m.base(pc, s)
			}
			return
		}
	}
	m.other(pc, in, s)
}

// leave executes leave: rsp = rbp, and pop rbp of size bytes.
func (s *State) leave(size int32) {
	s.Regs[rsp] = s.Regs[rbp]
	v := s.top()
	s.move(size)
	// 66 c9 pops 16 bits: rbp's upper part stays, and no value is known.
	if size != 8 {
		v = Value{}
	}
	s.Regs[rbp] = v
}

// enterFrame executes enter. With a nesting level it copies pointers of outer frames, which nothing follows. GCC and
// clang emit none; assembly does, with level 0.
func (m *machine) enterFrame(pc uint64, in *x86.Inst, s *State) {
	s.push(8, s.Regs[rbp])
	s.Regs[rbp] = s.Regs[rsp]
	if in.Imm2 != 0 {
		s.Regs[rbp] = Value{}
		m.base(pc, s)
	} else {
		s.move(-int32(in.Imm))
	}
}

// read returns the value of an instruction's first operand.
func (s *State) read(in *x86.Inst) Value {
	switch a := &in.Args[0]; {
	case gpr64(a):
		return s.Regs[a.Reg]
	case a.Kind == x86.KMem && a.Size == 8:
		if base, off, ok := s.addr(in); ok {
			return s.Slot(base, off)
		}
	}
	return Value{}
}

// pop executes pop to a register or to memory.
func (m *machine) pop(in *x86.Inst, s *State) {
	// The word is read before rsp moves, and stays where it is: rows may go on naming it.
	a, v := &in.Args[0], s.top()
	s.move(int32(in.OpSize))
	switch {
	case a.Kind == x86.KMem:
		if base, off, ok := s.addr(in); ok {
			s.store(base, off, int32(in.OpSize), Value{})
		}
	case gpr64(a):
		if m.code.rows != nil && v.Kind == Unknown && CalleeSaved>>a.Reg&1 != 0 && s.popsElsewhere(a.Reg) {
			v = entryOf(a.Reg) // what the code saved, from a stack pointer that it got back from elsewhere
		}
		s.Regs[a.Reg] = v
	case a.Kind == x86.KGPR:
		s.Regs[a.Reg] = Value{}
	}
}

// lea executes lea. Of addresses that the state does not know nothing is kept, but for one that may begin a second
// frame.
func (m *machine) lea(pc uint64, in *x86.Inst, s *State) {
	a, v := &in.Args[0], Value{}
	// lea computes addresses, and is how compilers move rsp without changing flags.
	if base, off, ok := s.addr(in); ok && a.Size == 8 {
		v = baseAt(base, off)
	} else if a.Size == 8 && s.holds(entryOf(RA)) {
		// libffi gives a callee another frame, and copies the return address there
		v = baseAt(m.baseID(pc), 0)
		s.dropBase(v.Reg)
	}
	m.set(pc, s, a, v)
}

// add executes add and sub. Of other operands only the constants that probed finds are followed.
func (m *machine) add(pc uint64, in *x86.Inst, s *State) {
	a, b := &in.Args[0], &in.Args[1]
	if !gpr64(a) {
		m.other(pc, in, s)
		return
	}
	v := Value{}
	switch {
	case b.Kind == x86.KImm && in.Op == x86.OpADD:
		v = s.Regs[a.Reg].Plus(in.Imm)
	case b.Kind == x86.KImm:
		v = s.Regs[a.Reg].Plus(-in.Imm)
	case a.Reg == rsp && gpr64(b) && b.Reg == uint8(x86.RAX) && in.Op == x86.OpSUB:
		if n, ok := m.code.probed(pc); ok {
			v = s.Regs[rsp].Plus(-int64(n))
		}
	}
	m.set(pc, s, a, v)
}

// set writes a 64-bit register operand; an unknown rsp becomes a new base.
func (m *machine) set(pc uint64, s *State, a *x86.Arg, v Value) {
	s.Regs[a.Reg] = v
	if a.Reg == rsp && v.Kind == Unknown && a.Size == 8 {
		m.base(pc, s)
	}
}

// mov executes mov. An rsp that is not known then becomes a new base.
func (m *machine) mov(pc uint64, in *x86.Inst, s *State) {
	a, b := &in.Args[0], &in.Args[1]
	switch {
	case a.Kind == x86.KMem:
		v := Value{}
		if gpr64(b) {
			v = s.Regs[b.Reg]
		}
		m.memStore(pc, in, s, v)
	case gpr64(a) && gpr64(b):
		s.Regs[a.Reg] = s.Regs[b.Reg]
	case gpr64(a) && b.Kind == x86.KMem:
		v := Value{}
		if base, off, ok := s.addr(in); ok {
			if x := s.at(base, off); x != nil {
				v = x.v
				x.spent = x.spent || v == entryOf(a.Reg)
			}
		}
		s.Regs[a.Reg] = v
	default:
		s.clobber(in.Writes)
	}
	if in.Writes&(1<<rsp) != 0 && s.Regs[rsp].Kind == Unknown {
		m.base(pc, s)
	}
}

// memStore stores v through the memory operand. A store through rsp, rbp or a copy of rsp forgets what it overlaps.
// One through another pointer is believed less: paths that are never taken write past arrays into words that rows
// name.
func (m *machine) memStore(pc uint64, in *x86.Inst, s *State, v Value) {
	m.secondFrame(pc, in, s, v)
	base, off, ok := s.addr(in)
	if !ok {
		return
	}
	// The largest that instructions write without saying so.
	size := int32(in.MemSize)
	if size == 0 {
		size = 64
	}
	// A pointer that was computed may be known on a path that is never taken, such as one past the end of an array.
	if in.Mem.Base == x86.RSP || in.Mem.Base == x86.RBP || in.MemSize != 0 && s.Regs[in.Mem.Base] == s.Regs[rsp] {
		if (size < 4 || size > 8) && s.onlyCopy(base, off, size) {
			// Past an array, on a path that is never taken: unrolled and vectorised loops have such.
			s.storeThrough(base, off, size, v)
			return
		}
		s.store(base, off, size, v)
	} else {
		s.storeThrough(base, off, size, v)
	}
}

// secondFrame makes a register a base if the instruction stores a register of the caller through it, and the return
// address is in a register: libffi's ffi_call_win64 makes its frame in memory that its caller gives. The frame that its
// rows describe begins there.
func (m *machine) secondFrame(pc uint64, in *x86.Inst, s *State, v Value) {
	reg := in.Mem.Base
	if v.Kind != Entry || !keeps(v) || reg > x86.R15 || reg == x86.RSP || CalleeSaved>>reg&1 != 0 ||
		s.Regs[reg].Kind == Base || !s.holds(entryOf(RA)) {
		return
	}
	b := baseAt(m.baseID(pc), 0)
	s.dropBase(b.Reg)
	s.Regs[reg] = b
}

// hardened reports whether an instruction is clang's or %rax, %rsp of -mspeculative-load-hardening: rax is 0 on the
// paths that are taken.
func hardened(in *x86.Inst) bool {
	a, b := &in.Args[0], &in.Args[1]
	return gpr64(a) && a.Reg == rsp && gpr64(b)
}

// other executes an instruction by the registers and memory that it writes.
func (m *machine) other(pc uint64, in *x86.Inst, s *State) {
	if in.Op == x86.OpUnknown {
		// of the vector maps: no general register that unwinding needs is taken to change
		return
	}
	if in.Op == x86.OpOR && hardened(in) {
		return
	}
	if in.MemWrite && !writesBack(in) {
		m.memStore(pc, in, s, Value{})
	}
	// rsp with a new unknown value begins a new base, so that what follows is known relative to it.
	w := in.Writes
	moved := w&x86.RSP.Mask() != 0
	s.clobber(w)
	if moved && in.OpSize == 8 && in.Partial&x86.RSP.Mask() == 0 {
		m.base(pc, s)
	}
}

// probed returns the constant that sub %rax,%rsp at pc subtracts, if the code before it is mov $N,%eax and a call of a
// function that keeps rax, such as __rust_probestack or Windows' __chkstk.
func (l *listing) probed(pc uint64) (n int32, ok bool) {
	k, ok := l.prev(pc)
	if !ok || l.lead[l.pos(pc)] != 0 || l.lead[l.pos(l.pcs[k])] != 0 {
		return 0, false
	}
	call, callPC := &l.ins[k], l.pcs[k]
	if k, ok = l.prev(callPC); !ok || call.Op != x86.OpCALL || call.Args[0].Kind != x86.KRel {
		return 0, false
	}
	in := &l.ins[k]
	a, b := &in.Args[0], &in.Args[1]
	if in.Op != x86.OpMOV || a.Kind != x86.KGPR || a.Reg != uint8(x86.RAX) || a.Size < 4 || b.Kind != x86.KImm ||
		in.Imm != int64(int32(in.Imm)) || in.Imm < 0 {
		return 0, false
	}
	return int32(in.Imm), l.p.keeps(call.Target(callPC), x86.RAX)
}

// writesBack reports whether an instruction leaves memory as it is: lock add $0 or lock or $0 at the top of the stack,
// which compilers emit as memory barriers (OpenJDK, qemu) and stack probes (orq $0, (%rsp)).
func writesBack(in *x86.Inst) bool {
	switch in.Op {
	case x86.OpADD, x86.OpSUB, x86.OpOR, x86.OpXOR:
		return in.Args[1].Kind == x86.KImm && in.Imm == 0
	}
	return false
}

// keptCFA returns the mask of the register that gives the CFA, if it is caller-saved, no other place gives the CFA, and
// the function at callee keeps it: assembly that has aligned its stack calls such functions.
func (m *machine) keptCFA(callee uint64, s *State) uint16 {
	reg, _, ok := s.CFA()
	if !ok || callClobbers>>reg&1 == 0 {
		return 0
	}
	if _, _, _, ok := s.CFASlot(); ok || !m.code.p.keeps(callee, x86.Reg(reg)) {
		return 0
	}
	return 1 << reg
}

// TakesAddress reports whether the code at next, right behind a call that leads there, takes the address that the call
// pushes off the stack or reads it: the call is to learn that address, and next is no function.
func (img *Image) TakesAddress(next uint64) bool {
	var in x86.Inst
	if img.starts[next] || x86.Decode(img.Code(next), &in) != nil {
		return false
	}
	top := in.Mem.Base == x86.RSP && in.Mem.Disp == 0 && in.Mem.Index == x86.None
	return in.Op == x86.OpPOP || top || in.Writes>>rsp&1 != 0 && (in.Op == x86.OpADD || in.Op == x86.OpLEA) ||
		in.Op == x86.OpCALL && in.Args[0].Kind == x86.KRel && in.Imm == 0 // fills the processor's stack of returns
}

// replacesReturn reports whether the code at t begins by writing over the address that a call has pushed, or by
// dropping it: a call there, in the same function, is a jump, as in a retpoline, behind which only a trap for
// speculation lies.
func (img *Image) replacesReturn(t uint64) bool {
	var in x86.Inst
	if x86.Decode(img.Code(t), &in) != nil || in.Mem.Base != x86.RSP || in.Mem.Index != x86.None {
		return false
	}
	return in.Op == x86.OpMOV && in.MemWrite && in.Mem.Disp == 0 || in.Op == x86.OpLEA && in.Writes>>rsp&1 != 0 &&
		in.Mem.Disp >= 8
}

// call executes call. A call of the next instruction, whose address the code takes, only pushes that address, as
// position-independent code once did. After any other call the registers that the psABI lets a callee change are
// unknown, apart from those of which the callee's code shows that it keeps them; what lies below rsp is gone.
func (m *machine) call(pc uint64, in *x86.Inst, s *State) {
	if t := in.Target(pc); in.Args[0].Kind == x86.KRel && in.Imm == 0 && m.code.p.img.TakesAddress(t) && !m.code.ends(t) {
		s.push(8, Value{})
		return
	}
	// By the psABI, apart from what the callee's own code shows.
	clobbers := uint16(callClobbers)
	if in.Args[0].Kind == x86.KRel {
		clobbers &^= m.keptCFA(in.Target(pc), s)
	}
	s.clobber(clobbers)
	s.dropBelow()
	if in.Args[0].Kind == x86.KRel {
		m.returned(pc, m.code.p.breaks[in.Target(pc)], s)
		return
	}
	if m.code.computed(pc, in) {
		s.clobber(s.saves())
	}
}
