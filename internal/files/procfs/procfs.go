// Package procfs reads what /proc says of processes: mappings, threads, names. Processes may end between two reads,
// and their PIDs may be used again; callers that must be sure hold a pidfd, or look twice.
package procfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Mapping is a line of /proc/PID/maps: proc_pid_maps(5).
type Mapping struct {
	Start, End uint64 // run-time addresses
	Offset     uint64 // in the file, in bytes; of anonymous memory: Start
	Name       string // as the kernel names it in MMAP2 records; of a removed file it ends in Deleted
	Inode      uint64
	Exec       bool
	Device     string // major and minor number: "fe:01"
}

// Device returns a device's numbers as Mapping has them.
func Device(major, minor uint32) string { return fmt.Sprintf("%02x:%02x", major, minor) }

// Deleted ends the name of a file that was removed since it was mapped.
const Deleted = " (deleted)"

// Living returns the id of a thread through which /proc shows the memory and the files of a process: pid, or if its
// first thread has ended, one that has not.
func Living(pid int32) int32 {
	ended := func(id int32) bool {
		_, err := os.Readlink(fmt.Sprintf("/proc/%d/root", id))
		return errors.Is(err, os.ErrNotExist)
	}
	if !ended(pid) {
		return pid
	}
	tids, _ := Threads(pid) // none: the process has ended
	for _, tid := range tids {
		if !ended(tid) {
			return tid
		}
	}
	return pid
}

// Mappings reads the mappings of a process, ascending.
func Mappings(pid int32) ([]Mapping, error) { return MappingsIn(fmt.Sprintf("/proc/%d", Living(pid))) }

// MappingsIn is Mappings by the process's folder, such as /proc/self. Of very many long names it leaves some out: they
// could take 250 MB. The kernel writes the list page by page, so mappings that change meanwhile may be in it twice or
// not at all.
func MappingsIn(folder string) ([]Mapping, error) {
	f, err := os.Open(filepath.Join(folder, "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const long, most = 512, 4096 // bytes of a name, and names longer than that
	var list []Mapping
	names := 0 // long ones
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20) // bytes; the longest line is far shorter
	for in.Scan() {
		m, ok := ParseMapping(in.Text())
		if !ok {
			continue
		}
		if len(m.Name) > long {
			if names++; names > most {
				m.Name = "[long name]"
			}
		}
		list = append(list, m)
	}
	return list, in.Err()
}

// ParseMapping parses a line without its newline; ok is false if it is none. Anonymous memory gets the name and the
// offset that perf's records have for it, so that both sources give the same Mapping.
func ParseMapping(line string) (m Mapping, ok bool) {
	var f [5]string // range, rights, offset, device, inode; the name follows
	rest := line
	for i := range f {
		rest = strings.TrimLeft(rest, " ")
		f[i], rest, _ = strings.Cut(rest, " ")
	}
	from, to, ok := strings.Cut(f[0], "-")
	if !ok || len(f[1]) < 3 {
		return m, false
	}
	m.Exec = f[1][2] == 'x'
	var errs [4]error
	m.Start, errs[0] = strconv.ParseUint(from, 16, 64)
	m.End, errs[1] = strconv.ParseUint(to, 16, 64)
	m.Offset, errs[2] = strconv.ParseUint(f[2], 16, 64)
	m.Inode, errs[3] = strconv.ParseUint(f[4], 10, 64)
	m.Device = f[3]
	// The kernel escapes a newline in a name, which would end the line.
	m.Name = strings.ReplaceAll(strings.TrimLeft(rest, " "), `\012`, "\n")
	if m.Name == "" {
		m.Name, m.Offset = AnonName, m.Start
	}
	return m, errs == [4]error{} && m.Start < m.End
}

// AnonName is the name of anonymous memory in MMAP2 records: perf_event_mmap_event in
// kernel/events/core.c.
const AnonName = "//anon"

// Threads returns the thread ids of a process, itself included.
func Threads(pid int32) ([]int32, error) { return listNumbers(fmt.Sprintf("/proc/%d/task", pid)) }

// Processes returns the PIDs of all processes.
func Processes() ([]int32, error) {
	if err := Mounted(); err != nil {
		return nil, err
	}
	return listNumbers("/proc")
}

// Mounted returns an error if /proc does not show processes, as in a chroot: then it says nothing of any.
func Mounted() error {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		return errors.New("/proc, where the kernel shows processes, is not mounted")
	}
	return nil
}

