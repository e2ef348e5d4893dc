package prove

import "fmt"

// cutEntry is where the lookup of an entry begins, whose number is in rdi: movzbl %al, %eax. (The
// pc's low byte is what a record's keys are compared with.)
var cutEntry = []byte{0x0f, 0xb6, 0xc0}

// packedLookup proves the way from a pc to the number of its page's entry, for the pcs that are given with pages, and
// from there on to the heads.
func (p *lookupProof) packedLookup(s *state, pages pageTable) error {
	t, w := p.t, p.v.shared
	return p.run(s, p.stops(cutEntry), func(e *ending) error {
		if e.kind != endStop {
			return fmt.Errorf("%#x: not the lookup of an entry", e.pc)
		}
		pages, number := pages, e.reg[rDI]
		ok := false
		for pages.bits = range uint(maxPageBits + 1) { // it is the code that says how large a page is
			if pages.first, ok = t.value(t.sub(number, t.shrConst(t.low(w.rel, 4), pages.bits))); ok {
				break
			}
		}
		if !ok {
			return fmt.Errorf("%#x: the number of an entry is %s", e.pc, t.text(e.reg[rDI]))
		}
		if err := p.onlyReads(e.state, 0); err != nil {
			return err
		}
		if err := p.require(e.state, want{"the pc", p.slot(e.state, slotCursor), w.rel}); err != nil {
			return err
		}
		if err := p.matches(e.state, &w); err != nil {
			return err
		}
		var err error
		if pages.packed, err = p.packedTable(e.pc); err != nil {
			return err
		}
		pages.from = pages.packed.from
		return p.pages(pages)
	})
}

// packedTable proves the lookup of an entry, for every number below 2^32: that what packedEntries reads is what leads
// to a head. The result is kept: all page tables of a file share the code.
func (p *lookupProof) packedTable(pc uint64) (packedTable, error) {
	if tab, ok := p.packedTables[pc]; ok {
		return tab, nil
	}
	t, w := p.t, p.v.shared
	number := t.variable("entry", 0xffffffff)
	s := p.stateOf(&w, pc)
	s.reg[rDI] = number
	p.setSlot(s, slotCursor, w.rel)
	var tab packedTable
	known := false
	err := p.run(s, p.stops(cutKeys), func(e *ending) error {
		one, rec, err := p.packedReads(e, number)
		if err != nil {
			return err
		}
		n := t.load(rec, 1)
		long, err := p.holds(e.state, t.ult(t.con(shortKeys), n))
		if err != nil {
			return err
		}
		if long {
			one.slots, err = p.searchLong(e, rec)
		} else {
			one.slots, err = p.searchShort(e, rec)
		}
		if err != nil {
			return err
		}
		if known && one != tab {
			return fmt.Errorf("%#x: short and long records are read in two tables", e.pc)
		}
		known, tab = true, one
		return nil
	})
	if err != nil {
		return tab, fmt.Errorf("%#x: %w", pc, err)
	}
	p.packedTables[pc] = tab
	return tab, nil
}

// packedReads returns the tables in which a path reads the offset and the base of entry number, and
// the address of the record that it computes from them. The first three reads are the offset (2
// bytes), the base (4) and the record's first byte.
func (p *lookupProof) packedReads(e *ending, number term) (tab packedTable, rec term, err error) {
	t := p.t
	const reads = 3
	if len(e.event) < reads {
		return tab, noTerm, fmt.Errorf("%#x: no record is read", e.pc)
	}
	for i, size := range [reads]uint8{2, 4, 1} {
		if e.event[i].kind != evRead || e.event[i].size != size {
			return tab, noTerm, fmt.Errorf("%#x: reads %d bytes at %s", e.pc, e.event[i].size, t.text(e.event[i].addr))
		}
	}
	entry, base := e.event[0].addr, e.event[1].addr
	ok := false
	if tab.entries, ok = p.x.link(t.scaled(entry, number, ^uint64(1))); !ok {
		return tab, noTerm, fmt.Errorf("%#x: reads an entry at %s", e.pc, t.text(entry))
	}
	// The code decides how many entries share a base: try each shift.
	for tab.groupBits = range uint(32) {
		if tab.bases, ok = p.x.link(t.scaled(base, t.shrConst(number, tab.groupBits), ^uint64(3))); ok {
			break
		}
	}
	if !ok {
		return tab, noTerm, fmt.Errorf("%#x: reads a base at %s", e.pc, t.text(base))
	}
	rec = e.event[2].addr
	if tab.from, ok = p.x.link(t.sub(rec, t.low(t.add(t.load(entry, 2), t.load(base, 4)), 4))); !ok {
		return tab, noTerm, fmt.Errorf("%#x: a record at %s", e.pc, t.text(rec))
	}
	return tab, rec, nil
}

// searchShort proves the search of a short record: 16 keys are compared at once, bit n is set in
// the mask for the case that none is larger, and the id at the first set bit is read. It returns
// the address of the slots.
func (p *lookupProof) searchShort(e *ending, rec term) (uint64, error) {
	t := p.t
	n := t.load(rec, 1)
	larger := t.low(t.setBit(p.larger(t.plus(rec, 1), p.v.shared.rel), t.and(n, t.con(31))), 4)
	id := t.load(t.plus(t.add(t.add(rec, n), t.firstBit(larger)), 1), 1)
	slots, err := p.slots(e, id)
	if err != nil {
		return 0, err
	}
	return slots, p.intact(e, 5, e.target)
}

// searchLong proves the search of a long record, whose first byte is above shortKeys, and returns the address of the
// slots.
func (p *lookupProof) searchLong(e *ending, rec term) (uint64, error) {
	if e.kind != endStop || !p.begins(e.pc, cutKeys) {
		return 0, fmt.Errorf("%#x: not the search of a record", e.pc)
	}
	t, loop := p.t, e.pc
	count := t.low(t.plus(t.load(rec, 1), -(shortKeys+1)), 4) // below 256, which the loop's invariant asks for
	if err := p.searchBegins(e, rec, count, 3); err != nil {
		return 0, err
	}
	if slots, ok := p.longs[loop]; ok {
		return slots, nil
	}
	slots, known := uint64(0), false
	err := p.searchLoop(loop, func(e *ending, id term) error {
		one, err := p.slots(e, id)
		if err != nil {
			return err
		}
		if known && one != slots {
			return fmt.Errorf("%#x: ids lead to heads in two ways", e.pc)
		}
		known, slots = true, one
		return p.intact(e, 2, e.target)
	})
	if err != nil {
		return 0, err
	}
	if !known {
		return 0, fmt.Errorf("%#x: a search without an end", loop)
	}
	p.longs[loop] = slots
	return slots, nil
}

// slots returns the address of the slot of id 0, from a jump to the slot of id. Each slot has 16
// bytes. The jump must be to slots + 16*id.
func (p *lookupProof) slots(e *ending, id term) (uint64, error) {
	if e.kind == endJump {
		if addr, ok := p.x.link(p.t.sub(e.target, p.t.shlConst(id, 4))); ok {
			return addr, nil
		}
	}
	return 0, fmt.Errorf("%#x: a jump to %s", e.pc, p.t.text(e.target))
}
