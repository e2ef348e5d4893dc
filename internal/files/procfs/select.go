package procfs

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Process is what /proc/PID/stat says of a process: proc_pid_stat(5).
type Process struct {
	PID, Parent int32
	Comm        string // at most 15 bytes, its own choice
	Kernel      bool   // a kernel thread, without user space
	Ended       bool   // its parent has not waited for it yet
}

// All returns the processes, ascending by PID. Those that end meanwhile are left out. One stat file each is read, in
// which name, parent and kind are of the same moment.
func All() ([]Process, error) {
	pids, err := Processes()
	if err != nil {
		return nil, err
	}
	slices.Sort(pids)
	list := make([]Process, 0, len(pids))
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		if p, ok := parseStat(b); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

// parseStat parses the contents of /proc/PID/stat.
func parseStat(b []byte) (p Process, ok bool) {
	const state, parent, flags, needed = 0, 1, 6, 7 // fields after the name
	const kernelThread = 0x200000                   // PF_KTHREAD of linux/sched.h
	// The name is in parentheses and may itself hold blanks and parentheses, so its end is the last
	// one.
	pid, rest, _ := bytes.Cut(b, []byte(" ("))
	end := bytes.LastIndex(rest, []byte(") "))
	if end < 0 {
		return p, false
	}
	fields := strings.Fields(string(rest[end+2:]))
	if len(fields) < needed {
		return p, false
	}
	n, err := strconv.ParseInt(string(pid), 10, 32)
	from, errParent := strconv.ParseInt(fields[parent], 10, 32)
	bits, errFlags := strconv.ParseUint(fields[flags], 10, 64)
	if err != nil || errParent != nil || errFlags != nil {
		return p, false
	}
	return Process{PID: int32(n), Parent: int32(from), Comm: string(rest[:end]), Kernel: bits&kernelThread != 0,
		Ended: fields[state] == "Z" || fields[state] == "X"}, true
}

// Named returns the processes whose names match, as pgrep(1) finds them: of all processes but this one.
func Named(list []Process, pattern *regexp.Regexp) (pids []int32) {
	self := int32(os.Getpid())
	for _, p := range list {
		if p.PID != self && pattern.MatchString(p.Comm) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// WithChildren returns processes with their children, and the children's, each after its parent and once. list has all
// processes; with nil, only those of pids are returned. A cycle, as PIDs that are used again may make one, does no
// harm.
func WithChildren(list []Process, pids []int32) []int32 {
	children := make(map[int32][]int32)
	for _, p := range list {
		children[p.Parent] = append(children[p.Parent], p.PID)
	}
	var found []int32
	seen := make(map[int32]bool)
	var add func(pid int32)
	add = func(pid int32) {
		if seen[pid] {
			return
		}
		seen[pid] = true
		found = append(found, pid)
		for _, child := range children[pid] {
			add(child)
		}
	}
	for _, pid := range pids {
		add(pid)
	}
	return found
}
