package srcline

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
)

// This file reads unit headers and root entries. Headers are parsed in order, since each says where the next one is;
// the rest of a unit is read when an address or a reference leads into it.

// unit is a unit of .debug_info (DWARF 5, 7.5.1).
type unit struct {
	format
	sec       *sections
	off, end  uint64 // in .debug_info: from its length field to the first byte past it
	entries   uint64 // where the first entry is
	abbrevOff uint64 // in .debug_abbrev
	dwoID     uint64 // of split units; 0: none

	opened sync.Once
	root   root        // set by open, from the unit's entry
	begun  atomic.Bool // reading functions and lines at the same time: see Info.lookup

	// Each part is parsed on first use.
	mu     sync.Mutex // of funcs
	funcs  *funcTable
	lineMu sync.Mutex
	lines  *lineTable

	scopeMu sync.Mutex
	scopes  []scope
}

// root is what a unit's first entry says, and the sections that its offsets are in.
type root struct {
	low            uint64 // first address of the unit, the base of range lists
	addr           []byte // .debug_addr; of a .dwo, the object's
	addrBase       uint64 // where the unit's part begins, in the section of the name
	strOffsetsBase uint64 // DW_AT_str_offsets_base
	rnglistsBase   uint64 // DW_AT_rnglists_base
	rangesBase     uint64 // in a .dwo of DWARF 4
	ranges         []byte // .debug_ranges
	language       uint64 // DW_AT_language
}

// Unit types: DWARF 5, table 7.2.
const (
	utCompile      = 1 // ordinary
	utType         = 2 // one type
	utPartial      = 3 // imported by others
	utSkeleton     = 4 // in the object; the rest is in a .dwo
	utSplitCompile = 5 // in a .dwo: functions
	utSplitType    = 6 // in a .dwo: one type
)

// toEnd is beyond every offset.
const toEnd = ^uint64(0)

// unitList returns the units met so far.
func (s *sections) unitList() []*unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Full capacity: an append of another goroutine makes a copy.
	return s.index.units[:len(s.index.units):len(s.index.units)]
}

// parseUnits reads the headers of all units up to the one that the offset upTo of
// .debug_info lies in.
func (s *sections) parseUnits(upTo uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The first error ends parsing: without a length, the next header is not found.
	for s.index.unitsErr == nil && s.index.parsed < uint64(len(s.info)) && s.index.parsed <= upTo {
		s.index.unitsErr = s.parseUnit()
	}
	return s.index.unitsErr
}

// parseUnit reads the next header.
func (s *sections) parseUnit() error {
	const longest = 40 // of the headers
	s.packed.info.upTo(s.index.parsed + longest)
	c := cursor{b: s.info, off: s.index.parsed}
	// Values for the units of this file; openDwo replaces them.
	u := &unit{sec: s, off: c.off, root: root{addr: s.addr, ranges: s.ranges}}
	n, wide := c.initialLength()
	if c.bad || n > uint64(len(s.info))-c.off {
		return fmt.Errorf("unit at %#x of .debug_info: its length %#x goes beyond the end", u.off, n)
	}
	u.wide, u.end = wide, c.off+n
	code, err := u.header(&c)
	if err != nil {
		return fmt.Errorf("unit at %#x of .debug_info: %w", u.off, err)
	}
	// Units without code are passed over.
	if code {
		s.index.units = append(s.index.units, u)
	}
	s.index.parsed = u.end
	return nil
}

// data is .debug_info up to the end of the unit.
func (u *unit) data() []byte {
	u.sec.packed.info.upTo(u.end)
	return u.sec.info[:u.end]
}

// header reads what follows the length; false: nothing of it is needed.
func (u *unit) header(c *cursor) (bool, error) {
	u.version = c.u16()
	if u.version < 2 || u.version > 5 {
		return false, fmt.Errorf("DWARF version %d", u.version)
	}
	// Versions 2 to 4 have no type of unit, and another order of fields.
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
	case utType, utSplitType: // they have no code
		// DWARF 5 has type units in .debug_info.
		signature := c.u64()
		off := c.offset(u.wide)
		if !c.bad && addrSize == 8 {
			u.entries = c.off
			u.sec.addType(signature, entryKey{u, u.off + off})
		}
		return false, nil
	default:
		return false, nil
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

// find returns the unit that an offset lies in, opened.
func (s *sections) find(off uint64) *unit {
	s.parseUnits(off) // its error is reported elsewhere
	s.mu.Lock()
	// The first unit that ends behind off.
	i := sort.Search(len(s.index.units), func(i int) bool { return s.index.units[i].end > off })
	var u *unit
	// An offset in a header is no entry.
	if i < len(s.index.units) && off >= s.index.units[i].entries {
		u = s.index.units[i]
	}
	s.mu.Unlock()
	if u != nil {
		u.ready()
	}
	return u
}

// top is what the entry of a unit says.
type top struct {
	tag               uint16
	low, high, ranges value // DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges
	stmtList          value // DW_AT_stmt_list; a form of 0 says that the attribute is absent
	compDir, dwoName  value
	dwoID             uint64
	strBase, rngBase  value
	rangesBase        uint64 // for the .dwo file only
	addrBase          uint64
	language          uint64
}

// top reads the entry of the unit, which it does not keep: see take. A unit without one has the tag 0.
func (u *unit) top() (t top, err error) {
	c := cursor{b: u.data(), off: u.entries}
	code := c.uleb()
	if code == 0 {
		return t, nil // an empty unit
	}
	// Only this declaration is read: opening all units should be cheap.
	a := u.sec.parseAbbrevs(u.abbrevOff, u.format, wanted{only: code}).find(code)
	if a == nil {
		return t, fmt.Errorf("unit at %#x of .debug_info: no abbreviation %d", u.off, code)
	}
	t.tag, t.dwoID = a.tag, u.dwoID
	for _, attribute := range a.attrs {
		v := read(&c, attribute, u.format)
		switch attribute.name {
		case atLanguage:
			t.language = v.u
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
			t.addrBase = v.u
		case atGNURangesBase:
			t.rangesBase = v.u
		}
	}
	if c.bad {
		return t, fmt.Errorf("unit at %#x of .debug_info: its entry goes beyond the end", u.off)
	}
	return t, nil
}

// open reads the unit's entry, and takes from it what the other entries need. A unit whose entry cannot be read stays
// without bases.
func (u *unit) open() (top, error) {
	t, err := u.top()
	if err == nil {
		u.opened.Do(func() { u.take(t) })
	}
	return t, err
}

// ready parses the unit on first use.
func (u *unit) ready() {
	u.opened.Do(func() {
		if t, err := u.top(); err == nil {
			u.take(t)
		}
	})
}

// take sets what values of other entries depend on. Low comes last, as it may be an index of an
// address.
func (u *unit) take(t top) {
	u.root.addrBase, u.root.strOffsetsBase, u.root.rnglistsBase, u.root.language = t.addrBase, t.strBase.u, t.rngBase.u,
		t.language
	u.root.low, _ = u.address(t.low)
}
