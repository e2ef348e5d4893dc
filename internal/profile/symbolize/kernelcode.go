package symbolize

import (
	"slices"
	"sort"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
)

// This file follows code that the kernel makes and removes while a recording goes on (PERF_RECORD_KSYMBOL): kallsyms
// has only what is there when it is read. It is for one goroutine; the lists that it hands out do not change.

// KernelCode holds the symbols of code that the kernel makes at run time, such as BPF programs, at one moment of the
// recording.
type KernelCode struct {
	list   []*symbols.Symbol // ascending, disjoint
	shared bool              // samples have list
	Seen   bool              // records told of such symbols
}

// mostKernelCode is how many pieces of such code are known at a time. Each record copies the list, once samples have
// it.
const mostKernelCode = 1 << 13

// Apply takes what a record says: code in [start, end) comes or is removed.
func (k *KernelCode) Apply(start, end uint64, name string, removed bool) {
	k.Seen = true
	if end <= start {
		return
	}
	if k.shared {
		k.list, k.shared = slices.Clone(k.list), false
	}
	// memory is used again: what lay there is gone, though no record may have said so
	k.list = slices.DeleteFunc(k.list, func(s *symbols.Symbol) bool { return s.Start < end && start < s.End })
	if removed || len(k.list) >= mostKernelCode {
		return
	}
	i := sort.Search(len(k.list), func(i int) bool { return k.list[i].Start >= end })
	k.list = slices.Insert(k.list, i, &symbols.Symbol{Start: start, End: end, Name: name})
}

// Now returns the symbols of this moment, which do not change.
func (k *KernelCode) Now() []*symbols.Symbol {
	k.shared = true
	return k.list
}

// FindCode returns the symbol that holds an address, or nil.
func FindCode(list []*symbols.Symbol, addr uint64) *symbols.Symbol {
	i := sort.Search(len(list), func(i int) bool { return list[i].End > addr })
	if i < len(list) && list[i].Start <= addr {
		return list[i]
	}
	return nil
}
