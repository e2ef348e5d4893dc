package prove

import (
	"fmt"
	"slices"
)

// state is what is known of the machine at one place of one path.
type state struct {
	pc    uint64     // address of the next instruction, in the file
	reg   [16]term   // by number in instructions
	xmm   [6][2]term // low half, high half
	fl    flags
	stack cells   // relative to rsp at the entry of the exported function
	regs  cells   // what was written to eh_elf_regs_t
	conds []lit   // what was taken for granted and what branches have decided
	event []event // in the order of execution
	frame callFrame
	outer []callFrame // callers of a subroutine that runs, the outermost first
}

// cells are the places of an object whose bytes are known; they do not overlap.
type cells []cell

// cell is a place of an object that was written, or read for the first time.
type cell struct {
	off  int64 // from the object's beginning, in bytes
	size uint8 // 1, 2, 4 or 8
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

// eventKind says which access to memory an event is.
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
	ret  int64    // from rsp at the entry of the exported function
	keep [16]term // by number in instructions
}

// calleeSaved are the registers a function has to keep (psABI figure 3.4), rsp aside.
var calleeSaved = [...]uint8{rBX, rBP, r12, r13, r14, r15}

// assume adds a condition to a path: t holds, or with neg, it does not.
func (s *state) assume(t term, neg bool) { s.conds = append(s.conds, lit{t, neg}) }

// flags are the status flags as the last instruction left them, not yet computed.
type flags struct {
	kind flagKind
	w    uint8 // bytes of the operands
	a, b term  // operands, or in a the result
	cf   term  // carry; noTerm: not known
}

// flagKind says what the flags were made from.
type flagKind uint8

const (
	flNone  flagKind = iota // nothing is known
	flCmp                   // of a - b
	flValue                 // zero and sign of a; carry cf
	flCarry                 // carry cf alone
)

// noTerm is an unknown term.
const noTerm term = -1

// read returns the bytes at an offset of an object, cut out of a larger cell if need be. found
// is false if none of them were written or read; it is an error if only some were.
func (cs cells) read(t *terms, off int64, size uint8) (v term, found bool, err error) {
	for _, c := range cs {
		if c.off == off && c.size == size {
			return c.v, true, nil
		}
		// The two ranges overlap, but not exactly.
		if c.off < off+int64(size) && off < c.off+int64(c.size) {
			if c.off <= off && off+int64(size) <= c.off+int64(c.size) {
				return t.low(t.shrConst(c.v, uint(8*(off-c.off))), size), true, nil
			}
			return 0, false, fmt.Errorf("a read of %d bytes at %+d of which only some are known", size, off)
		}
	}
	return 0, false, nil
}

// write sets the bytes at an offset of an object and returns the cells. What it overlaps is
// cut.
func (cs cells) write(t *terms, off int64, size uint8, v term) cells {
	end := off + int64(size)
	for i := 0; i < len(cs); i++ {
		c := cs[i]
		// The common case: the same place is written again.
		if c.off == off && c.size == size {
			cs[i].v = v
			return cs
		}
		cEnd := c.off + int64(c.size)
		if c.off >= end || off >= cEnd {
			continue
		}
		cs = slices.Delete(cs, i, i+1)
		i--
		// What is left of it, byte by byte where it must be: sizes are powers of two.
		for from := c.off; from < cEnd; {
			if from >= off && from < end {
				from = end
				continue
			}
			n := int64(1)
			for n < 8 && (from-c.off)%(2*n) == 0 && from+2*n <= cEnd && (from+2*n <= off || from >= end) {
				n *= 2
			}
			cs = append(cs, cell{from, uint8(n), t.low(t.shrConst(c.v, uint(8*(from-c.off))), uint8(n))})
			from += n
		}
	}
	return append(cs, cell{off, size, v})
}

// only returns the value of a place of an object if that place, as it is, is all that
// was written.
func (cs cells) only(off int64, size uint8) (term, bool) {
	if len(cs) != 1 || cs[0].off != off || cs[0].size != size {
		return noTerm, false
	}
	return cs[0].v, true
}
