//go:build linux && amd64

package record

import (
	"github.com/ehasm/ehasm/internal/files/procfs"

	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// childrenOf returns the processes that come from others by fork and run now, in ascending order, without those named.
// Processes forked while it looks are met in another round.
func childrenOf(pids []int) []int {
	named := make(map[int]bool)
	for _, pid := range pids {
		named[pid] = true
	}
	found := make(map[int]bool)
	for n := -1; n != len(found); {
		n = len(found)
		for todo := slices.AppendSeq(slices.Clone(pids), maps.Keys(found)); len(todo) > 0; todo = todo[1:] {
			for _, child := range listChildren(todo[0]) {
				if !named[child] && !found[child] {
					found[child] = true
					todo = append(todo, child)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// listChildren returns the children of a process, none if it has ended: proc_pid_task_tid_children(5).
func listChildren(pid int) (list []int) {
	threads, err := procfs.Threads(int32(pid))
	if err != nil {
		return nil
	}
	for _, tid := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, tid))
		if err != nil {
			continue
		}
		for _, field := range strings.Fields(string(b)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
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
