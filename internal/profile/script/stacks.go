package script

import (
	"context"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// This file gives samples to programs that measure package unwind, without the rest of Run.

// Stack is the user stack of a sample, as Run passes it to package unwind.
type Stack struct {
	PID    int32
	Maps   *unwind.Maps // mappings of the process at that time
	Regs   abi.Regs     // of the innermost frame
	Memory []byte       // copy of the stack, from rsp on
}

// Stacks reads the samples of r in their order and calls take for each one that
// Run would unwind. Objects are those of objects. Memory is valid during the
// call; Maps does not change. It is for measuring package unwind by itself.
func Stacks(r *perfdata.Reader, objects *unwind.Objects, take func(*Stack)) error {
	run := newRunner(r, objects, Options{})
	pool := newBatchPool(1)
	run.read(context.Background(), func(b *batch) {
		for i := range b.samples {
			if s := &b.samples[i]; s.unwindable() {
				take(&Stack{PID: s.pid, Maps: s.maps, Regs: s.user.regs, Memory: s.user.stack})
			}
		}
		pool.put(b)
	}, pool)
	return r.Err()
}

// unwindable reports whether the sample has registers and a stack to start a walk from. perf record --user-regs may
// have left out the two that every walk needs.
func (s *sample) unwindable() bool {
	const need = 1<<abi.RIP | 1<<abi.RSP // where the walk begins, and where the copy does
	return s.user.abi == perfdata.ABI64 && s.user.regs.Valid&need == need
}
