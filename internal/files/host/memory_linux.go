package host

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// BoundMemory makes the garbage collector keep the heap within limits on addresses (ulimit -v,
// RLIMIT_AS) and data (ulimit -d, RLIMIT_DATA), if there are any. The run-time asks for more memory
// before it collects, and ends the process if there is none.
func BoundMemory() {
	// fields of statm, proc(5): pages of all that is mapped, of data and stack
	const size, data = 0, 5
	if debug.SetMemoryLimit(-1) != math.MaxInt64 { // asks without changing it
		return // set by GOMEMLIMIT
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

// mappedNow returns a field of /proc/self/statm in bytes, or 0 if it cannot be
// read.
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

// heapWithin returns the bound of the heap, in bytes, for a limit on mapped bytes and the
// number mapped now. It leaves room for fragmentation and mapped files.
func heapWithin(limit, mapped uint64) int64 {
	const least = 32 << 20 // bytes, so that the collector does not run all the time
	if limit < mapped {
		return least
	}
	return int64(max(least, min(limit-mapped, math.MaxInt64)/2)) // half, for what is not heap
}
