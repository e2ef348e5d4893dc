package unwind

import (
	"path"
	"slices"
	"sort"
	"strings"
)

// Mapping is the executable mapping of a part of an object's file: run-time
// addresses [Start, End), with the file's bytes from Offset on.
type Mapping struct {
	Start, End uint64
	Offset     uint64 // file offset of Start
	Object     *Object
}

// FileOffset returns the file offset of the byte at a run-time address.
func (m *Mapping) FileOffset(addr uint64) uint64 { return addr - m.Start + m.Offset }

// Maps holds the executable mappings of a process at one moment. It is
// immutable; the zero value is an empty address space.
type Maps struct {
	list      []Mapping // ascending, disjoint
	generated Generated // nil: nothing is known of code that lies in no file
}

// Find returns the mapping that holds the run-time address addr, or nil.
func (m *Maps) Find(addr uint64) *Mapping {
	i := sort.Search(len(m.list), func(i int) bool { return m.list[i].End > addr })
	if i < len(m.list) && m.list[i].Start <= addr {
		return &m.list[i]
	}
	return nil
}

// All returns the mappings, ascending. The caller must not change them.
func (m *Maps) All() []Mapping { return m.list }

// Name returns the name of a thread that the kernel calls comm: where that is the loader's, as it is after a command
// such as ld.so ./program, the program's.
func (m *Maps) Name(comm string) string {
	const most = 15 // bytes, TASK_COMM_LEN of the kernel without the last; gcore has one more
	o := m.program()
	if o == nil || comm != path.Base(o.file.interp) &&
		(len(comm) < most || !strings.HasPrefix(path.Base(o.file.interp), comm)) {
		return comm
	}
	name := path.Base(o.Name)
	return name[:min(len(name), most)]
}

// program returns the first program that is mapped, or nil.
func (m *Maps) program() *Object {
	for _, x := range m.list {
		if x.Object.find(); x.Object.file.interp != "" {
			return x.Object
		}
	}
	return nil
}

// insert cuts [start, end) out of the mappings, and puts add there if it is not
// nil; list is changed in place.
func insert(list []Mapping, start, end uint64, add *Mapping) []Mapping {
	if start >= end {
		return list
	}
	// A mapping that the range cuts leaves a part on the left, on the right, or both: at most three
	// mappings take the place of those from first to last.
	first := sort.Search(len(list), func(i int) bool { return list[i].End > start })
	last := first
	var middle [3]Mapping
	n := 0
	put := func(m Mapping) { middle[n] = m; n++ }
	if first < len(list) && list[first].Start < start {
		left := list[first]
		left.End = start
		put(left)
	}
	if add != nil {
		put(*add)
	}
	for ; last < len(list) && list[last].Start < end; last++ {
		if list[last].End > end {
			right := list[last]
			right.Offset += end - right.Start
			right.Start = end
			put(right)
		}
	}
	return slices.Replace(list, first, last, middle[:n]...)
}
