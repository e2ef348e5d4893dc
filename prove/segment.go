package prove

import (
	"bytes"
	"fmt"
)

// What a lookup in a table of pages begins with: mov %eax, %edi; of a packed one: mov
// %rax, 72(%rsp).
var (
	tableBegins  = []byte{0x89, 0xc7}
	packedBegins = []byte{0x48, 0x89, 0x44, 0x24, slotCursor}
)

// beginsTable reports whether a lookup in a table of pages begins here. What it is taken for
// is no claim: the proof of the one fails with the code of the other.
func (p *lookupProof) beginsTable(addr uint64) bool {
	begins := tableBegins
	if p.packed {
		begins = packedBegins
	}
	return bytes.HasPrefix(p.im.text(addr), begins)
}

// segments proves a search of the pc's segment, once for each address: eax, below 2^31, is compared
// with borders, and every pc takes one way, to a table of pages or to the head of the row of all of a
// segment.
// The state is the loop's, and stays so: comparisons and jumps change flags only.
func (p *lookupProof) segments(addr uint64) error {
	if p.proven.segments[addr] {
		return nil
	}
	p.proven.segments[addr] = true
	return p.segment(addr, 0, uint64(p.table.High())-p.base, 0)
}

// between notes an instruction of the search as used, and as code that is not run on terms.
func (p *lookupProof) between(addr uint64, n uint8) {
	p.im.covers(addr, uint64(n))
	p.fast(addr, addr+uint64(n))
}

// maxSegmentDepth bounds the comparisons with borders on one way.
const maxSegmentDepth = 64

// segment follows the code at an address for the pcs low to high, less base. depth counts
// comparisons and jumps before it.
func (p *lookupProof) segment(addr, low, high uint64, depth int) error {
	if low >= high {
		return nil
	}
	if depth > maxSegmentDepth {
		return fmt.Errorf("%#x: comparisons without end", addr)
	}
	next := func() (inst, error) {
		i, ok := decode(p.im.text(addr))
		if !ok {
			return i, fmt.Errorf("%#x: no instruction of generated code", addr)
		}
		return i, nil
	}
	i, err := next()
	if err != nil {
		return err
	}
	eax := operand{kind: opReg, reg: rAX}
	switch {
	case p.beginsTable(addr):
		w := p.v.shared
		return p.tableLookup(p.stateOf(&w, addr), pageTable{low: low, high: high})
	case i.op == iJmp:
		p.between(addr, i.n)
		return p.segment(addr+uint64(i.n)+uint64(i.imm), low, high, depth+1)
	case i.op != iCmp || i.w != 4 || i.dst != eax || i.src.kind != opImm || i.imm < 0:
		in := p.rangesFrom(low)
		return in.lead(p.heads.of(addr), low, high)
	}
	border := uint64(i.imm)
	p.between(addr, i.n)
	addr += uint64(i.n)
	if i, err = next(); err != nil {
		return err
	}
	if i.op != iJcc || i.cc != ccBelow && i.cc != ccAbove {
		return fmt.Errorf("%#x: not a jump on what was compared", addr)
	}
	p.between(addr, i.n)
	addr += uint64(i.n)
	below, above := addr, addr
	if to := addr + uint64(i.imm); i.cc == ccBelow {
		below = to
	} else {
		above = to
	}
	if err := p.segment(below, low, min(high, border), depth+1); err != nil {
		return err
	}
	return p.segment(above, max(low, border), high, depth+1)
}

// Conditions of jumps.
const (
	ccBelow = 2 // carry
	ccAbove = 3 // no carry: above or equal
)
