package procfs

import (
	"io"
)

// Comparison is what comparing memory with a file has found.
type Comparison int

// The values of Comparison.
const (
	NotCompared Comparison = iota // the memory or the file cannot be read
	Equal
	Different
)

// Compare compares the memory of a mapping with the bytes of a file at its offset, in pages that are spread over it: a
// library of 100 MB would take as long to read as all the rest of a look at a process. read reads memory, and returns
// how many bytes it could. Where a debugger or a probe has set a breakpoint, memory may differ.
func (m *Mapping) Compare(file io.ReaderAt, read func(addr uint64, b []byte) int) (c Comparison) {
	const page, most = 4096, 64 // bytes; pages
	const breakpoint = 0xcc     // int3
	step := max(page, (m.End-m.Start)/most&^(page-1))
	var memory, want [page]byte
	for addr, left := m.Start, m.End-m.Start; left > 0; addr, left = addr+step, left-min(left, step) {
		n := read(addr, memory[:min(page, left)])
		have, _ := file.ReadAt(want[:n], int64(addr-m.Start+m.Offset))
		clear(want[have:n]) // the kernel fills the last page with zeros
		for i := range n {
			if memory[i] != want[i] && memory[i] != breakpoint {
				return Different
			}
		}
		if n > 0 && have > 0 {
			c = Equal
		}
	}
	return c
}
