package prove

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
)

// This file is the memory of the symbolic machine: loads and stores, taken apart into an object and
// an offset, and checked against what the permit allows.

// split takes an address apart: base + off + 8*index. base is rsp at the entry or the variable of
// an object; index is noTerm if there is none. ok is false for any other sum.
func (x *exec) split(addr term) (base term, off int64, index term, ok bool) {
	var sm sum
	if !sm.add(x.t, addr, 1) {
		return 0, 0, 0, false
	}
	base, index = noTerm, noTerm
	for i := range sm.n {
		// One part is the base, with factor 1; one may be the index, with factor 8. The constant is
		// the offset.
		p := &sm.part[i]
		switch {
		case p.k == 0:
		case p.k == 1 && base == noTerm && (p.a == x.sp || x.objectOf(p.a) != objNone):
			base = p.a
		case p.k == 8 && index == noTerm:
			index = p.a
		default:
			return 0, 0, 0, false
		}
	}
	return base, int64(sm.c), index, base != noTerm
}

// far reports whether an offset does not fit 32 bits: then adding a size to it might wrap.
func far(off int64) bool { return off != int64(int32(off)) }

// largest returns an upper bound of an index: 16 for register numbers that the permit names, else
// what the term's mask allows.
func (x *exec) largest(s *state, i term) uint64 {
	// A number of a register is at most 16 on paths that have decided the condition.
	for _, named := range x.may.indices {
		if named.v != i {
			continue
		}
		if holds, decided := x.decide(s, named.where); decided && holds {
			return numRegs - 1
		}
	}
	n := x.t.nodes[i]
	if n.op == tBsf { // the number of a bit that may be set
		for b := uint64(63); ; b-- {
			if x.t.mask[n.a]>>b&1 != 0 || b == 0 {
				return b
			}
		}
	}
	return x.t.mask[i]
}

// load reads size bytes at addr. Constant addresses are refused, the file's data gives constants,
// objects their cells. An address in no known object counts as a read of the target's memory: it
// becomes an event, which each part's proof must account for.
func (x *exec) load(s *state, addr term, size uint8) (term, error) {
	// The file lies anywhere, so an absolute address is a defect.
	if fixed, ok := x.t.value(addr); ok {
		return 0, fmt.Errorf("a read at %#x, wherever the file lies", fixed)
	}
	// Data of the file is read-only: its bytes are constants.
	if linked, ok := x.link(addr); ok {
		b := x.data(linked, int(size))
		if b == nil {
			return 0, fmt.Errorf("a read at %#x, outside of the file's data", linked)
		}
		v := uint64(0)
		for i := range b {
			v |= uint64(b[i]) << (8 * i)
		}
		return x.t.con(v), nil
	}
	// Neither a known object nor a known offset: the target's memory.
	base, off, index, ok := x.split(addr)
	if !ok {
		s.event = append(s.event, event{evRead, addr, size, 0})
		return x.t.load(addr, size), nil
	}
	if far(off) {
		// An offset beyond 32 bits could wrap around and name another object.
		return 0, fmt.Errorf("a read far from what it counts from, at %s", x.t.text(addr))
	}
	where := access{addr, off, size, index}
	if base == x.sp {
		return x.loadStack(s, where)
	}
	object := x.objectOf(base)
	// In a step of _eh_elf these pointers are null.
	if (object == objRegs || object == objMemory) && !x.inWalk(s) {
		return 0, fmt.Errorf("a read at %s, also in a step of _eh_elf", x.t.text(addr))
	}
	switch object {
	case objRegs:
		return x.loadRegs(s, where)
	case objMemory:
		// The five words of eh_elf_memory_t do not change during a walk.
		if index == noTerm && off >= 0 && off%8 == 0 && where.end() <= 40 && size == 8 {
			return x.t.load(addr, size), nil
		}
	case objDesc:
		return x.loadDesc(s, where)
	}
	return 0, fmt.Errorf("a read at %s", x.t.text(addr))
}

