//go:build linux && amd64

package record

import (
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// childrenOf returns the processes that come from others by fork and run now, in ascending order, without those named.
// Processes forked while it looks are met in another round.
func childrenOf(pids []int) (list []int) {
	named := make([]int32, len(pids))
	for i, pid := range pids {
		named[i] = int32(pid)
	}
	for n := -1; n != len(list); {
		n, list = len(list), nil
		all, _ := procfs.All() // without /proc, none
		for _, pid := range procfs.WithChildren(all, named) {
			if !slices.Contains(named, pid) {
				list = append(list, int(pid))
			}
		}
	}
	slices.Sort(list)
	return list
}

// task is a thread to open events for.
type task struct {
	id    int
	child bool // of a process that is not named, or that need not be recorded
}

// tasks returns the threads of the target's processes.
func (t *Target) tasks() (list []task, err error) {
	for i, pid := range slices.Concat(t.PIDs, t.children) {
		child := i >= len(t.PIDs) || t.Some
		ids, err := procfs.Threads(int32(pid))
		if err != nil && child {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, noProcess(int32(pid), err))
		}
		for _, id := range ids {
			list = append(list, task{int(id), child})
		}
	}
	if len(list) == 0 {
		return nil, unix.ESRCH
	}
	return list, nil
}
