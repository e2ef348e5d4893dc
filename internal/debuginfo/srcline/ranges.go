package srcline

// span is a range of addresses, [lo, hi).
type span struct{ lo, hi uint64 }

// has reports whether an address lies in the span.
func (s span) has(addr uint64) bool { return addr >= s.lo && addr < s.hi }

// live reports whether a span can have code. Linkers set the addresses of discarded
// functions to zero, or to the highest addresses.
func (s span) live() bool { return s.lo != 0 && s.lo < s.hi && s.lo < ^uint64(1) }

// spans returns the addresses of an entry with these attributes. An absent attribute has
// the form 0.
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

// rangeList reads a list of .debug_ranges or .debug_rnglists.
func (u *unit) rangeList(dst []span, v value) []span {
	if u.version < 5 {
		return u.oldRanges(dst, v.u+u.rangesBase)
	}
	off := v.u
	// An index leads through the table of offsets to the list.
	if v.form == formRnglistx {
		size := uint64(4)
		if u.wide {
			size = 8
		}
		c := cursor{b: u.sec.rnglists, off: min(u.rnglistsBase, uint64(len(u.sec.rnglists)))}
		if v.u > uint64(len(c.b)) {
			return dst
		}
		c.skip(v.u * size)
		off = u.rnglistsBase + c.offset(u.wide)
		if c.bad {
			return dst
		}
	}
	return u.newRanges(dst, off)
}

// oldRanges reads pairs of offsets from a base (DWARF 4, 2.17.3).
func (u *unit) oldRanges(dst []span, off uint64) []span {
	c := cursor{b: u.ranges, off: min(off, uint64(len(u.ranges)))}
	base := u.low
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

// newRanges reads a list of DWARF 5, 7.25.
func (u *unit) newRanges(dst []span, off uint64) []span {
	const (
		endOfList    = 0
		baseAddressx = 1
		startxEndx   = 2
		startxLength = 3
		offsetPair   = 4
		baseAddress  = 5
		startEnd     = 6
		startLength  = 7
	)
	c := cursor{b: u.sec.rnglists, off: min(off, uint64(len(u.sec.rnglists)))}
	base := u.low
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
		if s.live() && !c.bad {
			dst = append(dst, s)
		}
	}
	return dst
}