// access is a read or a write in an object: size bytes at off + 8*index; index may be noTerm.
type access struct {
	addr  term
	off   int64
	size  uint8
	index term
}

// end is the offset behind it.
func (a access) end() int64 { return a.off + int64(a.size) }

// overlaps reports whether an access without an index has bytes from low up to high.
func (a access) overlaps(low, high int64) bool { return a.off < high && a.end() > low }

// loadStack reads the own stack. By index, only slotNew is read.
func (x *exec) loadStack(s *state, a access) (term, error) {
	// Only before the path stores there: then each word has its old value.
	if a.index != noTerm {
		if !x.may.newKept || a.off != frameBase+slotNew || a.size != 8 || x.largest(s, a.index) >= numRegs ||
			s.wrote(evNew) || s.wrote(evPC) {
			return 0, fmt.Errorf("a read of the stack at %s", x.t.text(a.addr))
		}
		return x.t.load(a.addr, a.size), nil
	}
	rsp, err := x.stackOff(s)
	if err != nil {
		return 0, err
	}
	// Below rsp lies what signal handlers may overwrite; above args, the caller's frame.
	if a.off < rsp || a.end() > x.may.args {
		return 0, fmt.Errorf("a read of the stack at %+d", a.off)
	}
	v, found, err := s.stack.read(x.t, a.off, a.size)
	// Unknown bytes become a variable, and are remembered: a second read gives the same.
	if !found && err == nil {
		if a.overlaps(frameBase+slotNew, frameBase+slotNew+8*numRegs) && (s.wrote(evNew) || s.wrote(evPC)) {
			return 0, fmt.Errorf("a read of the stack at %+d, after a store with an index", a.off)
		}
		v = x.t.load(a.addr, a.size)
		if a.off < 0 { // what happens to lie there, until the next call
			v = x.t.variable("left on the stack", sizeMask(a.size))
		}
		s.stack = append(s.stack, cell{a.off, a.size, v})
	}
	return v, err
}

// loadRegs reads eh_elf_regs_t. By index, only an unwritten one is read, since a write by index
// could have changed any register.
func (x *exec) loadRegs(s *state, a access) (term, error) {
	if a.index != noTerm {
		if a.off != 0 || a.size != 8 || x.largest(s, a.index) >= numRegs || s.wrote(evReg) || len(s.regs) > 0 {
			return 0, fmt.Errorf("a read of the registers at %s", x.t.text(a.addr))
		}
		return x.t.load(a.addr, a.size), nil
	}
	// A store by index may have changed any register.
	if a.off < 0 || a.end() > abi.RegsSize || s.wrote(evReg) {
		return 0, fmt.Errorf("a read of the registers at %+d", a.off)
	}
	v, found, err := s.regs.read(x.t, a.off, a.size)
	// Not written yet: what the caller passed.
	if !found && err == nil {
		v = x.regsField(a.off, a.size)
	}
	return v, err
}

// loadDesc reads the descriptor of a row, only as far as the path has decided that it extends.
func (x *exec) loadDesc(s *state, a access) (term, error) {
	// The first byte is what this proof is about, such as one operation of many.
	if x.may.first != noTerm && a.index == noTerm && a.off == 0 && a.size == 1 {
		return x.may.first, nil
	}
	last := int64(1)
	if x.may.descEnd != nil {
		last = x.may.descEnd(s)
	}
	if a.index != noTerm || a.off < x.may.descFrom || a.end() > last {
		return 0, fmt.Errorf("a read at %s", x.t.text(a.addr))
	}
	return x.t.load(a.addr, a.size), nil
}

// inWalk reports whether a path knows that it is none of a step of _eh_elf.
func (x *exec) inWalk(s *state) bool {
	null, known := x.decide(s, x.t.eq(x.walkRegs, x.t.con(0)))
	return known && !null
}

