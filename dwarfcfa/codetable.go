package dwarfcfa

import "sync/atomic"

// NewCodeTable returns the rows of a section that describes code of size bytes which lies in no file, and the address
// at which the section has that code: where its first FDE begins. It returns nil if the section has no FDE that can be
// read. The section is of a JIT_CODE_UNWINDING_INFO record (tools/perf/Documentation/jitdump-specification.txt).
func NewCodeTable(s *Section, size uint64) (t *LazyTable, start Addr) {
	found := false
	for e, err := range s.Entries() {
		if err == nil && e.FDE != nil && (!found || e.FDE.Start < start) {
			found, start = true, e.FDE.Start
		}
	}
	end := start + Addr(size)
	if !found || end <= start {
		return nil, 0
	}
	none := func() *lazySection { return nil }
	t = &LazyTable{code: codeImage{segments: []segment{{start, end}}}, more: none, made: none,
		recent: make([]atomic.Pointer[recentPC], 1)}
	t.section = newLazySection(newCFISource(s), t.code)
	return t, start
}
