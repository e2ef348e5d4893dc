//go:build !linux || !amd64

package ehelf

import "github.com/ehasm/ehasm/abi"

const supportedHost = false

// StackSize is the number of bytes of stack that the code and the C functions
// it calls may use (the code itself: 512).
const StackSize = 4096

// mapping is empty: no EhElf exists on this host.
type mapping struct{ base uintptr }

func newMapping([]byte, *layout) (mapping, error) { return mapping{}, ErrUnsupportedHost }

func (m *mapping) close() error { return nil }

func (o *EhElf) walkWindow(regs *abi.Regs, _ *Memory, _ uint64, _ []uint64) int {
	regs.Status = abi.StatusNoInfo
	return 0
}

func (o *EhElf) walkReplay(regs *abi.Regs, mem *Memory, bias uint64, pcs []uint64, _ *replay) int {
	return o.walkWindow(regs, mem, bias, pcs)
}

// WalkRaw sets abi.StatusNoInfo on this host.
func (o *EhElf) WalkRaw(regs *abi.Regs, _ *abi.Memory, _ uint64, _ *uint64, _ uint64) uint64 {
	regs.Status = abi.StatusNoInfo
	return 0
}

// StepContext sets abi.ContextError on this host.
func (o *EhElf) StepContext(ctx abi.Context, _ uint64, _ uintptr) abi.Context {
	ctx.Flags = abi.ContextError
	return ctx
}

func callSpans(_ *Spans, regs *abi.Regs, _ *Memory, _ *uint64, _ int) (int, int) {
	regs.Status = abi.StatusNoInfo
	return 0, -1
}

// Prefetch does nothing on this host.
func Prefetch([]byte, int) {}
