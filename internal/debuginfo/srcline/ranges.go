package srcline

// This file reads the addresses of entries: a pair, or a list of .debug_ranges or .debug_rnglists. Linkers that drop a
// function leave its debug information, with addresses that no code has.

// span is a range of addresses, [lo, hi).
type span struct{ lo, hi uint64 }

// has reports whether an address lies in the span.
func (s span) has(addr uint64) bool { return addr >= s.lo && addr < s.hi }

// live reports whether a span can have code. Linkers set the addresses of discarded
// functions to zero, or to the highest addresses.
func (s span) live() bool { return s.lo != 0 && s.lo < s.hi && s.lo < ^uint64(1) }

// spans appends the addresses of an entry with these attributes to dst. An absent attribute has the form 0. Where
// there are ranges, they count alone: DW_AT_low_pc of a unit is then the base of its lists (DWARF 5, 3.1.1).
func (u *unit) spans(dst []span, low, high, ranges value) []span {
	if ranges.form != 0 {
		return u.rangeList(dst, ranges)
	}
	lo, ok := u.address(low)
	if !ok || high.form == 0 {
		return dst
	}
	hi, absolute := u.address(high)
	if !absolute {
		hi = lo + high.u // a constant: the size
	}
	if s := (span{lo, hi}); s.live() {
		dst = append(dst, s)
	}
	return dst
}

// rangeList appends a list of .debug_ranges or .debug_rnglists, as far as it can be read.
func (u *unit) rangeList(dst []span, v value) []span {
	// Lists of DWARF 2 to 4 are in .debug_ranges.
	if u.version < 5 {
		return u.oldRanges(dst, v.u+u.root.rangesBase)
	}
	off := v.u
	// An index leads through the table of offsets to the list.
	if v.form == formRnglistx {
		size := uint64(4)
		if u.wide {
			size = 8
		}
		// The table of offsets lies at the unit's base, after the section's header.
		c := cursor{b: u.sec.rnglists, off: min(u.root.rnglistsBase, uint64(len(u.sec.rnglists)))}
		if v.u > uint64(len(c.b)) {
			return dst
		}
		c.skip(v.u * size)
		off = u.root.rnglistsBase + c.offset(u.wide)
		if c.bad {
			return dst
		}
	}
	return u.newRanges(dst, off)
}

// oldRanges reads pairs of offsets from a base (DWARF 4, 2.17.3).
func (u *unit) oldRanges(dst []span, off uint64) []span {
	c := cursor{b: u.root.ranges, off: min(off, uint64(len(u.root.ranges)))}
	// Offsets are from the unit's first address until a base is selected.
	base := u.root.low
	for {
		lo, hi := c.u64(), c.u64()
		switch {
		case c.bad || lo == 0 && hi == 0:
			return dst
		case lo == ^uint64(0): // a base address selection: all ones, then the base
			base = hi
			continue
		}
		// Zero, after linking, is an offset from the base, or an address that
		// the linker discarded.
		if s := (span{base + lo, base + hi}); s.live() && lo < hi {
			dst = append(dst, s)
		}
	}
}

// newRanges reads a list of .debug_rnglists: DWARF 5, 7.25. An entry of an unknown kind has an unknown size, and ends
// it.
func (u *unit) newRanges(dst []span, off uint64) []span {
	const (
		endOfList    = 0 // DW_RLE_end_of_list
		baseAddressx = 1 // index of an address: the base from here on
		startxEndx   = 2 // indices of two addresses
		startxLength = 3 // index of an address, length
		offsetPair   = 4 // two offsets from the base
		baseAddress  = 5 // the base from here on
		startEnd     = 6 // two addresses
		startLength  = 7 // address, length
	)
	c := cursor{b: u.sec.rnglists, off: min(off, uint64(len(u.sec.rnglists)))}
	base := u.root.low
	for !c.bad {
		var s span
		switch c.u8() {
		case endOfList:
			return dst
		case baseAddressx:
			base, _ = u.indexed(c.uleb())
			continue
		case startxEndx:
			s.lo, _ = u.indexed(c.uleb())
			s.hi, _ = u.indexed(c.uleb())
		case startxLength:
			s.lo, _ = u.indexed(c.uleb())
			s.hi = s.lo + c.uleb()
		case offsetPair:
			s.lo, s.hi = base+c.uleb(), base+c.uleb()
		case baseAddress:
			base = c.u64()
			continue
		case startEnd:
			s.lo, s.hi = c.u64(), c.u64()
		case startLength:
			s.lo = c.u64()
			s.hi = s.lo + c.uleb()
		default:
			return dst
		}
		// What the linker discarded has no addresses.
		if s.live() && !c.bad {
			dst = append(dst, s)
		}
	}
	return dst
}