// wrote reports whether a path has had such an event.
func (s *state) wrote(kind eventKind) bool {
	for _, e := range s.event {
		if e.kind == kind {
			return true
		}
	}
	return false
}

// store writes memory that the code may write: the caller's pcs, its own frame, and the objects
// that are passed to it. Anything else is refused.
func (x *exec) store(s *state, addr term, size uint8, v term) error {
	note := func(kind eventKind) error {
		s.event = append(s.event, event{kind, addr, size, v})
		return nil
	}
	// The pcs that a walk finds go to the caller's array, one after the other.
	if addr == x.may.pcSlot && x.may.pcSlot != noTerm && size == 8 {
		s.forgetNew() // the pcs may be there
		return note(evPC)
	}
	// Each object has its own rules; without an object, the store is refused.
	base, off, index, ok := x.split(addr)
	if !ok {
		return fmt.Errorf("a store at %s", x.t.text(addr))
	}
	if far(off) {
		return fmt.Errorf("a store far from what it counts from, at %s", x.t.text(addr))
	}
	a := access{addr, off, size, index}
	if base == x.sp {
		return x.storeStack(s, a, v)
	}
	switch x.objectOf(base) {
	case objRegs:
		if !x.inWalk(s) {
			return fmt.Errorf("a store at %s, also in a step of _eh_elf", x.t.text(addr))
		}
		// An index is a register's number: 17 words from the beginning on.
		if index != noTerm {
			if off != 0 || size != 8 || x.largest(s, index) >= numRegs {
				return fmt.Errorf("a store to the registers at %s", x.t.text(addr))
			}
			return note(evReg)
		}
		if off >= 0 && a.end() <= abi.RegsSize {
			s.regs = s.regs.write(x.t, off, size, v)
			return nil
		}
	case objResult:
		if index == noTerm && off >= 0 && a.end() <= abi.ContextSize {
			return note(evResult)
		}
	case objWord:
		if index == noTerm && off == 0 && size == 8 {
			return note(evWord)
		}
	}
	return fmt.Errorf("a store at %s", x.t.text(addr))
}

// forgetNew forgets what slotNew holds: any of it may have been written.
func (s *state) forgetNew() {
	const off = frameBase + slotNew
	s.stack = slices.DeleteFunc(s.stack, func(c cell) bool { return c.off < off+8*numRegs && c.off+int64(c.size) > off })
}

// storeStack writes the own stack. By index, only slotNew is written.
func (x *exec) storeStack(s *state, a access, v term) error {
	if a.index != noTerm {
		if a.off != frameBase+slotNew || a.size != 8 || x.largest(s, a.index) >= numRegs {
			return fmt.Errorf("a store to the stack at %s", x.t.text(a.addr))
		}
		s.forgetNew()
		s.event = append(s.event, event{evNew, a.addr, a.size, v})
		return nil
	}
	rsp, err := x.stackOff(s)
	if err != nil {
		return err
	}
	// From 0 on lies the return address, which code must not change.
	if a.off < rsp || a.end() > 0 || x.may.newKept && a.overlaps(frameBase+slotNew, frameBase+slotNew+8*numRegs) {
		return fmt.Errorf("a store to the stack at %+d", a.off)
	}
	s.stack = s.stack.write(x.t, a.off, a.size, v)
	return nil
}

// push and pop move rsp by 8 and store or load at it; rsp must stay inside the function's stack.
func (x *exec) push(s *state, v term) error {
	// The store comes after the check, so that an overflow is reported as one.
	s.reg[rSP] = x.t.plus(s.reg[rSP], -8)
	if _, err := x.stackOff(s); err != nil {
		return err
	}
	return x.store(s, s.reg[rSP], 8, v)
}

// pop loads first, since rsp still points at the word.
func (x *exec) pop(s *state) (term, error) {
	v, err := x.load(s, s.reg[rSP], 8)
	s.reg[rSP] = x.t.plus(s.reg[rSP], 8)
	return v, err
}
