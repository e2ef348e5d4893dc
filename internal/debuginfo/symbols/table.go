// Package symbols names addresses: from the symbol tables of ELF objects and
// their separate debug files, from /proc/kallsyms, and from the perf-PID.map
// files that run-time compilers write.
package symbols

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"unique"

	"github.com/ehasm/ehasm/internal/files/radix"
)

// Symbol is a named range [Start, End) of addresses.
type Symbol struct {
	Start, End uint64
	Name       string // as the file has it
	Module     string // of a kernel module's symbol
	rank       uint8  // bits; smaller is better
}

// Bits of Symbol.rank.
const (
	rankLocal = 1 << iota
	rankWeak
	rankEmpty
)

// Table holds symbols by address. It does not change.
type Table struct{ list []entry }

// entry is a Symbol in less memory: large programs have a hundred thousand.
type entry struct {
	start, end uint64 // [start, end)
	name       string
}

// compact returns a table of symbols. It copies their names, which may be a small part of what a file has, into memory without
// gaps, unless they are longer than usual: those of a hostile file may all be parts of one long string.
func compact(list []Symbol) *Table {
	const usual = 16 << 20 // bytes of all names
	total := 0
	for i := range list {
		if total += len(list[i].Name); total > usual {
			break
		}
	}
	var text strings.Builder
	if total <= usual {
		text.Grow(total)
	}
	t := &Table{list: make([]entry, len(list))}
	for i := range list {
		s := &list[i]
		t.list[i] = entry{s.Start, s.End, s.Name}
		if total <= usual {
			from := text.Len()
			text.WriteString(s.Name)
			t.list[i].name = text.String()[from:]
		}
	}
	return t
}

// newTable sorts symbols. Of several at one address the best is kept; one
// without size extends to the next. Both is what perf does, in
// symbols__fixup_duplicate and symbols__fixup_end of tools/perf/util/symbol.c.
func newTable(list []Symbol) *Table {
	for i := range list {
		if s := &list[i]; s.End <= s.Start {
			s.rank |= rankEmpty
			s.End = s.Start
		}
	}
	radix.Sort(list, func(s *Symbol) uint64 { return s.Start })
	kept := list[:0]
	for i := range list {
		switch last := len(kept) - 1; {
		case last < 0 || kept[last].Start != list[i].Start:
			kept = append(kept, list[i])
		case better(&list[i], &kept[last]) < 0:
			kept[last] = list[i]
		}
	}
	return extend(kept)
}

// extend makes symbols without size end where the next one begins. One inside a symbol
// with a size is dropped: it is a label in that function.
func extend(list []Symbol) *Table {
	kept := list[:0]
	covered := uint64(0) // the end of what symbols with a size hold so far
	for i := range list {
		s := list[i]
		if s.rank&rankEmpty == 0 {
			covered = max(covered, s.End)
		} else {
			if s.Start < covered {
				continue
			}
			s.End = s.Start + 4096 // bytes, for the last symbol, whose end is not known
			if i+1 < len(list) {
				s.End = list[i+1].Start
			}
		}
		kept = append(kept, s)
	}
	return compact(kept)
}

// better orders aliases: sized ones first, then those that are not weak, then
// global ones, then those with fewer leading underscores, then longer names.
func better(a, b *Symbol) int {
	const most = 64 // of a hostile name, there may be millions
	underscores := func(s string) int { s = s[:min(len(s), most)]; return len(s) - len(strings.TrimLeft(s, "_")) }
	return cmp.Or(
		cmp.Compare(a.rank, b.rank),
		cmp.Compare(underscores(a.Name), underscores(b.Name)),
		cmp.Compare(len(b.Name), len(a.Name)),
	)
}

// Find returns the symbol that holds addr, or nil. If several do, it returns
// the one that starts last.
func (t *Table) Find(addr uint64) *Symbol {
	if t == nil {
		return nil
	}
	i := sort.Search(len(t.list), func(i int) bool { return t.list[i].start > addr })
	const nesting = 8
	for k := i - 1; k >= 0 && k >= i-nesting; k-- {
		if e := &t.list[k]; addr < e.end {
			return &Symbol{Start: e.start, End: e.end, Name: e.name}
		}
	}
	return nil
}

// Only returns a table of those symbols that Find returns for the addresses. It keeps nothing of t alive.
func (t *Table) Only(addrs []uint64) *Table {
	var few []Symbol
	for _, addr := range addrs {
		if s := t.Find(addr); s != nil {
			few = append(few, *s)
		}
	}
	slices.SortFunc(few, func(a, b Symbol) int { return cmp.Compare(a.Start, b.Start) }) // each start is there once in t
	few = slices.CompactFunc(few, func(a, b Symbol) bool { return a.Start == b.Start })
	only := &Table{list: make([]entry, len(few))}
	for i, s := range few {
		only.list[i] = entry{s.Start, s.End, unique.Make(s.Name).Value()} // programs have many in common
	}
	return only
}

// Len returns the number of symbols.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.list)
}
