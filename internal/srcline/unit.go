package srcline

import (
	"fmt"
	"sort"
	"sync"
)

// unit is a unit of .debug_info (DWARF 5, 7.5.1).
type unit struct {
	format
	sec       *sections
	off, end  uint64 // in .debug_info
	entries   uint64 // where the first entry is
	abbrevOff uint64
	skeleton  bool
	dwoID     uint64

	// Set from the unit's entry by open.
	low            uint64 // base of range lists
	addr           []byte // .debug_addr; of a .dwo, that of the object
	addrBase       uint64
	strOffsetsBase uint64
	rnglistsBase   uint64
	rangesBase     uint64 // in a .dwo of DWARF 4
	ranges         []byte // .debug_ranges

	mu    sync.Mutex
	funcs *funcTable
	lines *lineTable
}

// Unit types: DWARF 5, table 7.2.
const (
	utCompile      = 1
	utType         = 2
	utPartial      = 3
	utSkeleton     = 4
	utSplitCompile = 5
	utSplitType    = 6
)

// parseUnits reads the headers of all units.
func (s *sections) parseUnits() error {
	c := cursor{b: s.info}
	for c.off < uint64(len(s.info)) {
		u := &unit{sec: s, off: c.off, addr: s.addr, ranges: s.ranges}
		n, wide := c.initialLength()
		if c.bad || n > uint64(len(s.info))-c.off {
			return fmt.Errorf("unit at %#x of .debug_info: its length %#x goes beyond the end", u.off, n)
		}
		u.wide, u.end = wide, c.off+n
		code, err := u.header(&c)
		if err != nil {
			return fmt.Errorf("unit at %#x of .debug_info: %w", u.off, err)
		}
		if code {
			s.units = append(s.units, u)
		}
		c.off = u.end
	}
	return nil
}

// header reads what follows the length; false: nothing of it is needed.
func (u *unit) header(c *cursor) (bool, error) {
	u.version = c.u16()
	if u.version < 2 || u.version > 5 {
		return false, fmt.Errorf("DWARF version %d", u.version)
	}
	kind, addrSize := uint8(utCompile), uint8(0)
	if u.version >= 5 {
		kind, addrSize = c.u8(), c.u8()
		u.abbrevOff = c.offset(u.wide)
	} else {
		u.abbrevOff = c.offset(u.wide)
		addrSize = c.u8()
	}
	switch kind {
	case utCompile, utPartial:
	case utSkeleton, utSplitCompile:
		u.dwoID = c.u64()
		u.skeleton = kind == utSkeleton
	default:
		return false, nil // types have no code
	}
	if addrSize != 8 {
		return false, fmt.Errorf("addresses of %d bytes", addrSize)
	}
	if c.bad || c.off > u.end {
		return false, fmt.Errorf("too short")
	}
	u.entries = c.off
	return true, nil
}

// find returns the unit that an offset lies in.
func (s *sections) find(off uint64) *unit {
	i := sort.Search(len(s.units), func(i int) bool { return s.units[i].end > off })
	if i < len(s.units) && off >= s.units[i].entries {
		return s.units[i]
	}
	return nil
}

// top is what the entry of a unit says.
type top struct {
	tag               uint16
	children          bool
	low, high, ranges value
	stmtList          value
	compDir, dwoName  value
	name              value
	dwoID             uint64
	strBase, rngBase  value
	rangesBase        uint64 // for the .dwo file only
}

// top reads the entry of the unit.
func (u *unit) top() (t top, err error) {
	c := cursor{b: u.sec.info[:u.end], off: u.entries}
	code := c.uleb()
	if code == 0 {
		return t, nil // an empty unit
	}
	a := parseAbbrevs(u.sec.abbrev, u.abbrevOff, u.format, code).find(code)
	if a == nil {
		return t, fmt.Errorf("unit at %#x of .debug_info: no abbreviation %d", u.off, code)
	}
	t.tag, t.children, t.dwoID = a.tag, a.children, u.dwoID
	for _, at := range a.attrs {
		v := read(&c, at, u.format)
		switch at.name {
		case atName:
			t.name = v
		case atLowPC:
			t.low = v
		case atHighPC:
			t.high = v
		case atRanges:
			t.ranges = v
		case atStmtList:
			t.stmtList = v
		case atCompDir:
			t.compDir = v
		case atDwoName, atGNUDwoName:
			t.dwoName = v
		case atGNUDwoID:
			t.dwoID = v.u
		case atStrOffsetsBase:
			t.strBase = v
		case atRnglistsBase:
			t.rngBase = v
		case atAddrBase, atGNUAddrBase:
			u.addrBase = v.u
		case atGNURangesBase:
			t.rangesBase = v.u
		}
	}
	if c.bad {
		return t, fmt.Errorf("unit at %#x of .debug_info: its entry goes beyond the end", u.off)
	}
	return t, nil
}

// open takes from the unit's entry what its other entries need. It is called
// once, before the unit is shared.
func (u *unit) open() (top, error) {
	t, err := u.top()
	if err != nil {
		return t, err
	}
	u.strOffsetsBase, u.rnglistsBase = t.strBase.u, t.rngBase.u
	u.low, _ = u.address(t.low)
	return t, nil
}
