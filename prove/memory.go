package prove

import (
	"fmt"
	"slices"
)

// split takes an address apart: a known object or 0, an offset, and an index times 8,
// or noTerm.
func (x *exec) split(addr term) (base term, off int64, index term, ok bool) {
	var sm sum
	if !x.t.addTo(&sm, addr, 1) {
		return 0, 0, 0, false
	}
	base, index = noTerm, noTerm
	for i := range sm.n {
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

// far reports whether an offset is too large for sizes to be added to it.
func far(off int64) bool { return off != int64(int32(off)) }

// largest returns the largest value of an index.
func (x *exec) largest(s *state, i term) uint64 {
	for _, known := range x.may.indices {
		if known.v != i {
			continue
		}
		if holds, decided := x.decide(s, known.where); decided && holds {
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

// load reads memory that the code may read itself; anything else is the target's, and
// recorded.
func (x *exec) load(s *state, addr term, size uint8) (term, error) {
	if at, ok := x.t.value(addr); ok {
		return 0, fmt.Errorf("a read at %#x, wherever the file lies", at)
	}
	if at, ok := x.link(addr); ok {
		b := x.data(at, int(size))
		if b == nil {
			return 0, fmt.Errorf("a read at %#x, outside of the file's data", at)
		}
		v := uint64(0)
		for i := range b {
			v |= uint64(b[i]) << (8 * i)
		}
		return x.t.con(v), nil
	}
	base, off, index, ok := x.split(addr)
	if !ok {
		s.event = append(s.event, event{evRead, addr, size, 0})
		return x.t.load(addr, size), nil
	}
	if far(off) {
		return 0, fmt.Errorf("a read far from what it counts from, at %s", x.t.text(addr))
	}
	if base == x.sp {
		if index != noTerm {
			if !x.may.newKept || off != frameBase+slotNew || size != 8 || x.largest(s, index) >= numRegs || s.wrote(evNew) || s.wrote(evPC) {
				return 0, fmt.Errorf("a read of the stack at %s", x.t.text(addr))
			}
			return x.t.load(addr, size), nil
		}
		rsp, err := x.stackOff(s)
		if err != nil {
			return 0, err
		}
		if off < rsp || off+int64(size) > x.may.args {
			return 0, fmt.Errorf("a read of the stack at %+d", off)
		}
		v, found, err := x.readCell(s.stack, off, size)
		if !found && err == nil {
			if off < frameBase+slotNew+8*numRegs && off+int64(size) > frameBase+slotNew && (s.wrote(evNew) || s.wrote(evPC)) {
				return 0, fmt.Errorf("a read of the stack at %+d, after a store with an index", off)
			}
			v = x.t.load(addr, size)
			if off < 0 { // what happens to lie there, until the next call
				v = x.t.variable("left on the stack", sizeMask(size))
			}
			s.stack = append(s.stack, cell{off, size, v})
		}
		return v, err
	}
	end := off + int64(size)
	if o := x.objectOf(base); (o == objRegs || o == objMemory) && !x.inWalk(s) {
		return 0, fmt.Errorf("a read at %s, also in a step of _eh_elf", x.t.text(addr))
	}
	switch x.objectOf(base) {
	case objRegs:
		if index != noTerm {
			if off != 0 || size != 8 || x.largest(s, index) >= numRegs || s.wrote(evReg) || len(s.regs) > 0 {
				return 0, fmt.Errorf("a read of the registers at %s", x.t.text(addr))
			}
			return x.t.load(addr, size), nil
		}
		if off < 0 || end > 144 || s.wrote(evReg) {
			return 0, fmt.Errorf("a read of the registers at %+d", off)
		}
		v, found, err := x.readCell(s.regs, off, size)
		if !found && err == nil {
			v = x.regsField(off, size)
		}
		return v, err
	case objMemory:
		if index == noTerm && off >= 0 && off%8 == 0 && end <= 40 && size == 8 {
			return x.t.load(addr, size), nil
		}
	case objDesc:
		if x.may.first != noTerm && index == noTerm && off == 0 && size == 1 {
			return x.may.first, nil
		}
		last := int64(1)
		if x.may.descEnd != nil {
			last = x.may.descEnd(s)
		}
		if index == noTerm && off >= x.may.descFrom && end <= last {
			return x.t.load(addr, size), nil
		}
	}
	return 0, fmt.Errorf("a read at %s", x.t.text(addr))
}

// inWalk reports whether a path knows that it is none of a step of _eh_elf.
func (x *exec) inWalk(s *state) bool {
	null, known := x.decide(s, x.t.eq(x.walkRegs, x.t.con(0)))
	return known && !null
}

func (s *state) wrote(kind eventKind) bool {
	for _, e := range s.event {
		if e.kind == kind {
			return true
		}
	}
	return false
}

// store writes memory that the code may write.
func (x *exec) store(s *state, addr term, size uint8, v term) error {
	note := func(kind eventKind) error {
		s.event = append(s.event, event{kind, addr, size, v})
		return nil
	}
	forgetNew := func() { // any of them may have been written
		const off = frameBase + slotNew
		s.stack = slices.DeleteFunc(s.stack, func(c cell) bool { return c.off < off+8*numRegs && c.off+int64(c.size) > off })
	}
	if addr == x.may.pcSlot && x.may.pcSlot != noTerm && size == 8 {
		forgetNew() // the pcs may be there
		return note(evPC)
	}
	base, off, index, ok := x.split(addr)
	if !ok {
		return fmt.Errorf("a store at %s", x.t.text(addr))
	}
	if far(off) {
		return fmt.Errorf("a store far from what it counts from, at %s", x.t.text(addr))
	}
	end := off + int64(size)
	if base == x.sp {
		if index != noTerm {
			if off != frameBase+slotNew || size != 8 || x.largest(s, index) >= numRegs {
				return fmt.Errorf("a store to the stack at %s", x.t.text(addr))
			}
			forgetNew()
			return note(evNew)
		}
		rsp, err := x.stackOff(s)
		if err != nil {
			return err
		}
		if off < rsp || end > 0 || x.may.newKept && off < frameBase+slotNew+8*numRegs && end > frameBase+slotNew {
			return fmt.Errorf("a store to the stack at %+d", off)
		}
		s.stack = x.writeCell(s.stack, off, size, v)
		return nil
	}
	switch x.objectOf(base) {
	case objRegs:
		if !x.inWalk(s) {
			return fmt.Errorf("a store at %s, also in a step of _eh_elf", x.t.text(addr))
		}
		if index != noTerm {
			if off != 0 || size != 8 || x.largest(s, index) >= numRegs {
				return fmt.Errorf("a store to the registers at %s", x.t.text(addr))
			}
			return note(evReg)
		}
		if off >= 0 && end <= 144 {
			s.regs = x.writeCell(s.regs, off, size, v)
			return nil
		}
	case objResult:
		if index == noTerm && off >= 0 && end <= 40 {
			return note(evResult)
		}
	case objWord:
		if index == noTerm && off == 0 && size == 8 {
			return note(evWord)
		}
	}
	return fmt.Errorf("a store at %s", x.t.text(addr))
}
