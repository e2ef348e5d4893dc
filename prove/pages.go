package prove

import (
	"fmt"
	"sort"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file proves lookups: for all pcs, in order, it goes through what a lookup would read, and compares the borders
// with those of the table. The code of a lookup is run on terms once for each form (lookup.go); its data, megabytes of
// trees or records, are gone through here by a reader of their form.

// noRow stands for no row: no unwind information.
const noRow int32 = -1

// leafPair says that a lookup leads from pcs of a row to a head.
type leafPair struct{ head, row int32 }

// leafOf is where the low byte of a pc leads, from start on.
type leafOf struct {
	start uint8
	head  int32 // in heads.list
}

// lookupProof proves lookups: every pc leads to the head of its row.
type lookupProof struct {
	*proof
	walk   *walkProof
	rows   *rowProof
	packed bool

	heads        heads
	proven       lookups
	packedTables map[uint64]packedTable // by the code that looks an entry up
	longs        map[uint64]uint64      // searches of long records: where they find the slots
	fastCode     codeRange              // code that runs with the target's registers in place
}

// lookups are parts of lookups that were gone through.
type lookups struct {
	pairs    map[leafPair]bool
	searches map[pageTable]bool // tables of pages
	segments map[uint64]bool    // searches of segments
}

// codeRange is where code lies.
type codeRange struct{ low, high uint64 }

// newLookupProof returns the proof of lookups in one file; rows and ends of walks are proven by
// rows and walk.
func newLookupProof(p *proof, walk *walkProof, rows *rowProof, packed bool) *lookupProof {
	return &lookupProof{
		proof: p, walk: walk, rows: rows, packed: packed,
		proven:       lookups{pairs: map[leafPair]bool{}, searches: map[pageTable]bool{}, segments: map[uint64]bool{}},
		packedTables: map[uint64]packedTable{}, longs: map[uint64]uint64{}, fastCode: codeRange{low: ^uint64(0)},
	}
}

// code returns the bounds of the code of lookups that was not run on terms; see single.
func (p *lookupProof) code() (low, high uint64) { return p.fastCode.low, p.fastCode.high }

// fast notes code of lookups that is not run on terms.
func (p *lookupProof) fast(from, to uint64) {
	p.fastCode.low, p.fastCode.high = min(p.fastCode.low, from), max(p.fastCode.high, to)
}

// intact checks a jump to a row's head, which a number of reads of the data leads to.
func (p *lookupProof) intact(e *ending, reads int, target term) error {
	if e.kind != endJump {
		return fmt.Errorf("%#x: not a jump to a head", e.pc)
	}
	if err := p.onlyReads(e.state, reads); err != nil {
		return err
	}
	if err := p.require(e.state, want{"where a lookup leads", e.target, target}); err != nil {
		return err
	}
	w := p.v.shared
	return p.matches(e.state, &w)
}

// onlyReads checks that a path of a lookup has read n places, and written nothing but its frame.
func (p *lookupProof) onlyReads(s *state, reads int) error {
	if len(s.event) != reads {
		return fmt.Errorf("%#x: a lookup reads %d places, not %d", s.pc, len(s.event), reads)
	}
	if len(s.regs) > 0 {
		return fmt.Errorf("%#x: a lookup writes registers", s.pc)
	}
	return p.only(s, evRead)
}

// pageTable is what a lookup reads for the pcs low to high, less base.
type pageTable struct {
	first     uint64 // where the entry of page 0 is, or would be; packed: its number
	from      uint64 // entries count from here
	low, high uint64
	bits      uint // a page is of 1<<bits pcs
	packed    packedTable
}

// pages goes through the page table, once for each table that a lookup uses, and
// compares every border with the table's ranges.
func (p *lookupProof) pages(tab pageTable) error {
	if p.proven.searches[tab] || tab.low >= tab.high {
		return nil
	}
	p.proven.searches[tab] = true
	size := uint64(1) << tab.bits
	first := tab.low / size
	count := (tab.high+size-1)/size - first
	entry, err := p.entries(tab, first, count)
	if err != nil {
		return err
	}
	g := pageReader{p: p, data: tab.from, slots: tab.packed.slots, low: ^uint64(0)}
	in := p.rangesFrom(tab.low)
	for page := range count {
		start := (first + page) * size // less base
		lo := start & 0xff
		var leaves []leafOf
		e, err := entry(page)
		if err == nil {
			leaves, err = g.page(e, int(lo), int(lo+size-1))
		}
		if err != nil {
			return fmt.Errorf("pcs from %#x on: %w", p.base+start, err)
		}
		p.result.Borders += len(leaves)
		for i, leaf := range leaves {
			begin, end := start-lo+uint64(leaf.start), start+size
			if i+1 < len(leaves) {
				end = start - lo + uint64(leaves[i+1].start)
			}
			if err := in.lead(leaf.head, max(begin, tab.low), min(end, tab.high)); err != nil {
				return err
			}
		}
	}
	p.fast(g.low, g.high)
	p.result.Pages += int(count)
	return nil
}

// entries returns a function that gives what a lookup reads for count pages from first on.
func (p *lookupProof) entries(tab pageTable, first, count uint64) (func(page uint64) (uint32, error), error) {
	if p.packed {
		return p.packedEntries(tab, first, count)
	}
	b := p.im.at(tab.first+4*first, 4*count)
	if b == nil {
		return nil, fmt.Errorf("a page table of %d entries at %#x is not in the data", count, tab.first+4*first)
	}
	return func(page uint64) (uint32, error) { return le.Uint32(b[4*page:]), nil }, nil
}

// leads proves that what a lookup leads to is what a row means.
func (p *lookupProof) leads(head int32, row int32) error {
	if pair := (leafPair{head, row}); !p.proven.pairs[pair] {
		if err := p.head(p.heads.list[head].addr, row); err != nil {
			if row == noRow {
				return fmt.Errorf("no row: %w", err)
			}
			return fmt.Errorf("row %d (%s): %w", row, p.table.RowText(uint32(row)), err)
		}
		p.proven.pairs[pair] = true
		p.result.Rows++
	}
	h := &p.heads.list[head]
	h.hasRow, h.row = true, row
	return nil
}

// head proves that the code at an address does what a row means: a step, or the end of the walk
// with the row's status.
func (p *lookupProof) head(head uint64, row int32) error {
	if row == noRow {
		return p.walk.stopped(head, abi.StatusNoInfo)
	}
	r := &p.table.Rows[row]
	switch {
	case r.Regs[abi.RIP].Kind == dwarfcfa.RuleUndefined:
		return p.walk.stopped(head, abi.StatusOutermost)
	case r.Flags&dwarfcfa.RowNotCompiled != 0:
		return p.walk.stopped(head, abi.StatusNotCompiled)
	}
	return p.rows.row(head, r)
}

// pageReader decodes pages: compare trees, or records.
type pageReader struct {
	p         *lookupProof
	data      uint64
	slots     uint64      // packed: the head of id 0
	leaves    []leafOf    // of the page that was read last
	whole     [64]wholeOf // pages with one leaf that were read, by the low bits of their entry
	low, high uint64      // code that was gone through
	steps     int
}

// wholeOf is the leaf that all pcs of a page lead to.
type wholeOf struct {
	known bool
	lo    uint8 // the lowest low byte of the page
	entry uint32
	head  int32
}

// page decodes what an entry of a page table leads to, for the low bytes lo to hi: leaves in order
// of their start. They are valid until the next call.
func (g *pageReader) page(entry uint32, lo, hi int) ([]leafOf, error) {
	whole := &g.whole[entry/8%64] // many pages lie inside one range; their entries repeat
	g.leaves = g.leaves[:0]
	if whole.known && whole.entry == entry && int(whole.lo) == lo {
		g.leaves = append(g.leaves, leafOf{uint8(lo), whole.head})
		return g.leaves, nil
	}
	if g.p.packed {
		if err := g.packedPage(entry, lo, hi); err != nil {
			return nil, err
		}
	} else {
		g.steps = 0
		if err := g.tree(g.data+uint64(int64(int32(entry))), lo, hi); err != nil {
			return nil, err
		}
	}
	own := g.leaves
	for i := 1; i < len(own); i++ { // nearly sorted
		for j := i; j > 0 && own[j].start < own[j-1].start; j-- {
			own[j], own[j-1] = own[j-1], own[j]
		}
	}
	if len(own) == 1 {
		*whole = wholeOf{true, uint8(lo), entry, own[0].head}
	}
	return own, nil
}

// through notes n bytes of code at an address as gone through, and returns the address behind them.
func (g *pageReader) through(addr, n uint64) uint64 {
	g.p.im.covers(addr, n)
	g.low, g.high = min(g.low, addr), max(g.high, addr+n)
	return addr + n
}

// leaf appends a leaf that begins at the low byte lo.
func (g *pageReader) leaf(lo int, head int32) {
	g.leaves = append(g.leaves, leafOf{uint8(lo), head})
}

// tree follows the comparisons of al at an address for the low bytes lo to hi: every
// byte takes one way. What is neither a comparison nor a jump is a head.
func (g *pageReader) tree(addr uint64, lo, hi int) error {
	key := -1 // of the comparison before
	code := g.p.im.text(g.p.im.exec.Vaddr)
	for {
		// More than any page has borders.
		if g.steps++; g.steps > 1<<14 {
			return fmt.Errorf("%#x: comparisons without end", addr)
		}
		off := addr - g.p.im.exec.Vaddr
		if off > uint64(len(code)) || uint64(len(code))-off < 6 { // the longest instruction below
			return fmt.Errorf("%#x: not in the code", addr)
		}
		b := code[off : off+6]
		above, to := false, uint64(0)
		// What is read here is not run on terms: it may hold only cmp $imm8, %al and jumps, which
		// leave the state alone.
		switch b[0] {
		case 0x3c: // cmp $imm8, %al
			key = int(b[1])
			addr = g.through(addr, 2)
			continue
		case 0x72, 0x73: // jb, jae
			addr = g.through(addr, 2)
			above, to = b[0] == 0x73, addr+uint64(int64(int8(b[1])))
		case 0xeb:
			addr = g.through(addr, 2)
			addr += uint64(int64(int8(b[1])))
			continue
		case 0xe9:
			addr = g.through(addr, 5)
			addr += uint64(int64(int32(le.Uint32(b[1:]))))
			continue
		case 0x0f:
			if b[1] != 0x82 && b[1] != 0x83 {
				g.leaf(lo, g.p.heads.of(addr))
				return nil
			}
			addr = g.through(addr, 6)
			above, to = b[1] == 0x83, addr+uint64(int64(int32(le.Uint32(b[2:]))))
		default:
			g.leaf(lo, g.p.heads.of(addr))
			return nil
		}
		if key < 0 {
			return fmt.Errorf("%#x: a jump without a comparison", addr)
		}
		// Below key the carry is set.
		takenLow, takenHigh := lo, min(hi, key-1)
		lo2, hi2 := max(lo, key), hi
		if above {
			takenLow, takenHigh, lo2, hi2 = lo2, hi2, takenLow, takenHigh
		}
		if takenLow <= takenHigh {
			if err := g.tree(to, takenLow, takenHigh); err != nil {
				return err
			}
		}
		if lo2 > hi2 {
			return nil
		}
		lo, hi = lo2, hi2
	}
}

// packedPage reads the record at an offset: its first byte says which form it has, n keys and n+1 ids follow. The id of
// a low byte belongs to the first key above it. 16 keys are read at a time.
func (g *pageReader) packedPage(off uint32, lo, hi int) error {
	addr := g.data + uint64(off)
	first := g.p.im.at(addr, 1)
	if first == nil {
		return fmt.Errorf("a record at %#x is not in the data", addr)
	}
	n, idSize := uint64(first[0]), uint64(1)
	if n > shortKeys { // short: n keys, n+1 ids of one byte
		n, idSize = n-(shortKeys+1), 2
	}
	b := g.p.im.at(addr+1, max(n+(n+1)*idSize, (max(n, 1)+15)&^15)) // all that the code reads, also past the last key
	if b == nil {
		return fmt.Errorf("a record at %#x is not in the data", addr)
	}
	from := lo
	for i := uint64(0); i <= n; i++ {
		until := hi // the largest low byte of id i
		if i < n {
			until = min(hi, int(b[i])-1)
		}
		if until < from {
			continue
		}
		id := uint64(b[n+i*idSize])
		if idSize == 2 {
			id |= uint64(b[n+i*2+1]) << 8
		}
		g.leaf(from, g.p.heads.of(g.slots+id<<4))
		from = until + 1
	}
	return nil
}

// rangeWalk goes through the table's ranges as pcs ascend.
type rangeWalk struct {
	p    *lookupProof
	next int // the first range that ends after the last pc
}

// rangesFrom begins at the first range that ends above low, less base.
func (p *lookupProof) rangesFrom(low uint64) rangeWalk {
	ranges := p.table.Ranges
	return rangeWalk{p, sort.Search(len(ranges), func(i int) bool { return uint64(ranges[i].End) > p.base+low })}
}

// lead proves that head is right for the pcs from at to end, less base: for each row that the table
// has there. Pcs ascend from call to call.
func (w *rangeWalk) lead(head int32, pc, end uint64) error {
	p, ranges := w.p, w.p.table.Ranges
	for pc, end = pc+p.base, end+p.base; pc < end; {
		for w.next < len(ranges) && uint64(ranges[w.next].End) <= pc {
			w.next++
		}
		r := &ranges[w.next]
		row, until := noRow, min(end, uint64(r.Start)) // row and until: what the table says from at on, and where that ends
		if uint64(r.Start) <= pc {
			row, until = int32(r.Row), min(end, uint64(r.End))
		}
		if h := &p.heads.list[head]; !h.hasRow || h.row != row {
			if err := p.leads(head, row); err != nil {
				return fmt.Errorf("pc %#x: %w", pc, err)
			}
		}
		pc = until
	}
	return nil
}

// packedTable is what a packed lookup reads. Entry i of a table of pages is an offset of two bytes at entries + 2*i;
// the record is so far behind the base at bases + 4*(i>>groupBits), counted from the table's from, modulo 2^32.
type packedTable struct {
	entries, bases, from uint64
	groupBits            uint
	slots                uint64 // the head of id 0; each has 16 bytes
}

// shortKeys is the highest first byte of a short record, of as many keys; in a long one it is the number of keys and
// shortKeys+1.
const shortKeys = 16

// packedEntries returns a function that gives the offsets of the records of count pages from first on.
func (p *lookupProof) packedEntries(tab pageTable, first, count uint64) (func(page uint64) (uint32, error), error) {
	number := tab.first + first
	if number >= 1<<32 || count > 1<<32-number {
		return nil, fmt.Errorf("entries of a page table from %#x on", number)
	}
	entries := p.im.at(tab.packed.entries+2*number, 2*count)
	if entries == nil {
		return nil, fmt.Errorf("a page table of %d entries at %#x is not in the data", count, tab.packed.entries+2*number)
	}
	return func(page uint64) (uint32, error) {
		addr := tab.packed.bases + 4*((number+page)>>tab.packed.groupBits)
		base := p.im.at(addr, 4)
		if base == nil {
			return 0, fmt.Errorf("a base at %#x is not in the data", addr)
		}
		return le.Uint32(base) + uint32(le.Uint16(entries[2*page:])), nil
	}, nil
}
