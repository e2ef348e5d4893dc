package ehelf

import (
	"unsafe"

	"ehasm/abi"
)

// CallC calls a C function of up to four integer arguments, through the same
// assembly as WalkRaw.
func CallC(fn uintptr, a, b, c, d uintptr) uint64 {
	return callWalk(fn, (*abi.Regs)(ptr(a)), (*abi.Memory)(ptr(b)), uint64(c), (*uint64)(ptr(d)), 0)
}

// ptr makes a pointer of an integer that the runtime never looks at.
func ptr(a uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
