//go:build linux && amd64

package stack

import (
	"encoding/binary"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// pageSize is the size of a page on x86-64, in bytes. Large pages have several entries in pagemap.
const pageSize = 4096

// askNoServer returns a memory that reads from a process, but waits for no FUSE server, which any user may run: its
// answer may never come, and until then not even SIGKILL ends a reader. Of mapped files that a server may have, it
// reads the pages that the process has in memory. Device numbers with major 0 are of file systems without a disk:
// FUSE, but also tmpfs, overlayfs and NFS.
func askNoServer(pid int32, list []procfs.Mapping, plain memory) memory {
	var served []procfs.Mapping
	var local map[string]bool
	for _, m := range list {
		if m.Inode == 0 || !strings.HasPrefix(m.Device, "00:") { // anonymous, or of a disk
			continue
		}
		if local == nil {
			local = localDevices(pid)
		}
		if !local[m.Device] {
			served = append(served, m)
		}
	}
	if len(served) == 0 {
		return plain
	}
	return (&servedMemory{served, plain, func(addr uint64) bool { return pageThere(pid, addr) }}).read
}

// servedMemory is the memory of a process with mappings whose pages a server may have.
type servedMemory struct {
	served []procfs.Mapping // ascending
	plain  memory
	there  func(addr uint64) bool // whether the process has a page in memory
}

// read reads as far as it can without waiting: a page that is not in memory would have to come from its server, which
// may be the stopped process itself. It asks page by page inside served mappings, and reads all between them at once.
func (s *servedMemory) read(p []byte, addr uint64) (n int) {
	for n < len(p) {
		part := p[n:]
		if m := s.next(addr); m != nil && m.Start <= addr {
			if !s.there(addr) {
				break
			}
			part = part[:min(uint64(len(part)), pageSize-addr%pageSize)]
		} else if m != nil {
			part = part[:min(uint64(len(part)), m.Start-addr)]
		}
		got := max(0, s.plain(part, addr))
		n, addr = n+got, addr+uint64(got)
		if got < len(part) {
			break
		}
	}
	return n
}

// next returns the first served mapping that ends behind an address, or nil.
func (s *servedMemory) next(addr uint64) *procfs.Mapping {
	i := sort.Search(len(s.served), func(i int) bool { return s.served[i].End > addr })
	if i == len(s.served) {
		return nil
	}
	return &s.served[i]
}

// localDevices returns the devices without a disk that are mounted, here or for a process, and are not of FUSE, as
// /proc/PID/maps has them: proc_pid_mountinfo(5). A device of neither kind may be of a mount that was taken away.
func localDevices(pid int32) map[string]bool {
	local := make(map[string]bool)
	for _, folder := range []string{"self", fmt.Sprint(pid)} {
		text, _ := os.ReadFile("/proc/" + folder + "/mountinfo") // none, if it has ended
		for line := range strings.Lines(string(text)) {
			before, after, _ := strings.Cut(line, " - ")
			fields := strings.Fields(before)
			var major, minor int
			if len(fields) < 3 || strings.HasPrefix(after, "fuse") {
				continue
			}
			if n, _ := fmt.Sscanf(fields[2], "%d:%d", &major, &minor); n == 2 {
				local[fmt.Sprintf("%02x:%02x", major, minor)] = true
			}
		}
	}
	return local
}

// pageThere reports whether a process has a page in memory or in the swap space: proc_pid_pagemap(5).
func pageThere(pid int32, addr uint64) bool {
	const swapped, present = 1 << 62, 1 << 63 // bits of an entry
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/pagemap", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var entry [8]byte
	if n, err := unix.Pread(fd, entry[:], int64(addr/pageSize*8)); err != nil || n < len(entry) {
		return false
	}
	return binary.LittleEndian.Uint64(entry[:])&(swapped|present) != 0
}
