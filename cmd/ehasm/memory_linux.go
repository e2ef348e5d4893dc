package main

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// boundMemory has the garbage collector keep the heap within limits on addresses (ulimit -v,
// RLIMIT_AS) and data (ulimit -d, RLIMIT_DATA), if there are any: the run-time asks for more before it
// collects what it has, and ends if there is none.
func boundMemory() {
	const size, data = 0, 5 // fields of statm, proc(5): pages of all that is mapped, of data and stack
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return // GOMEMLIMIT
	}
	bound := int64(math.MaxInt64)
	for resource, field := range map[int]int{unix.RLIMIT_AS: size, unix.RLIMIT_DATA: data} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
			bound = min(bound, heapWithin(limit.Cur, mappedNow(field)))
		}
	}
	debug.SetMemoryLimit(bound)
}

// mappedNow is a field of /proc/self/statm in bytes, or 0 if it cannot be read.
func mappedNow(field int) uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if field >= len(fields) {
		return 0
	}
	pages, err := strconv.ParseUint(fields[field], 10, 32)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// heapWithin is how large the heap may become where so many bytes of addresses may be
// mapped and so many are. Pieces of it are too small for what is asked next; and files are
// mapped, too.
func heapWithin(limit, mapped uint64) int64 {
	const least = 32 << 20
	if limit < mapped {
		return least
	}
	return int64(max(least, min(limit-mapped, math.MaxInt64)/2))
}
