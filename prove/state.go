package prove

import (
	"fmt"
	"slices"
)

// state is what is known of the machine at one place of one path.
type state struct {
	pc    uint64
	reg   [16]term
	xmm   [6][2]term
	fl    flags
	stack []cell // relative to rsp at the entry of the exported function
	regs  []cell // eh_elf_regs_t
	conds []lit  // what was taken for granted and what branches have decided
	event []event
	frame callFrame
	outer []callFrame
}

// cell is a place of an object that was written, or read for the first time.
type cell struct {
	off  int64
	size uint8
	v    term
}

// lit says that a boolean term holds, or with neg, that it does not.
type lit struct {
	t   term
	neg bool
}

// event is a store that is in no object, or a read of the target's memory.
type event struct {
	kind eventKind
	addr term // address
	size uint8
	v    term
}

type eventKind uint8

const (
	evPC     eventKind = iota // a pc goes to the caller's array
	evResult                  // to the result of _eh_elf
	evWord                    // to where a read callback leaves its word
	evNew                     // to slotNew, indexed
	evReg                     // to eh_elf_regs_t, indexed
	evRead                    // the target's memory is read
)

// callFrame is the function that runs: where its return address lies, and what the
// registers held at its entry that it has to keep.
type callFrame struct {
	ret  int64
	keep [16]term
}

// calleeSaved are the registers a function has to keep (psABI figure 3.4), rsp aside.
var calleeSaved = [...]uint8{rBX, rBP, r12, r13, r14, r15}

// fork returns a copy of a state.
func (x *exec) fork(s *state) *state {
	c := x.newState()
	stack, regs, conds, event, outer := c.stack, c.regs, c.conds, c.event, c.outer
	*c = *s
	c.stack = append(stack, s.stack...)
	c.regs = append(regs, s.regs...)
	c.conds = append(conds, s.conds...)
	c.event = append(event, s.event...)
	c.outer = append(outer, s.outer...)
	return c
}

// newState returns a state of which all lists are empty, and nothing else is set.
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

func (s *state) assume(t term, neg bool) { s.conds = append(s.conds, lit{t, neg}) }

// flags are the status flags as the last instruction left them, not yet computed.
type flags struct {
	kind flagKind
	w    uint8
	a, b term // operands, or in a the result
	cf   term
}

type flagKind uint8

const (
	flNone  flagKind = iota // nothing is known
	flCmp                   // of a - b
	flValue                 // zero and sign of a; carry cf
	flCarry                 // carry cf alone
)

// noTerm is an unknown term.
const noTerm term = -1

// condition returns the boolean of a condition code, and whether it is negated.
func (x *exec) condition(f flags, cc uint8) (l lit, ok bool) {
	t := x.t
	neg := cc&1 != 0
	signed := func(v term) term { return t.sext(v, f.w) }
	switch cc >> 1 {
	case 1: // below
		if f.kind == flCmp {
			return x.literal(t.ult(f.a, f.b), neg), true
		}
		if f.kind != flNone && f.cf != noTerm {
			return x.literal(f.cf, neg), true
		}
	case 2: // equal
		switch f.kind {
		case flCmp:
			return x.literal(t.eq(f.a, f.b), neg), true
		case flValue:
			return x.literal(t.eq(f.a, t.con(0)), neg), true
		}
	case 3: // below or equal
		if f.kind == flCmp {
			return x.literal(t.ult(f.b, f.a), !neg), true
		}
	case 4: // sign
		v := f.a
		if f.kind == flCmp {
			v = t.low(t.sub(f.a, f.b), f.w)
		}
		if f.kind == flCmp || f.kind == flValue {
			return x.literal(t.bit(v, t.con(uint64(8*f.w-1))), neg), true
		}
	case 6: // less
		if f.kind == flCmp {
			return x.literal(t.slt(signed(f.a), signed(f.b)), neg), true
		}
	case 7: // less or equal
		if f.kind == flCmp {
			return x.literal(t.slt(signed(f.b), signed(f.a)), !neg), true
		}
	}
	return lit{}, false
}

// literal strips comparisons of booleans with 0.
func (x *exec) literal(c term, neg bool) lit {
	for {
		n := x.t.nodes[c]
		if n.op != tEq || x.t.mask[n.a] > 1 && x.t.mask[n.b] > 1 {
			return lit{c, neg}
		}
		switch {
		case x.t.isZero(n.b) && x.t.mask[n.a] == 1:
			c, neg = n.a, !neg
		case x.t.isZero(n.a) && x.t.mask[n.b] == 1:
			c, neg = n.b, !neg
		default:
			return lit{c, neg}
		}
	}
}

// asTerm returns a condition as a term of 0 or 1.
func (x *exec) asTerm(l lit) term {
	if l.neg {
		return x.t.eq(l.t, x.t.con(0))
	}
	return l.t
}

// decide tells what a path says of a boolean.
func (x *exec) decide(s *state, c term) (truth, known bool) {
	l := x.literal(c, false)
	if v, ok := x.t.value(l.t); ok {
		return (v != 0) != l.neg, true
	}
	for _, k := range s.conds {
		if k.t == l.t {
			return k.neg == l.neg, true
		}
	}
	// x == c decides x == d.
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

// readCell returns a place of an object, cut out of a larger one if need be.
func (x *exec) readCell(cells []cell, off int64, size uint8) (v term, found bool, err error) {
	for _, c := range cells {
		if c.off == off && c.size == size {
			return c.v, true, nil
		}
		if c.off < off+int64(size) && off < c.off+int64(c.size) {
			if c.off <= off && off+int64(size) <= c.off+int64(c.size) {
				return x.t.low(x.t.shrConst(c.v, uint(8*(off-c.off))), size), true, nil
			}
			return 0, false, fmt.Errorf("a read of %d bytes at %+d of which only some are known", size, off)
		}
	}
	return 0, false, nil
}

// writeCell replaces a place; what it overlaps is cut.
func (x *exec) writeCell(cells []cell, off int64, size uint8, v term) []cell {
	end := off + int64(size)
	for i := 0; i < len(cells); i++ {
		c := cells[i]
		if c.off == off && c.size == size {
			cells[i].v = v
			return cells
		}
		cEnd := c.off + int64(c.size)
		if c.off >= end || off >= cEnd {
			continue
		}
		cells = slices.Delete(cells, i, i+1)
		i--
		// What is left of it, byte by byte where it must be: sizes are powers of two.
		for at := c.off; at < cEnd; {
			if at >= off && at < end {
				at = end
				continue
			}
			n := int64(1)
			for n < 8 && (at-c.off)%(2*n) == 0 && at+2*n <= cEnd && (at+2*n <= off || at >= end) {
				n *= 2
			}
			cells = append(cells, cell{at, uint8(n), x.t.low(x.t.shrConst(c.v, uint(8*(at-c.off))), uint8(n))})
			at += n
		}
	}
	return append(cells, cell{off, size, v})
}

// onlyCell returns the value of a place of an object if that place, as it is, is all that
// was written.
func onlyCell(cells []cell, off int64, size uint8) (term, bool) {
	if len(cells) != 1 || cells[0].off != off || cells[0].size != size {
		return noTerm, false
	}
	return cells[0].v, true
}
