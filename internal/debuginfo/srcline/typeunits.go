package srcline

import "fmt"

// typeUnits makes sections of .debug_types, which DWARF 4 puts types with a signature in: all
// but the units are those of s. The caller has s.mu.
func (s *sections) typeUnits() *sections {
	// Type units have the abbreviations and strings of .debug_info.
	t := &sections{owner: s, contents: contents{
		info: s.types, abbrev: s.abbrev, str: s.str, lineStr: s.lineStr, strOffsets: s.strOffsets, addr: s.addr,
	}}
	t.packed.abbrev = s.packed.abbrev
	return t
}

// parseTypes reads the headers of .debug_types (DWARF 4, 7.5.1.2), once. The caller has s.mu.
func (s *sections) parseTypes() {
	if s.index.typed || len(s.types) == 0 {
		return
	}
	s.index.typed = true
	t := s.typeUnits()
	// Header by header; the entries are read when a type is asked for.
	for c := (cursor{b: t.info}); c.off < uint64(len(t.info)); {
		begin := c.off
		n, wide := c.initialLength()
		if c.bad || n > uint64(len(t.info))-c.off {
			s.index.typesErr = fmt.Errorf("unit at %#x of .debug_types: its length %#x goes beyond the end", begin, n)
			return
		}
		u := &unit{sec: t, off: begin, end: c.off + n}
		u.wide, u.version = wide, c.u16()
		u.abbrevOff = c.offset(wide)
		addrSize := c.u8()
		// The signature, and where the type's entry is, from the unit's beginning.
		signature, offset := c.u64(), c.offset(wide)
		u.entries = c.off
		if c.bad || u.version != 4 || addrSize != 8 || c.off > u.end {
			s.index.typesErr = fmt.Errorf("unit at %#x of .debug_types: not a type unit of DWARF 4", begin)
			return
		}
		s.addType(signature, entryKey{u, begin + offset})
		c.off = u.end
	}
}

// typesError says why types of .debug_types are missing.
func (s *sections) typesError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.typesErr
}
