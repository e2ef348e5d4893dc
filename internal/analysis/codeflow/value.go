package codeflow

import (
	"math/bits"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file has the abstract domain: values, the State of registers and stack words, and how two states meet. A State
// lives by value in arrays, for there is one at each join of each function.

// Kind is the kind of an abstract value. Values form a lattice: Unknown is its top, and two different values meet in
// Unknown.
type Kind uint8

// Kinds of values.
const (
	Unknown Kind = iota
	Entry        // what register Reg held at the function's entry; RA: the return address
	Base         // base Reg plus Off; base 0 is the CFA, others are fixed but unknown addresses
)

// RA stands for the return address as an entry value.
const RA = 16

// Value is an abstract 64-bit value.
type Value struct {
	Kind Kind
	Reg  uint8
	//lint:ignore U1000 it stands in place of padding, so that == compares one word
	zero uint16
	Off  int32 // bytes
}

func entryOf(reg uint8) Value { return Value{Kind: Entry, Reg: reg} }

func baseAt(base uint8, off int32) Value { return Value{Kind: Base, Reg: base, Off: off} }

// farOff bounds the distances that are followed, so that offsets of 32 bits do not overflow: beyond it an address
// counts as unknown.
const farOff = 1<<31 - 1<<12 // Go has functions with frames of 1 GB

// Plus returns the address n bytes above v; it is Unknown if v is no address.
func (v Value) Plus(n int64) Value {
	if off := int64(v.Off) + n; v.Kind == Base && n >= -farOff && n <= farOff && off >= -farOff && off <= farOff {
		return Value{Kind: Base, Reg: v.Reg, Off: int32(off)}
	}
	return Value{}
}

// slot is a word of the stack: its address is base plus off.
type slot struct {
	off   int32
	base  uint8
	spent bool // its register was restored from it, or rsp moved up past it: the next frame may take its place
	v     Value
}

// overlaps reports whether the word shares bytes with size bytes at base plus off.
func (x slot) overlaps(base uint8, off, size int32) bool {
	return x.base == base && x.off < off+size && off < x.off+8
}

// maxSlots is how many stack words a State has room for: 6 callee-saved registers, the return address, and words that
// hold addresses. See put for what happens when it is full.
const maxSlots = 16

// State is what is known of registers and stack before an instruction.
type State struct {
	Regs  [16]Value // by the processor's numbers
	slots [maxSlots]slot
	n     int8
}

// CalleeSaved is the mask of rbx, rbp and r12 to r15 (x86-64 psABI figure 3.4). rsp is callee-saved as well, but it has
// its own place in a State.
const CalleeSaved = 1<<x86.RBX | 1<<x86.RBP | 0xf000

// Initial returns the state at a function's entry: the CFA is rsp+8, and the return address is at rsp.
func Initial() State {
	var s State
	for i := range s.Regs {
		s.Regs[i] = entryOf(uint8(i))
	}
	s.Regs[x86.RSP] = baseAt(0, -8)
	s.put(0, -8, entryOf(RA))
	return s
}

// IsInitial reports whether rsp, the return address and the callee-saved registers are as at an entry.
func (s *State) IsInitial() bool {
	if s.Regs[x86.RSP] != baseAt(0, -8) || s.Slot(0, -8) != entryOf(RA) {
		return false
	}
	return s.lost() == 0
}

// lost returns the mask of callee-saved registers that do not hold their entry values.
func (s *State) lost() (m uint16) {
	for h := range uint8(16) {
		if CalleeSaved>>h&1 != 0 && s.Regs[h] != entryOf(h) {
			m |= 1 << h
		}
	}
	return m
}

// at returns the slot of the word at base plus off, or nil if nothing is known of the word.
func (s *State) at(base uint8, off int32) *slot {
	for i := range s.slots[:s.n] {
		if x := &s.slots[i]; x.off == off && x.base == base {
			return x
		}
	}
	return nil
}

// Slot returns the value of the word at base plus off; it is Unknown if nothing is known.
func (s *State) Slot(base uint8, off int32) Value {
	if x := s.at(base, off); x != nil {
		return x.v
	}
	return Value{}
}

// ReturnKept reports whether the word at CFA - 8 is known to hold the return address still.
func (s *State) ReturnKept() bool { return s.Slot(0, -8) == entryOf(RA) }

// Put sets the word at base plus off to v.
func (s *State) Put(base uint8, off int32, v Value) { s.store(base, off, 8, v) }

// put adds a slot. If there is no room, an entry value takes the place of an address: rows name entry values, and
// addresses only help to find them. Other values are dropped, which means unknown.
func (s *State) put(base uint8, off int32, v Value) {
	if s.n < maxSlots {
		s.slots[s.n] = slot{off: off, base: base, v: v}
		s.n++
		return
	}
	if v.Kind != Entry {
		return
	}
	for i := range s.slots {
		if s.slots[i].v.Kind == Base {
			s.slots[i] = slot{off: off, base: base, v: v}
			return
		}
	}
}

func (s *State) del(i int) {
	s.n--
	s.slots[i] = s.slots[s.n]
}

// drop forgets the slots that match.
func (s *State) drop(match func(x slot) bool) {
	for i := 0; i < int(s.n); {
		if match(s.slots[i]) {
			s.del(i)
		} else {
			i++
		}
	}
}

// keeps reports whether a slot with v is worth storing: registers that unwinding restores, addresses, and words that a
// walk from a label follows.
func keeps(v Value) bool {
	return v.Kind == Base || v.Kind == Entry && (v.Reg == RA || v.Reg >= slotValue || CalleeSaved>>v.Reg&1 != 0)
}

// store writes size bytes at base plus off; v counts only for whole words.
func (s *State) store(base uint8, off, size int32, v Value) {
	for i := 0; i < int(s.n); {
		if s.slots[i].overlaps(base, off, size) {
			s.del(i)
		} else {
			i++
		}
	}
	s.save(base, off, size, v)
}

// save adds the slot of a store. A register that is saved anew is no longer in the slots that it was restored from.
func (s *State) save(base uint8, off, size int32, v Value) {
	if size != 8 || !keeps(v) {
		return
	}
	if s.unchanged(v) {
		s.drop(func(x slot) bool { return x.spent && x.v == v })
	}
	s.put(base, off, v)
}

// unchanged reports whether v is what a register held at the entry, and holds now.
func (s *State) unchanged(v Value) bool { return v.Kind == Entry && v.Reg < 16 && s.Regs[v.Reg] == v }

// sole reports whether x holds a register's entry value that no other live slot holds.
func (s *State) sole(x *slot) bool {
	if x.v.Kind != Entry || x.spent {
		return false
	}
	for i := range s.slots[:s.n] {
		if y := &s.slots[i]; y != x && !y.spent && y.v == x.v {
			return false
		}
	}
	return true
}

// onlyCopy reports whether size bytes at base plus off overlap the only word that holds a callee-saved register. Code
// that restores its registers writes no bytes and no vectors there.
func (s *State) onlyCopy(base uint8, off, size int32) bool {
	for i := range s.slots[:s.n] {
		x := &s.slots[i]
		if x.overlaps(base, off, size) && s.sole(x) && x.v.Reg < 16 && CalleeSaved>>x.v.Reg&1 != 0 && !s.holds(x.v) {
			return true
		}
	}
	return false
}

// storeThrough handles a store through a register other than rsp and rbp. It is assumed not to destroy the return
// address or a saved register: such pointers point to locals, whose bounds are not known. A loop that moves the words
// of an array is followed past its end, and moves saved registers there. Only a register that still has its caller's
// value takes the place of one that has it again.
func (s *State) storeThrough(base uint8, off, size int32, v Value) {
	saves := s.unchanged(v) && !s.onlyCopy(base, off, size)
	kept := false
	s.drop(func(x slot) bool {
		if !x.overlaps(base, off, size) {
			return false
		}
		keep := x.v == entryOf(RA) || !saves && x.v.Kind == Entry && !x.spent
		kept = kept || keep
		return !keep
	})
	if !kept {
		s.save(base, off, size, v)
	}
}

// meet keeps in s only what o agrees with, and reports whether s changed.
func (s *State) meet(o *State) (changed bool) {
	if s.Regs != o.Regs {
		for i := range s.Regs {
			if s.Regs[i] != o.Regs[i] && s.Regs[i].Kind != Unknown {
				s.Regs[i] = Value{}
				changed = true
			}
		}
	}
	for i := 0; i < int(s.n); {
		x := &s.slots[i]
		if i < int(o.n) && *x == o.slots[i] {
			i++
			continue
		}
		y := o.at(x.base, x.off)
		if y == nil || y.v != x.v {
			s.del(i)
			changed = true
			continue
		}
		if y.spent && !x.spent {
			x.spent, changed = true, true
		}
		i++
	}
	return changed
}

// Overwrites reports whether an instruction's write to memory may change a word that the state knows. It assumes, as
// the interpretation does, that a write through a register that holds no address of the stack changes none. It errs to
// true: package check only skips comparisons where it is false.
func (s *State) Overwrites(in *x86.Inst) bool {
	if in.Mem.Base > x86.R15 || s.Regs[in.Mem.Base].Kind != Base {
		return false
	}
	base, off, ok := s.addr(in)
	if !ok || in.MemSize == 0 || s.n == maxSlots {
		return true
	}
	for i := range s.slots[:s.n] {
		if s.slots[i].overlaps(base, off, int32(in.MemSize)) {
			return true
		}
	}
	return false
}

// ChangesReturn reports whether an instruction adds to the return address, in a register or in its place, so that the
// function goes on elsewhere than behind its call.
func (s *State) ChangesReturn(in *x86.Inst) bool {
	switch in.Op {
	case x86.OpINC, x86.OpDEC, x86.OpADD, x86.OpSUB:
		return s.read(in) == entryOf(RA)
	}
	return false
}

// dropBase forgets all values that refer to base b, except rsp. A base is named for the instruction that makes it; in a
// loop the next round's base is another address with the same number, so what the last round knew must go.
func (s *State) dropBase(b uint8) {
	s.drop(func(x slot) bool { return x.base == b || x.v.Kind == Base && x.v.Reg == b })
	for i := range s.Regs {
		if i != int(x86.RSP) && s.Regs[i].Kind == Base && s.Regs[i].Reg == b {
			s.Regs[i] = Value{}
		}
	}
}

// savedBelow reports whether a register is saved below base plus off. A pushed argument saves none.
func (s *State) savedBelow(base uint8, off int32) bool {
	for i := range s.slots[:s.n] {
		if x := &s.slots[i]; x.base == base && x.off < off && x.v.Kind == Entry && keeps(x.v) {
			return true
		}
	}
	return false
}

// dropBelow forgets the slots below rsp: a call overwrites them.
func (s *State) dropBelow() {
	s.drop(s.below)
}

// below reports whether a slot is below rsp.
func (s *State) below(x slot) bool {
	r := s.Regs[x86.RSP]
	return r.Kind == Base && x.base == r.Reg && x.off < r.Off
}

// leaveFrame marks the slots below rsp as spent: a jump in an entry's state may lead to another function.
func (s *State) leaveFrame() {
	for i := range s.slots[:s.n] {
		if x := &s.slots[i]; s.below(*x) && x.v != entryOf(RA) {
			x.spent = true
		}
	}
}

// moved follows a change of rsp, which was before. Upwards, it spends the slots that rsp passes: rows may go on naming
// them. Downwards, spent ones become another frame's. A new base is taken to be lower, the CFA's base higher.
func (s *State) moved(before Value) {
	now := s.Regs[x86.RSP]
	if now.Kind != Base {
		return
	}
	same := before.Kind == Base && before.Reg == now.Reg
	if same && now.Off < before.Off || !same && now.Reg != 0 {
		s.drop(func(x slot) bool {
			return x.spent && before.Kind == Base && x.base == before.Reg && x.off < before.Off
		})
		return
	}
	for i := range s.slots[:s.n] {
		if x := &s.slots[i]; s.below(*x) && !(same && x.off < before.Off) && x.v != entryOf(RA) {
			x.spent = true
		}
	}
}

// holds reports whether a register has the value.
func (s *State) holds(v Value) bool {
	for i := range s.Regs {
		if s.Regs[i] == v {
			return true
		}
	}
	return false
}

// clobber forgets registers.
func (s *State) clobber(m uint16) {
	for ; m != 0; m &= m - 1 {
		s.Regs[bits.TrailingZeros16(m)] = Value{}
	}
}

// CFA returns the CFA as a register plus an offset in bytes: rsp if possible, else rbp, else any other register. ok is
// false if no register gives it. Compilers' rows use the first two.
func (s *State) CFA() (reg uint8, off int64, ok bool) {
	try := func(h uint8) bool {
		v := s.Regs[h]
		if v.Kind != Base || v.Reg != 0 {
			return false
		}
		reg, off = h, -int64(v.Off)
		return true
	}
	if try(uint8(x86.RSP)) || try(uint8(x86.RBP)) {
		return reg, off, true
	}
	for h := range uint8(16) {
		if try(h) {
			return reg, off, true
		}
	}
	return 0, 0, false
}

// CFASlot returns a stack word that holds the CFA: CFA = [reg+disp]+off. It is for states in which CFA fails, as in a
// function that realigned its stack.
func (s *State) CFASlot() (reg uint8, disp, off int64, ok bool) {
	for i := range s.slots[:s.n] {
		x := &s.slots[i]
		if x.v.Kind != Base || x.v.Reg != 0 || x.spent {
			continue
		}
		for _, h := range []uint8{uint8(x86.RBP), uint8(x86.RSP)} {
			if b := s.Regs[h]; b.Kind == Base && b.Reg == x.base {
				return h, int64(x.off) - int64(b.Off), -int64(x.v.Off), true
			}
		}
	}
	return 0, 0, 0, false
}

// WhereKind says how a caller's register is found.
type WhereKind uint8

// Kinds of places.
const (
	Lost  WhereKind = iota // no place is known
	Same                   // in its register
	AtCFA                  // at CFA+Off
	AtReg                  // at Reg+Off
	InReg                  // in register Reg
)

// Where is the place of a caller's register.
type Where struct {
	Kind WhereKind
	Reg  uint8
	Off  int64
}

// Saved returns the place of the entry value of register h, or of the return address (RA): the register, a live slot, a
// slot below rsp, another register, a spent slot. Of several slots it is the highest, and rather one at the CFA.
func (s *State) Saved(h uint8) Where {
	want := entryOf(h)
	if h < 16 && s.Regs[h] == want {
		return Where{Kind: Same, Reg: h}
	}
	var best *slot
	w := Where{}
	for i := range s.slots[:s.n] {
		x := &s.slots[i]
		if x.v != want || best != nil && !s.better(x, best) {
			continue
		}
		if x.base == 0 {
			best, w = x, Where{Kind: AtCFA, Off: int64(x.off)}
			continue
		}
		for _, r := range []uint8{uint8(x86.RBP), uint8(x86.RSP)} {
			if b := s.Regs[r]; b.Kind == Base && b.Reg == x.base {
				best, w = x, Where{Kind: AtReg, Reg: r, Off: int64(x.off) - int64(b.Off)}
			}
		}
	}
	if best != nil && !best.spent {
		return w
	}
	for r := range uint8(16) {
		if s.Regs[r] == want {
			return Where{Kind: InReg, Reg: r}
		}
	}
	return w
}

// better reports whether x is a safer place than y of the value that both hold.
func (s *State) better(x, y *slot) bool {
	switch {
	case x.spent != y.spent:
		return y.spent
	case s.below(*x) != s.below(*y):
		return s.below(*y)
	case (x.base == 0) != (y.base == 0):
		return x.base == 0
	}
	return x.off > y.off
}
