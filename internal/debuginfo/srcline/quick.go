package srcline

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"
	"strings"
)

// quick finds the unit of an address by .debug_aranges. This saves inflating all of a
// compressed .debug_info for the index. The unit's entry must confirm what quick finds;
// for other addresses there is the index.
type quick struct {
	list []arange
	plt  []span // procedure linkage tables, which no unit covers
}

// arange is an entry of .debug_aranges.
type arange struct {
	span
	off uint64 // of the unit
}

// newQuick returns nil if there is no .debug_aranges, or units overlap in it. plt is as linkageTables returns it.
func newQuick(s *sections, plt []span) *quick {
	q := &quick{plt: plt}
	s.readAranges(func(off uint64, sp span) { q.list = append(q.list, arange{sp, off}) })
	slices.SortFunc(q.list, func(a, b arange) int { return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(a.off, b.off)) })
	// Entries of one unit may overlap; where two units do, the table is not to be trusted.
	for i := 1; i < len(q.list); i++ {
		if a, b := &q.list[i-1], &q.list[i]; a.hi > b.lo && a.off != b.off {
			return nil
		}
	}
	if len(q.list) == 0 {
		return nil
	}
	return q
}

// linkageTables returns the addresses of the PLT sections, which the linker makes.
func linkageTables(f *elf.File) (list []span) {
	for _, sec := range f.Sections {
		if strings.HasPrefix(sec.Name, ".plt") && sec.Flags&elf.SHF_EXECINSTR != 0 {
			list = append(list, span{sec.Addr, sec.Addr + sec.Size})
		}
	}
	return list
}

// unit returns the unit of an address; nil with found if no unit covers it. Without found,
// ask the index.
func (q *quick) unit(s *sections, addr uint64) (u *unit, found bool) {
	if q == nil {
		return nil, false
	}
	has := func(sp span) bool { return sp.has(addr) }
	if slices.ContainsFunc(q.plt, has) {
		return nil, true
	}
	// The last entry that begins at or below addr.
	i := sort.Search(len(q.list), func(i int) bool { return q.list[i].lo > addr })
	if i == 0 || !q.list[i-1].has(addr) {
		return nil, false
	}
	off := q.list[i-1].off
	const header = 24        // the longest up to the entries, but for what units with an id have
	u = s.find(off + header) // an offset inside the unit's entries, not its header
	if u == nil || u.off != off {
		return nil, false // .debug_aranges may name a unit that is not there
	}
	t, err := u.open()
	// Only a plain unit of a compiler: others need the index.
	if err != nil || t.dwoName.form != 0 || t.tag != tagCompileUnit {
		return nil, false
	}
	unsaid := t.ranges.form == 0 && t.high.form == 0 // see adopt
	if !unsaid && !slices.ContainsFunc(u.spans(nil, t.low, t.high, t.ranges), has) {
		return nil, false
	}
	return u, true
}
