//go:build linux && amd64

package record

import (
	"time"

	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// stacks is where user stacks come from: copies, which the kernel writes into samples, or the kernel, which takes
// copies only where it has no answer.
type stacks interface {
	// begin begins a round. It reports whether there are stacks that came without a sample of perf.
	begin() (waiting bool, err error)
	// arrive tells of the time of a record that is about to be handled.
	arrive(when uint64)
	// replaced reports whether a sample is of an event that another one had replaced before.
	replaced(raw []byte, when uint64) bool
	// of returns the stack of a sample of perf.
	of(r *perfdata.Sample, th *thread, p *process) frameStack
	// end ends a round, which handled what was before limit.
	end(limit uint64) error

	// started, forked and changed tell of processes: one was there at the start, or was forked; the number of one means
	// another program now, or nothing.
	started(pid int32)
	forked(child, parent int32)
	changed(pid int32, p *process, ended bool)
	// release forgets objects.
	release(are func(*unwind.Object) bool)

	// size returns how many bytes copies have.
	size() int
	// crowd tells that perf had no room for samples. beside returns how many stacks, since its last call, had no room in
	// other rings than perf's, and how many bytes these have brought.
	crowd()
	beside() (lost, bytes uint64)
	// wait returns how long the next round may wait, and for how much of that it need not look for copies.
	wait(most time.Duration) (wait, blind time.Duration)
	close()
}
