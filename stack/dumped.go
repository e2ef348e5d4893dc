//go:build linux && amd64

package stack

import (
	"context"
	"fmt"

	"github.com/ehasm/ehasm/internal/files/procfs"
)

// This file is for handlers of kernel.core_pattern: memory comes from the process, which the kernel keeps while it
// writes, as to read all of a large core would take much longer.

// TakeDumped takes the stacks of a process while the kernel writes its core, for a handler of kernel.core_pattern.
// core, from OpenDump, has the registers. TakeDumped reads memory from the process, which exists until the pipe is read
// or closed. pid and tid are the process and the thread that crashed, as in this /proc: %P and %I of core(5).
func (l *Live) TakeDumped(ctx context.Context, pid, tid int32, core *Core) (*Target, error) {
	l.enter(tid) // the first thread may have ended
	if err := l.readMaps(); err != nil {
		return nil, err
	}
	t := core.target()
	t.PID, t.Maps = pid, l.maps
	if err := core.walk(ctx, t, l.walker, l.read, l.region); err != nil {
		if len(t.Threads) == 0 {
			return nil, err
		}
		t.Notes = append(t.Notes, fmt.Sprintf("%d of %d threads are left out: %v", len(core.threads)-len(t.Threads),
			len(core.threads), err))
	}
	// the core has ids of the process's own PID namespace, as of a container
	names := dumpedNames(pid)
	for i := range t.Threads {
		if here, ok := names[t.Threads[i].TID]; ok {
			t.Threads[i].TID, t.Threads[i].Comm = here.TID, here.Comm
		}
	}
	return t, nil
}

// Memory reads at an address of the last process whose stacks l took, and returns how many bytes it could read.
func (l *Live) Memory(p []byte, addr uint64) int { return max(0, l.read(p, addr)) }

// dumpedNames returns the ids and names of threads. The keys are the ids in their own namespace, which the core has.
func dumpedNames(pid int32) map[int32]Thread {
	names := make(map[int32]Thread)
	tids, _ := procfs.Threads(pid) // none, if it has ended
	for _, tid := range tids {
		if s := procfs.Status(tid); len(s) > 0 {
			names[procfs.OwnPID(tid)] = Thread{TID: tid, Comm: s["Name"]}
		}
	}
	return names
}
