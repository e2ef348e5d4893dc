// Package symbols names addresses: from the symbol tables of ELF objects and
// their separate debug files, from /proc/kallsyms, and from the perf-PID.map
// files that run-time compilers write.
package symbols

import (
	"cmp"
	"io"
	"math"
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
	inFile     uint32 // where the file's string table has the name, plus 1; 0: names are not read from there again
	rank       uint8  // bits; smaller is better
}

// Bits of Symbol.rank.
const (
	rankLocal = 1 << iota
	rankWeak
	rankEmpty
)

// Table holds symbols by address. It does not change.
type Table struct {
	list  []entry
	text  []string   // names that are kept in memory
	names *fileNames // the others; nil: there are none
	dialect
}

// entry is a Symbol in less memory: large programs have a hundred thousand.
type entry struct {
	start  uint64
	length uint32 // in bytes; a symbol of 4 GB and more ends there
	name   uint32 // with inText: its number in Table.text; else where the file's string table has it
}

// inText is a bit of entry.name. Every string table that is read is smaller.
const inText = 1 << 31

// compact returns a table of symbols, some of whose names may be in a file. list must be sorted.
func compact(list []Symbol, names *fileNames) *Table {
	t := &Table{list: make([]entry, len(list)), names: names}
	var kept []*Symbol // with names in memory
	for i := range list {
		s := &list[i]
		e := &t.list[i]
		e.start, e.length = s.Start, uint32(min(s.End-s.Start, math.MaxUint32))
		if names != nil && s.inFile > 0 {
			e.name = s.inFile - 1
		} else {
			e.name = uint32(len(kept)) | inText
			kept = append(kept, s)
		}
	}
	t.text = memoryNames(kept)
	return t
}

// nameOf returns the name of an entry; ok is false if it cannot be read any more.
func (t *Table) nameOf(e *entry) (name string, ok bool) {
	if e.name&inText != 0 {
		return t.text[e.name&^inText], true
	}
	name = t.names.get(e.name)
	return name, name != ""
}

// newTable sorts symbols. Of several at one address the best is kept; one
// without size extends to the next. Both is what perf does, in
// symbols__fixup_duplicate and symbols__fixup_end of tools/perf/util/symbol.c.
// names, which may be nil, is where symbols have their names that are not kept in memory.
func newTable(list []Symbol, names *fileNames) *Table {
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
	return compact(extend(kept), names)
}

// extend makes symbols without size end where the next one begins. One inside a symbol
// with a size is dropped: it is a label in that function.
func extend(list []Symbol) []Symbol {
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
	return kept
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
	// The symbol that starts last before addr may end before it, inside a larger one, as labels with a size in
	// assembler code do. More than a few such in a row are rare, and the search must end.
	const nesting = 8
	for k := i - 1; k >= 0 && k >= i-nesting; k-- {
		if e := &t.list[k]; addr-e.start < uint64(e.length) {
			name, ok := t.nameOf(e)
			if !ok {
				return nil
			}
			return &Symbol{Start: e.start, End: e.start + uint64(e.length), Name: name}
		}
	}
	return nil
}

// Only returns a table of those symbols that Find returns for the addresses. It keeps nothing of t alive: neither its
// file nor its list.
func (t *Table) Only(addrs []uint64) *Table {
	var few []Symbol
	for _, addr := range addrs {
		if s := t.Find(addr); s != nil {
			few = append(few, *s)
		}
	}
	slices.SortFunc(few, func(a, b Symbol) int { return cmp.Compare(a.Start, b.Start) }) // each start is there once in t
	few = slices.CompactFunc(few, func(a, b Symbol) bool { return a.Start == b.Start })
	// the names are copied: those of t are parts of one text, which they would keep alive
	only := &Table{list: make([]entry, len(few)), text: make([]string, len(few)),
		dialect: t.dialect}
	for i, s := range few {
		only.list[i] = entry{s.Start, uint32(s.End - s.Start), uint32(i) | inText}
		only.text[i] = unique.Make(s.Name).Value() // programs have many in common
	}
	return only
}

// Keeps reports whether the table reads names from a file.
func (t *Table) Keeps(file io.ReaderAt) bool {
	return t != nil && t.names != nil && io.ReaderAt(t.names.file) == file
}

// Len returns the number of symbols.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.list)
}
