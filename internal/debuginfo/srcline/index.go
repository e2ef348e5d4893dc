package srcline

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// This file finds the unit of an address. Compilers give a unit's addresses in its root entry; the table that is made
// of them is searched from the right, as units are rarely nested.

// part is a range of addresses that a unit covers.
type part struct {
	span
	unit *unit
	top  uint64 // the highest end of this part and those before it
}

// index holds parts, ordered by their first address.
type index []part

// buildIndex opens the units and asks each for its addresses: DW_AT_ranges or
// DW_AT_low_pc and DW_AT_high_pc, or else .debug_aranges, or else its functions.
// After an error, the index has what was found before it.
func (s *sections) buildIndex() (idx index, skeletons map[*unit]top, first error) {
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	note(s.parseUnits(toEnd))
	skeletons = make(map[*unit]top)
	var spans []span
	var orphans []*unit
	for _, u := range s.index.units {
		t, err := u.open()
		if err != nil {
			note(err)
			continue
		}
		if t.tag == tagPartialUnit || t.tag == 0 {
			continue
		}
		if t.dwoName.form != 0 {
			skeletons[u] = t
		}
		spans = u.spans(spans[:0], t.low, t.high, t.ranges)
		// Lists may share entries, so their total can exceed the file many times; see walk.
		if len(idx)+len(spans) > len(s.ranges)+len(s.rnglists)+len(s.info) {
			note(fmt.Errorf("unit at %#x of .debug_info: too many ranges", u.off))
			break
		}
		for _, sp := range spans {
			idx = append(idx, part{span: sp, unit: u})
		}
		// an empty list of ranges is an answer, no ranges is none
		if len(spans) == 0 && t.ranges.form == 0 && t.high.form == 0 {
			orphans = append(orphans, u)
		}
	}
	if len(orphans) > 0 {
		idx = append(idx, s.adopt(orphans, note)...)
	}
	slices.SortFunc(idx, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(b.hi, a.hi), cmp.Compare(a.unit.off, b.unit.off))
	})
	var top uint64
	// top lets a search from the right stop: no part further left reaches the address.
	for i := range idx {
		top = max(top, idx[i].hi)
		idx[i].top = top
	}
	return idx, skeletons, first
}

// adopt finds the addresses of units whose entries give none: old assemblers and compilers leave them to
// .debug_aranges, or to functions.
func (s *sections) adopt(orphans []*unit, note func(error)) (idx index) {
	listed := s.arangesByUnit()
	for _, u := range orphans {
		spans := listed[u.off]
		if len(spans) == 0 {
			t := &funcTable{}
			note(u.parseFuncs(t))
			for i, fn := range t.which {
				if fn != none && i+1 < len(t.starts) {
					spans = append(spans, span{t.starts[i], t.starts[i+1]})
				}
			}
		}
		for _, sp := range spans {
			idx = append(idx, part{span: sp, unit: u})
		}
	}
	return idx
}

// arangesByUnit returns what .debug_aranges says, by unit.
func (s *sections) arangesByUnit() map[uint64][]span {
	all := make(map[uint64][]span)
	s.readAranges(func(off uint64, sp span) { all[off] = append(all[off], sp) })
	return all
}

// readAranges reads .debug_aranges (DWARF 5, 6.1.2), and calls f with each range and the offset of its unit. Sets of
// another address size, or with segments, are passed over; damage ends it.
func (s *sections) readAranges(f func(off uint64, sp span)) {
	c := cursor{b: s.aranges}
	for c.off < uint64(len(s.aranges)) && !c.bad {
		begin := c.off
		n, wide := c.initialLength()
		if c.bad || n > uint64(len(s.aranges))-c.off {
			break
		}
		end := c.off + n
		c.skip(2) // version
		off := c.offset(wide)
		addrSize, segSize := c.u8(), c.u8()
		if addrSize == 8 && segSize == 0 {
			// Tuples are aligned to their size, counted from the table's beginning.
			const tuple = 16
			c.off = begin + (c.off-begin+tuple-1)/tuple*tuple
			for c.off+tuple <= end {
				lo := c.u64()
				if sp := (span{lo, lo + c.u64()}); sp.live() {
					f(off, sp)
				}
			}
		}
		c.off = end
	}
}

// units calls f for the units that may hold addr, the smallest span first,
// until f says that it is done.
func (idx index) units(addr uint64, f func(*unit) bool) {
	i := sort.Search(len(idx), func(i int) bool { return idx[i].lo > addr })
	for i--; i >= 0 && idx[i].top > addr; i-- {
		if addr < idx[i].hi && f(idx[i].unit) {
			return
		}
	}
}
