package mapped

import (
	"slices"
	"strings"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/unwind"
)

// Moved returns the file whose code lies in memory that is no file's, at its own place, and the offset of the mapping
// list[i] in it; nil: there is none. Programs move their code into huge pages: node --use-largepages, PHP's
// huge_code_pages, iodlr, BOLT's --hugify. The mappings next to it tell which file it was, and its bytes whether it is.
// list ascends.
func Moved(list []procfs.Mapping, i int, object func(*procfs.Mapping) *unwind.Object,
	read func(addr uint64, b []byte) int) (*unwind.Object, uint64) {
	named := func(m procfs.Mapping) bool { return strings.HasPrefix(m.Name, "/") && !strings.HasPrefix(m.Name, "//") }
	const near = 16 // mappings on each side
	var next []*procfs.Mapping
	for k := i - 1; k >= max(0, i-near) && len(next) == 0; k-- {
		if named(list[k]) {
			next = append(next, &list[k])
		}
	}
	if k := slices.IndexFunc(list[i+1:min(len(list), i+near)], named); k >= 0 {
		next = append(next, &list[i+1+k])
	}
	for _, n := range next {
		o := object(n)
		bias, ok := o.Bias(&unwind.Mapping{Start: n.Start, End: n.End, Offset: n.Offset, Object: o})
		if offset, size := o.CodeAt(list[i].Start - bias); ok && size > 0 && Holds(&list[i], o, offset, size, read) {
			return o, offset
		}
	}
	return nil, 0
}

// Holds reports whether memory holds an object's code, which has size bytes from an offset in the file on. It compares
// pages that are spread over it: see procfs.Mapping.Compare.
func Holds(m *procfs.Mapping, o *unwind.Object, offset, size uint64, read func(addr uint64, b []byte) int) bool {
	file, _, err := o.Open()
	if err != nil {
		return false
	}
	defer file.Close()
	whole := procfs.Mapping{Start: m.Start, End: min(m.End, m.Start+size), Offset: offset}
	return whole.Compare(file, read) == procfs.Equal
}
