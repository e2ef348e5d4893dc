package srcline

import "fmt"

// Attributes of an inlined function's entry point: DWARF 5, 2.18, and GCC's number of the view at its
// address.
// As DW_AT_low_pc, an address, or a constant: bytes from the first address.
const (
	atEntryPC      = 0x52 // of GCC: the number of the row at that address
	atGNUEntryView = 0x2138
)

// entryPoint is a row at which an inlined function begins: instructions moved before it belong to
// the caller.
type entryPoint struct {
	addr uint64 // address of the row
	view int    // its number among the rows of that address, from 0 on
}

// maxView bounds the view numbers that are accepted; a unit of sqlite has up to 60.
const maxView = 1 << 20

// entryPoints returns the entry points of the unit's inlined functions that say at which view they are,
// outer functions before those that are inlined into them. What is found before an error is
// returned with it.
func (u *unit) entryPoints() (map[entryPoint][]ref, error) {
	abbrevs := u.sec.table(u)
	c := cursor{b: u.data(), off: u.entries}
	all := make(map[entryPoint][]ref)
	for c.off < u.end && !c.bad {
		at := c.off
		code := c.uleb()
		// A zero entry ends a list of children; depth is of no interest here.
		if code == 0 {
			continue
		}
		a := abbrevs.find(code)
		if a == nil {
			return all, fmt.Errorf("entry at %#x of .debug_info: no abbreviation %d", at, code)
		}
		// All other entries are skipped, their children are not.
		if a.tag != tagInlinedSubroutine {
			skipEntry(&c, a, u.format)
			continue
		}
		var low, ranges, entry, view value
		for _, attr := range a.attrs {
			v := read(&c, attr, u.format)
			switch attr.name {
			case atLowPC:
				low = v
			case atRanges:
				ranges = v
			case atEntryPC:
				entry = v
			case atGNUEntryView:
				view = v
			}
		}
		if c.bad || view.form == 0 || view.u > maxView { // no view: the entry is found by its address alone
			continue
		}
		if addr, ok := u.entryPC(entry, low, ranges); ok && addr != 0 { // 0: discarded by the linker
			p := entryPoint{addr, int(view.u)}
			all[p] = append(all[p], ref(at))
		}
	}
	if c.bad {
		return all, fmt.Errorf("unit at %#x of .debug_info: an entry goes beyond the end", u.off)
	}
	return all, nil
}

// entryPC returns the address of DW_AT_entry_pc, which may be an offset from the first address; without it,
// the first address.
func (u *unit) entryPC(entry, low, ranges value) (uint64, bool) {
	if addr, ok := u.address(entry); ok {
		return addr, true
	}
	// Without DW_AT_low_pc the first range counts.
	base, ok := u.address(low)
	if !ok {
		spans := u.spans(nil, low, value{}, ranges)
		if len(spans) == 0 {
			return 0, false
		}
		base = spans[0].lo
	}
	// A constant is an offset.
	if number(entry.form) {
		base += entry.u
	}
	return base, true
}
