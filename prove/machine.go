package prove

import (
	"fmt"
)

// This file holds the symbolic machine's state outside of the registers: what code may do, its
// stack, the objects that it is given, and what its path has decided.

// exec runs the file's instructions on terms: a symbolic machine. It follows every path and refuses
// everything else: an unknown instruction, a condition that is not a
// comparison, a store to anything but the objects below.
type exec struct {
	t     *terms
	code  func(pc uint64) []byte          // bytes of the text from pc on; nil outside
	data  func(addr uint64, n int) []byte // n bytes of the read-only data; nil outside
	sp    term                            // rsp at the entry of the exported function
	image term                            // where address 0 of the file lies
	// walkRegs is null in a step of _eh_elf, which has neither registers nor memory described.
	walkRegs term
	objects  []pointer // variables that are addresses of objects

	regsField func(off int64, size uint8) term // what eh_elf_regs_t held before
	ownRows   func(pc uint64) *ownRow          // unwind information of the code itself; nil: none

	may   permit             // what the proof that runs now allows
	cover func(pc, n uint64) // see image.cover
	steps int                // instructions that were run

	spOffsets [stackLimit/8 + 8]term // what spAt has made, plus 1
	free      []*state               // states that are no longer used
}

// permit is what code may do in one proof and not in others.
type permit struct {
	// call is asked before a direct call: ok means that it has done what the callee does, and ends
	// are the states behind the call. If not ok, the callee is run.
	call func(s *state, to uint64) (ends []*state, ok bool, err error)
	// callTo does what the callee of an indirect call does; nil: there may be none.
	callTo func(s *state, to term) ([]*state, error)

	limit int64 // bytes of stack below rsp at the entry
	args  int64 // bytes from there on that may be read: the return address, what is passed on the stack

	indices []index // terms that are numbers of registers
	pcSlot  term    // address of the pcs' next element, or noTerm
	newKept bool    // slotNew has values of the caller: it is written by index only

	first    term                 // value of a descriptor's first byte for this proof, or noTerm: it is read
	descFrom int64                // lowest offset from a descriptor that may be read; below 0: the bytes for _eh_elf
	descEnd  func(s *state) int64 // where it ends; nil: after the first byte
}

// allow replaces what code may do. The function that it returns restores the permit before.
func (x *exec) allow(m permit) (restore func()) {
	before := x.may
	x.may = m
	return func() { x.may = before }
}

// object is what a variable points to.
type object uint8

const (
	objNone   object = iota
	objRegs          // eh_elf_regs_t, written and read
	objMemory        // eh_elf_memory_t, read
	objDesc          // descriptor of a row, read
	objResult        // unwind_context_t to be returned, written
	objWord          // where a callback leaves a word, written
)

// pointer is a variable that is the address of an object.
type pointer struct {
	v    term
	kind object
}

// index is a term that is the number of a register where a condition holds.
type index struct{ v, where term } // v is a register number where the path decides that where holds

// objectOf returns the object that a term is the address of.
func (x *exec) objectOf(v term) object {
	for i := range x.objects {
		if x.objects[i].v == v {
			return x.objects[i].kind
		}
	}
	return objNone
}

// spAt is rsp at the entry plus an offset. It remembers the terms of aligned offsets in the frame.
func (x *exec) spAt(off int64) term {
	i := (off + stackLimit) / 8
	if off%8 != 0 || i < 0 || i >= int64(len(x.spOffsets)) {
		return x.t.plus(x.sp, off)
	}
	if x.spOffsets[i] == 0 {
		x.spOffsets[i] = x.t.plus(x.sp, off) + 1
	}
	return x.spOffsets[i] - 1
}

// stackOff returns rsp minus rsp at the entry. It is an error unless that is a constant between the
// limit and 8, the return of the function.
func (x *exec) stackOff(s *state) (int64, error) {
	d, ok := x.t.value(x.t.sub(s.reg[rSP], x.sp))
	if !ok || int64(d) < -x.may.limit || int64(d) > 8 {
		return 0, fmt.Errorf("rsp is %s", x.t.text(s.reg[rSP]))
	}
	return int64(d), nil
}

// mapped returns the run-time address of an address of the file. Terms keep the two apart: the
// file is loaded anywhere.
func (x *exec) mapped(addr uint64) term { return x.t.plus(x.image, int64(addr)) }

// link returns the address of the file that a run-time address is known to be.
func (x *exec) link(addr term) (uint64, bool) { return x.t.value(x.t.sub(addr, x.image)) }

// address computes the address of an operand in memory.
func (x *exec) address(s *state, o operand) term {
	if o.kind == opRIP {
		return x.mapped(s.pc + uint64(o.disp)) // s.pc is past the instruction already
	}
	a := x.t.plus(s.reg[o.reg], o.disp)
	if o.scale > 0 {
		a = x.t.scaled(a, s.reg[o.index], uint64(o.scale))
	}
	return a
}

