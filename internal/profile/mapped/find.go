//go:build linux

package mapped

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// This file finds the file of a mapping. The kernel tells device, inode and name; by the time of a look the name may
// lead to another file, and the process may have ended. A file is taken only if its numbers, or its bytes, are those
// that are mapped.

// Found is the file of a mapping. The zero value says that it was not found.
type Found struct {
	way     way
	version version
	elfFile
}

// BuildID returns the build-id of the file; nil: it has none, or was not found.
func (f *Found) BuildID() []byte { return f.buildID }

// version is a file with its contents. The zero value says that the file was not found.
type version struct {
	dev, inode        uint64
	size              int64
	modified, changed syscall.Timespec
}

func versionOf(st *syscall.Stat_t) version {
	return version{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
}

// elfFile is what is remembered of the contents of files.
type elfFile struct {
	isELF   bool
	buildID []byte // nil: it has none
}

// manyFiles is how many files' contents are remembered.
const manyFiles = 8192

// way is how the file of a mapping may be opened.
type way struct {
	root, path string // path is below root, which no link may lead out of
	mapped     bool   // it leads to what is mapped, whatever its number
}

// open opens the file. Below a root that a process has chosen, no link leads out: it could lead to any file of this
// machine.
func (w *way) open() (*os.File, error) {
	if w.root != "" {
		return input.OpenBelow(w.root, w.path)
	}
	return input.Open(w.path)
}

// Process is what mappings are of.
type Process struct {
	PID     int32
	Parents []int32                         // the nearest first
	Read    func(addr uint64, b []byte) int // its memory
}

// ways returns how the file of a mapping may be opened: as what is mapped there, by its name as the process sees it,
// which may have put anything there since, by its name here, as what is executed, and by its name as those see it that
// the process comes from, as it may have ended.
func (p *Process) ways(m *procfs.Mapping) []way {
	of := procfs.Living(p.PID)
	link := fmt.Sprintf("/proc/%d/map_files/%x-%x", of, m.Start, m.End) // proc_pid_map_files(5)
	list := []way{
		{path: link, mapped: leadsTo(link, m)},
		{root: fmt.Sprintf("/proc/%d/root", of), path: m.Name},
		{path: m.Name},
		{path: fmt.Sprintf("/proc/%d/exe", of)},
	}
	for _, pid := range p.Parents {
		list = append(list, way{root: fmt.Sprintf("/proc/%d/root", pid), path: m.Name})
	}
	return list
}

// leadsTo reports whether a link of map_files has the name of a mapping.
func leadsTo(link string, m *procfs.Mapping) bool {
	name, err := os.Readlink(link)
	return err == nil && (name == m.Name || name == m.Name+procfs.Deleted)
}

// Find finds the file of a mapping, which was made at a time; zero: at an unknown one.
func (fs *Files) Find(p *Process, m *procfs.Mapping, made time.Time) Found {
	if m.Inode == 0 || !strings.HasPrefix(m.Name, "/") {
		return Found{}
	}
	if f, ok := fs.unchanged(m, made); ok {
		return f
	}
	for _, w := range p.ways(m) {
		var st syscall.Stat_t
		// A link may lead out of the process's root here; then the number is another one, or the file the same.
		if syscall.Stat(w.root+w.path, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
			continue
		}
		w.mapped = w.mapped && leadsTo(w.path, m) // still: the process may have put another file there before the look at it
		contents, known := fs.contents[versionOf(&st)]
		if !known || !w.mapped && !sameNumbers(&st, m) {
			f, err := w.open()
			if err != nil {
				continue
			}
			var ok bool
			st, contents, ok = fs.read(f, p, m, w.mapped)
			f.Close()
			if !ok || w.mapped && !leadsTo(w.path, m) {
				continue
			}
		}
		v := versionOf(&st)
		if written := time.Unix(v.modified.Unix()); !made.IsZero() && written.After(made) && written.Before(time.Now()) {
			continue // after it was mapped
		}
		return Found{w, v, contents}
	}
	return Found{}
}

// unchanged returns the file that has the name of a mapping here, if its contents are known and nothing has changed it
// since before the mapping was made: then it is the one mapped, since no other file got its numbers in between. Most
// mappings of a machine need only this look.
func (fs *Files) unchanged(m *procfs.Mapping, made time.Time) (f Found, ok bool) {
	const apart = time.Second // longer than what clocks of files and of records differ by
	var st syscall.Stat_t
	if m.Device == "" || syscall.Stat(m.Name, &st) != nil || !sameNumbers(&st, m) ||
		!time.Unix(st.Ctim.Unix()).Add(apart).Before(made) {
		return Found{}, false
	}
	contents, known := fs.contents[versionOf(&st)]
	return Found{way{path: m.Name}, versionOf(&st), contents}, known
}

// sameNumbers reports whether a file has the device and inode of a mapping. A mapping of unknown device has m.Device
// "".
func sameNumbers(st *syscall.Stat_t, m *procfs.Mapping) bool {
	return st.Ino == m.Inode && (m.Device == "" || m.Device == procfs.Device(unix.Major(st.Dev), unix.Minor(st.Dev)))
}

// inodeCounts reports whether the file is in a file system that gives stat another device than it gives mappings.
func inodeCounts(f *os.File) bool {
	var fs unix.Statfs_t
	const bcachefs = 0xca451a4e // fs/bcachefs/bcachefs_format.h
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return false
	}
	kind := uint32(fs.Type)
	return kind == unix.OVERLAYFS_SUPER_MAGIC || kind == unix.BTRFS_SUPER_MAGIC || kind == bcachefs
}

// holds reports whether the memory of a mapping, which the process has all the while, is a file's.
func (p *Process) holds(m *procfs.Mapping, f *os.File) bool {
	return p.has(m) && m.Compare(f, p.Read) == procfs.Equal && p.has(m)
}

// has reports whether the process still has the mapping, so that its memory says what the file holds: another file may
// lie there since.
func (p *Process) has(m *procfs.Mapping) bool {
	list, err := procfs.Mappings(p.PID)
	return err == nil && slices.ContainsFunc(list, func(now procfs.Mapping) bool {
		return now.Start == m.Start && now.Offset == m.Offset && now.Inode == m.Inode && now.Name == m.Name &&
			(m.Device == "" || now.Device == m.Device)
	})
}

// read reads what is remembered of a file, if it is the one that is mapped: by its numbers or, as some file systems
// (overlayfs, btrfs) number a file otherwise than the kernel does, by the memory.
func (fs *Files) read(f *os.File, p *Process, m *procfs.Mapping, mapped bool) (st syscall.Stat_t, e elfFile, ok bool) {
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		return st, e, false
	}
	if !mapped && !sameNumbers(&st, m) && !(st.Ino == m.Inode && inodeCounts(f)) && !p.holds(m, f) {
		return st, e, false
	}
	id, err := abi.BuildID(f)
	e = elfFile{err == nil, id}
	if len(fs.contents) >= manyFiles {
		clear(fs.contents)
	}
	fs.contents[versionOf(&st)] = e
	return st, e, true
}
