package prove

import "fmt"

// packedTable is what a packed lookup reads. Entry i of a table of pages is an offset of two bytes at entries + 2*i; the record is so far
// behind the base at bases + 4*(i>>groupBits), counted from the table's from, modulo 2^32.
type packedTable struct {
	entries, bases, from uint64
	groupBits            uint
	heads                headTable
}

// shortKeys is the highest first byte of a short record, of as many keys; in a long one it is the number of keys and shortKeys+1.
const shortKeys = 16

// cutEntry is where the lookup of an entry begins, whose number is in rdi: movzbl %al, %eax.
var cutEntry = []byte{0x0f, 0xb6, 0xc0}

// packedLookup proves the way from a pc to the number of its page's entry, for the pcs that are given with pages, and from there
// on to the heads.
func (p *prover) packedLookup(s *state, pages pageTable) error {
	t, w := p.t, p.v.shared
	return p.run(s, p.stops(cutEntry), func(e *ending) error {
		if e.kind != endStop {
			return fmt.Errorf("%#x: not the lookup of an entry", e.pc)
		}
		pages, number := pages, e.reg[rDI]
		if pages.spans.bits > 0 {
			number = t.sub(number, t.sext(pages.spans.table, 4))
		}
		ok := false
		for pages.bits = range uint(maxPageBits + 1) { // it is the code that says how large a page is
			if pages.first, ok = t.value(t.sub(number, t.shrConst(t.low(w.rel, 4), pages.bits))); ok {
				break
			}
		}
		if !ok {
			return fmt.Errorf("%#x: the number of an entry is %s", e.pc, t.text(e.reg[rDI]))
		}
		if err := p.onlyReads(e.state, pages.spans.reads()); err != nil {
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

// packedTable proves the lookup of an entry, for every number below 2^32: that what packedEntries reads
// is what leads to a head.
func (p *prover) packedTable(pc uint64) (packedTable, error) {
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
	err := p.run(s, p.stops(cutKeys, cutShared), func(e *ending) error {
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
			one.heads, err = p.searchLong(e, rec)
		} else {
			one.heads, err = p.searchShort(e, rec)
		}
		if err != nil {
			return err
		}
		if known {
			ok := false
			if one.heads, ok = one.heads.join(tab.heads); !ok || one.entries != tab.entries || one.bases != tab.bases || one.from != tab.from || one.groupBits != tab.groupBits {
				return fmt.Errorf("%#x: short and long records are read in two tables", e.pc)
			}
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

// packedReads returns what the reads of a path are made in, and the address of the record.
func (p *prover) packedReads(e *ending, number term) (tab packedTable, rec term, err error) {
	t := p.t
	const reads = 3
	if len(e.event) < reads {
		return tab, noTerm, fmt.Errorf("%#x: no record is read", e.pc)
	}
	for i, size := range [reads]uint8{2, 4, 1} {
		if e.event[i].kind != evRead || e.event[i].size != size {
			return tab, noTerm, fmt.Errorf("%#x: reads %d bytes at %s", e.pc, e.event[i].size, t.text(e.event[i].at))
		}
	}
	entry, base := e.event[0].at, e.event[1].at
	ok := false
	if tab.entries, ok = p.x.link(t.scaled(entry, number, ^uint64(1))); !ok {
		return tab, noTerm, fmt.Errorf("%#x: reads an entry at %s", e.pc, t.text(entry))
	}
	for tab.groupBits = range uint(32) {
		if tab.bases, ok = p.x.link(t.scaled(base, t.shrConst(number, tab.groupBits), ^uint64(3))); ok {
			break
		}
	}
	if !ok {
		return tab, noTerm, fmt.Errorf("%#x: reads a base at %s", e.pc, t.text(base))
	}
	rec = e.event[2].at
	if tab.from, ok = p.x.link(t.sub(rec, t.low(t.add(t.load(entry, 2), t.load(base, 4)), 4))); !ok {
		return tab, noTerm, fmt.Errorf("%#x: a record at %s", e.pc, t.text(rec))
	}
	return tab, rec, nil
}

// searchShort proves the search of a short record, and returns how ids lead to heads.
func (p *prover) searchShort(e *ending, rec term) (headTable, error) {
	t := p.t
	n := t.load(rec, 1)
	larger := t.low(t.setBit(p.larger(t.plus(rec, 1), p.v.shared.rel), t.and(n, t.con(31))), 4)
	id := t.load(t.plus(t.add(t.add(rec, n), t.firstBit(larger)), 1), 1)
	h, err := p.headTable(e, id)
	if err != nil {
		return h, err
	}
	return h, p.toHead(e, 5+h.reads(), h)
}

// searchLong proves the search of a long record, whose first byte is above shortKeys, and returns how ids lead to heads.
func (p *prover) searchLong(e *ending, rec term) (headTable, error) {
	var h headTable
	if e.kind != endStop || !p.begins(e.pc, cutKeys) {
		return h, fmt.Errorf("%#x: not the search of a record", e.pc)
	}
	t := p.t
	count := t.low(t.plus(t.load(rec, 1), -(shortKeys+1)), 4) // below 256, which the loop's invariant asks for
	if err := p.searchBegins(e, rec, count, 3); err != nil {
		return h, err
	}
	if h, ok := p.longs[p.blocks]; ok {
		return h, nil
	}
	known := false
	loop := p.blocks
	err := p.searchLoop(loop, func(e *ending, at func(size uint64) term) error {
		id := at(2)
		if id == noTerm {
			return fmt.Errorf("%#x: no id is read", e.pc)
		}
		one, err := p.headTable(e, id)
		if err != nil {
			return err
		}
		if known {
			ok := false
			if h, ok = h.join(one); !ok {
				return fmt.Errorf("%#x: ids lead to heads in two ways", e.pc)
			}
		} else {
			known, h = true, one
		}
		return p.toHead(e, 2+h.reads(), one)
	})
	if err != nil {
		return h, err
	}
	if !known {
		return h, fmt.Errorf("%#x: a search without an end", loop)
	}
	p.longs[loop] = h
	return h, nil
}

// headTable says how ids lead to heads: in slots of 16 bytes, of which that of id 0 is at at, or by a table
// there, of distances from text that have size bytes. Of the latter, words of sharedFrom and more may lead to one head, with the word in rdi.
type headTable struct {
	at, text uint64
	size     uint8  // 0: slots
	shared   uint64 // the head that rows share
	below    bool   // distances are below sharedFrom
	jumps    bool   // text is known
	shares   bool   // shared is known
}

// sharedFrom is the lowest word that leads to a shared head.
const sharedFrom = 1 << 15

// cutShared is where a shared head begins, with its row's word in rdi: lea -8*sharedFrom(%r9,%rdi,8), %r10.
var cutShared = []byte{0x4d, 0x8d, 0x94, 0xf9, 0x00, 0x00, 0xfc, 0xff}

// join returns what two paths say of one table. ok is false if they contradict each other.
func (h headTable) join(o headTable) (both headTable, ok bool) {
	if h.at != o.at || h.size != o.size || h.below != o.below || h.jumps && o.jumps && h.text != o.text || h.shares && o.shares && h.shared != o.shared {
		return h, false
	}
	if o.jumps {
		h.jumps, h.text = true, o.text
	}
	if o.shares {
		h.shares, h.shared = true, o.shared
	}
	return h, true
}

// headTable returns how ids lead to heads, from a jump to that of id, or from where the head begins that it shares.
func (p *prover) headTable(e *ending, id term) (h headTable, err error) {
	t, ok := p.t, false
	if len(e.event) > 0 {
		w := e.event[len(e.event)-1]
		word := t.load(w.at, w.size)
		switch {
		case e.kind == endStop && w.size == 2:
			below, err := p.holds(e.state, t.ult(word, t.con(sharedFrom)))
			if err != nil || below || e.reg[rDI] != word || !p.begins(e.pc, cutShared) {
				return h, fmt.Errorf("%#x: not a head that rows share: %v", e.pc, err)
			}
			h = headTable{size: 2, below: true, shares: true, shared: e.pc}
			if h.at, ok = p.x.link(t.scaled(w.at, id, ^uint64(1))); ok {
				return h, nil
			}
		case e.kind == endJump:
			h.jumps = true
			if h.at, ok = p.x.link(t.sub(e.target, t.shlConst(id, 4))); ok {
				return h, nil
			}
			if h.text, ok = p.x.link(t.sub(e.target, word)); ok && (w.size == 2 || w.size == 4) {
				h.size = w.size
				if w.size == 2 {
					below, known := p.x.decide(e.state, t.ult(word, t.con(sharedFrom)))
					h.below = known && below
				}
				if h.at, ok = p.x.link(t.scaled(w.at, id, -uint64(w.size))); ok {
					return h, nil
				}
			}
		}
	}
	return headTable{}, fmt.Errorf("%#x: a jump to %s", e.pc, t.text(e.target))
}

// toHead checks the state at a head that headTable has found.
func (p *prover) toHead(e *ending, reads int, h headTable) error {
	if h.jumps {
		return p.intact(e, reads, e.target)
	}
	if err := p.onlyReads(e.state, reads); err != nil {
		return err
	}
	w := p.v.shared
	return p.matches(e.state, &w)
}

// reads returns the number of reads on the way from an id to its head.
func (h headTable) reads() int {
	if h.size == 0 {
		return 0
	}
	return 1
}

// headAt returns the number of the head that an id leads to.
func (p *prover) headAt(h headTable, id uint64) (int32, error) {
	if h.size == 0 {
		return p.heads.of(h.at + id<<4), nil
	}
	b := p.im.at(h.at+uint64(h.size)*id, uint64(h.size))
	switch {
	case b == nil:
		return 0, fmt.Errorf("row %d of a dense page is not in the data", id)
	case h.size == 4:
		return p.heads.of(h.text + uint64(le.Uint32(b))), nil
	}
	word := le.Uint16(b)
	switch {
	case h.below && word >= sharedFrom && h.shares:
		return p.heads.with(h.shared, word), nil
	case !h.jumps || h.below && word >= sharedFrom:
		return 0, fmt.Errorf("row %d of a dense page leads to no head: %#x", id, word)
	}
	return p.heads.of(h.text + uint64(word)), nil
}

// packedEntries returns a function that gives the offsets of the records of count pages from first on.
func (p *prover) packedEntries(tab pageTable, first, count uint64) (func(page uint64) (uint32, error), error) {
	number := tab.first + first
	if number >= 1<<32 || count > 1<<32-number {
		return nil, fmt.Errorf("entries of a page table from %#x on", number)
	}
	entries := p.im.at(tab.packed.entries+2*number, 2*count)
	if entries == nil {
		return nil, fmt.Errorf("a page table of %d entries at %#x is not in the data", count, tab.packed.entries+2*number)
	}
	return func(page uint64) (uint32, error) {
		at := tab.packed.bases + 4*((number+page)>>tab.packed.groupBits)
		base := p.im.at(at, 4)
		if base == nil {
			return 0, fmt.Errorf("a base at %#x is not in the data", at)
		}
		return le.Uint32(base) + uint32(le.Uint16(entries[2*page:])), nil
	}, nil
}
