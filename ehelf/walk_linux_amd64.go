package ehelf

import (
	"unsafe"

	"github.com/ehasm/ehasm/abi"
)

// StackSize is the number of bytes of stack that the code and the C functions
// it calls may use (the code itself: 512).
const StackSize = 4096

// The functions of walk_linux_amd64.s. Their arguments may point to the
// goroutine's stack: they read the pointers after the check that may move it.

// callWalk calls a function of type _eh_elf_walk.
//
//go:noescape
func callWalk(fn uintptr, regs *abi.Regs, mem *abi.Memory, bias uint64, pcs *uint64, max uint64) uint64

// callWindow is callWalk with an eh_elf_memory_t that it builds from its
// arguments. If log is nil there is no read callback, otherwise one that replays
// log.
//
//go:noescape
func callWindow(fn uintptr, regs *abi.Regs, lo, size uint64, bytes *byte, log *replay, bias uint64, pcs *uint64,
	max uint64) uint64

// callStep calls a function of type _eh_elf.
//
//go:noescape
func callStep(fn uintptr, ctx *abi.Context, pc uint64, deref uintptr, result *abi.Context)

func (o *EhElf) walkWindow(regs *abi.Regs, mem *Memory, bias uint64, pcs []uint64) int {
	return o.walkReplay(regs, mem, bias, pcs, nil)
}

func (o *EhElf) walkReplay(regs *abi.Regs, mem *Memory, bias uint64, pcs []uint64, log *replay) int {
	n := callWindow(o.walk, regs, mem.Lo, uint64(len(mem.Bytes)), unsafe.SliceData(mem.Bytes), log,
		bias, unsafe.SliceData(pcs), uint64(len(pcs)))
	return int(n)
}

// WalkRaw calls _eh_elf_walk with its arguments unchanged; pcs may be nil,
// otherwise it has room for max values. The window and the callback of mem are
// host addresses, which the caller keeps valid and in place: Go memory must be
// on the heap or pinned, and Read is a C function that uses at most StackSize
// minus the code's 512 bytes of stack and does not call into Go. It returns the
// number of steps. On a closed object it sets abi.StatusNoInfo.
func (o *EhElf) WalkRaw(regs *abi.Regs, mem *abi.Memory, bias uint64, pcs *uint64, max uint64) uint64 {
	if o.walk == 0 {
		regs.Status = abi.StatusNoInfo
		return 0
	}
	return callWalk(o.walk, regs, mem, bias, pcs, max)
}

// StepContext calls _eh_elf, the interface of the original eh_elfs. pc is a
// link-time address, looked up unchanged. deref is a C function with the limits
// that WalkRaw sets, or 0 to read this process's memory directly; an eh_elf
// with abi.FlagNoDeref ignores it. A closed object sets abi.ContextError.
func (o *EhElf) StepContext(ctx abi.Context, pc uint64, deref uintptr) abi.Context {
	if o.step == 0 {
		ctx.Flags = abi.ContextError
		return ctx
	}
	var result abi.Context
	callStep(o.step, &ctx, pc, deref, &result)
	return result
}

// The assembly computes the address of a span by a shift.
var _ [1 << spanShift]struct{} = [unsafe.Sizeof(span{})]struct{}{}

// callSpans calls functions of type _eh_elf_walk in turn, see Spans.Walk.
//
//go:noescape
func callSpans(s *Spans, regs *abi.Regs, mem *Memory, pcs *uint64, max int) (steps, last int)

// Prefetch asks the processor to fetch the first n bytes of b, or all if b is
// shorter.
func Prefetch(b []byte, n int) {
	if n = min(n, len(b)); n > 0 {
		prefetch(unsafe.SliceData(b), uint64(n))
	}
}

//go:noescape
func prefetch(p *byte, n uint64)