// fork returns a deep copy of a state, for the other way of a branch. Conditions and events are part of it: each way
// has decided another one.
func (x *exec) fork(s *state) *state {
	c := x.newState()
	// The lists of c keep their memory: *c = *s would otherwise share those of s.
	stack, regs, conds, event, outer := c.stack, c.regs, c.conds, c.event, c.outer
	*c = *s
	c.stack = append(stack, s.stack...)
	c.regs = append(regs, s.regs...)
	c.conds = append(conds, s.conds...)
	c.event = append(event, s.event...)
	c.outer = append(outer, s.outer...)
	return c
}

// newState returns a state of which all lists are empty, and nothing else is set. It reuses the
// memory of states in free.
// Proofs fork very many states. Reusing their lists saves most of the memory that they would take.
func (x *exec) newState() *state {
	n := len(x.free)
	if n == 0 {
		return &state{stack: make([]cell, 0, 24), conds: make([]lit, 0, 16), event: make([]event, 0, 8)}
	}
	s := x.free[n-1]
	x.free = x.free[:n-1]
	s.stack, s.regs, s.conds, s.event, s.outer = s.stack[:0], s.regs[:0], s.conds[:0], s.event[:0], s.outer[:0]
	return s
}

// condition returns the boolean that a condition code tests, cc as in the low 4 bits of the opcode
// (SDM volume 1, appendix B). ok is false if the flags are not known to decide it.
func (f flags) condition(t *terms, cc uint8) (l lit, ok bool) {
	neg := cc&1 != 0 // odd codes are the negated ones
	signed := func(v term) term { return t.sext(v, f.w) }
	// Codes come in pairs, a test and its negation: cc>>1 is the test. Overflow and parity (0 and
	// 5) are not used by generated code.
	switch cc >> 1 {
	case 1: // below
		if f.kind == flCmp {
			return literal(t, t.ult(f.a, f.b), neg), true
		}
		// An unsigned comparison is the carry of a subtraction; a sum or a shift may have another
		// carry.
		if f.kind != flNone && f.cf != noTerm {
			return literal(t, f.cf, neg), true
		}
	case 2: // equal
		// After a comparison a == b; else the result is compared with 0.
		switch f.kind {
		case flCmp:
			return literal(t, t.eq(f.a, f.b), neg), true
		case flValue:
			return literal(t, t.eq(f.a, t.con(0)), neg), true
		}
	// a <= b is not (b < a).
	case 3: // below or equal
		if f.kind == flCmp {
			return literal(t, t.ult(f.b, f.a), !neg), true
		}
	case 4: // sign
		v := f.a
		// The sign of a comparison is the sign of the difference, in the operand's size.
		if f.kind == flCmp {
			v = t.low(t.sub(f.a, f.b), f.w)
		}
		if f.kind == flCmp || f.kind == flValue {
			return literal(t, t.bit(v, t.con(uint64(8*f.w-1))), neg), true
		}
	case 6: // less
		// Operands are zero-extended; signed tests extend their sign first.
		if f.kind == flCmp {
			return literal(t, t.slt(signed(f.a), signed(f.b)), neg), true
		}
	case 7: // less or equal
		if f.kind == flCmp {
			return literal(t, t.slt(signed(f.b), signed(f.a)), !neg), true
		}
	}
	return lit{}, false
}

// literal returns the condition c, negated if neg, as a literal whose term is no comparison of a
// boolean with 0, so that equal conditions have equal literals.
func literal(t *terms, c term, neg bool) lit {
	// c == 0 for a boolean c is not c; repeat, since c may be another comparison.
	for {
		n := t.nodes[c]
		if n.op != tEq || t.mask[n.a] > 1 && t.mask[n.b] > 1 {
			return lit{c, neg}
		}
		switch {
		case t.isZero(n.b) && t.mask[n.a] == 1:
			c, neg = n.a, !neg
		case t.isZero(n.a) && t.mask[n.b] == 1:
			c, neg = n.b, !neg
		default:
			return lit{c, neg}
		}
	}
}

// term returns a condition as a term of 0 or 1.
func (l lit) term(t *terms) term {
	if l.neg {
		return t.eq(l.t, t.con(0))
	}
	return l.t
}

// decide returns whether a condition holds on a path: because it is constant, or by what the path
// has decided or assumed. known is false if neither says so.
func (x *exec) decide(s *state, c term) (truth, known bool) {
	// One form of the condition, so that a negated one is found, too.
	l := literal(x.t, c, false)
	if v, ok := x.t.value(l.t); ok {
		return (v != 0) != l.neg, true
	}
	// conds are the literals that hold on this path.
	for _, k := range s.conds {
		if k.t == l.t {
			return k.neg == l.neg, true
		}
	}
	// x == c decides x == d: they cannot both hold if c and d differ.
	if n := x.t.nodes[l.t]; n.op == tEq {
		for _, k := range s.conds {
			m := x.t.nodes[k.t]
			if k.neg || m.op != tEq {
				continue
			}
			for _, p := range [2][2]term{{n.a, n.b}, {n.b, n.a}} {
				for _, q := range [2][2]term{{m.a, m.b}, {m.b, m.a}} {
					_, c1 := x.t.value(p[1])
					_, c2 := x.t.value(q[1])
					if p[0] == q[0] && c1 && c2 && p[1] != q[1] {
						return l.neg, true
					}
				}
			}
		}
	}
	return false, false
}
