package record

import (
	"fmt"

	"github.com/ehasm/ehasm/unwind"
)

// Settings say how often samples are taken, and how their stacks are found. They are flags of record.
type Settings struct {
	Frequency uint64 // samples a second and CPU
	Copy      int    // bytes of each stack that the kernel copies; a multiple of 8
	Grow      int    // the same, if Copy turns out to be too small; 0: never
	MaxStack  int    // frames of a stack's user part
	Ring      int    // bytes of a CPU's ring; a power of two
	Refill    bool   // complete stacks that are longer than the copy
	Realtime  bool   // the thread that reads the rings has real-time priority
	Pointers  unwind.FramePointers
	Unwind    Unwind
}

// Unwind says where stacks are unwound.
type Unwind uint8

// Places where stacks are unwound.
const (
	Anywhere  Unwind = iota // in the kernel where it may, and else in copies
	KernelToo               // it is an error if not in the kernel
	Copies                  // in copies alone
)

// ParseUnwind parses auto, kernel or copy.
func ParseUnwind(name string) (Unwind, error) {
	for i, n := range []string{"auto", "kernel", "copy"} {
		if n == name {
			return Unwind(i), nil
		}
	}
	return 0, fmt.Errorf("%q: want auto, kernel or copy", name)
}