// NotShown returns why /proc does not show a process, if that is not because there is none: /proc is not mounted, or it
// hides the processes of other users, with the option hidepid of proc(5).
func NotShown(pid int32) error {
	if err := Mounted(); err != nil {
		return err
	}
	p, err := os.FindProcess(int(pid))
	if err != nil {
		return nil
	}
	defer p.Release()
	if errors.Is(p.Signal(syscall.Signal(0)), syscall.EPERM) {
		return errors.New("/proc hides this process from you (hidepid): be root, or in the group that its option gid names")
	}
	return nil
}

// listNumbers returns the names in a folder that are numbers.
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

// Status returns the fields of a process or thread, by their names; none if it has ended: proc_pid_status(5).
func Status(id int32) map[string]string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", id)) // no file, no fields
	fields := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields
}

// OwnPID returns the number of a process or thread in its own PID namespace, the last of NSpid. If that is not known,
// it is id. Programs in containers name their files by it: /tmp/perf-PID.map.
func OwnPID(id int32) int32 {
	list := strings.Fields(Status(id)["NSpid"])
	n, err := strconv.ParseInt(append([]string{""}, list...)[len(list)], 10, 32)
	if err != nil {
		return id
	}
	return int32(n)
}

// Namespace returns the inode number of a process's namespace of a kind, such as "pid"; 0: it is not known.
func Namespace(pid int32, kind string) (inode uint64) {
	name, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", Living(pid), kind)) // pid:[4026531836]
	_, err := fmt.Sscanf(name, kind+":[%d]", &inode)
	if err != nil {
		return 0
	}
	return inode
}

// Comm returns the name of a thread, and whether there is one.
func Comm(pid, tid int32) (string, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	return strings.TrimSuffix(string(b), "\n"), err == nil
}

// Cgroup returns the path of a process's control group in its hierarchy: of version 2, or if the process is in none of
// that, the longest one. Groups outside this process's namespace begin with /.. . It returns "" if the process is gone.
func Cgroup(pid int32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return cgroupOf(string(b))
}

// cgroupOf chooses from /proc/PID/cgroup: cgroups(7). With version 1 each controller has its own groups, and only some
// may be a container's: those go first, then the group of version 2, then the longest.
func cgroupOf(text string) (path string) {
	best := 0
	for line := range strings.Lines(text) {
		// hierarchy-ID:controllers:path; the ID of version 2 is 0
		number, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, group, _ := strings.Cut(rest, ":")
		rank := len(group)
		if number == "0" && group != "/" { // / is the root group, which says nothing
			rank += 1 << 20
		}
		if ContainerID(group) != "" {
			rank += 1 << 21
		}
		if rank > best {
			path, best = group, rank
		}
	}
	return path
}

// ContainerID returns the container of a control group, or "". Docker, containerd, CRI-O and Podman name the group by
// the 64 hexadecimal digits of the ID: .../docker-ID.scope, .../cri-containerd-ID.scope, .../docker/ID. Groups inside
// the container's may follow.
func ContainerID(cgroup string) string {
	const size = 64 // hexadecimal digits
	digits := 0     // in a row
	for i := range len(cgroup) {
		if !strings.ContainsRune("0123456789abcdef", rune(cgroup[i])) {
			digits = 0
		} else if digits++; digits == size {
			return cgroup[i+1-size : i+1]
		}
	}
	return ""
}
