//go:build linux && amd64

package record

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// procMapping is a line of /proc/PID/maps: proc_pid_maps(5).
type procMapping struct {
	start, end, offset uint64
	name               string // as the kernel names it in MMAP2 records
	inode              uint64
	exec               bool
}

// readMaps reads the mappings of a process.
func readMaps(pid int32) ([]procMapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []procMapping
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if m, ok := parseMapping(in.Text()); ok {
			list = append(list, m)
		}
	}
	return list, in.Err()
}

// parseMapping parses a line.
func parseMapping(line string) (m procMapping, ok bool) {
	var f [5]string
	rest := line
	for i := range f {
		rest = strings.TrimLeft(rest, " ")
		f[i], rest, _ = strings.Cut(rest, " ")
	}
	from, to, ok := strings.Cut(f[0], "-")
	if !ok || len(f[1]) < 3 {
		return m, false
	}
	m.exec = f[1][2] == 'x'
	var errs [4]error
	m.start, errs[0] = strconv.ParseUint(from, 16, 64)
	m.end, errs[1] = strconv.ParseUint(to, 16, 64)
	m.offset, errs[2] = strconv.ParseUint(f[2], 16, 64)
	m.inode, errs[3] = strconv.ParseUint(f[4], 10, 64)
	m.name = strings.TrimLeft(rest, " ")
	if m.name == "" {
		m.name, m.offset = anonName, m.start
	}
	return m, errs == [4]error{} && m.start < m.end
}

// anonName is the name of anonymous memory in MMAP2 records: perf_event_mmap_event in
// kernel/events/core.c.
const anonName = "//anon"

// listThreads returns the threads of a process.
func listThreads(pid int32) ([]int32, error) { return listNumbers(fmt.Sprintf("/proc/%d/task", pid)) }

// listProcesses returns all processes.
func listProcesses() ([]int32, error) { return listNumbers("/proc") }

func listNumbers(dir string) ([]int32, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	var list []int32
	for _, name := range names {
		if n, err := strconv.ParseInt(name, 10, 32); err == nil {
			list = append(list, int32(n))
		}
	}
	return list, err
}

// readComm returns the name of a thread.
func readComm(pid, tid int32) (string, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	return strings.TrimSuffix(string(b), "\n"), err == nil
}
