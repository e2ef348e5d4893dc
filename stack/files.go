//go:build linux && amd64

package stack

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/files/regular"
	"github.com/ehasm/ehasm/unwind"
)

// files finds the files of processes, also in other mount namespaces. It keeps a file open if its name does not lead
// to it here.
type files struct {
	objects *unwind.Objects
	open    map[string]*os.File // by build-id, inode and name
}

// newFiles returns files that are found through objects.
func newFiles(objects *unwind.Objects) *files {
	return &files{objects: objects, open: make(map[string]*os.File)}
}

// close closes the files that were kept open.
func (f *files) close() {
	for _, file := range f.open {
		file.Close()
	}
}

// object returns the object of a mapping of a process.
func (f *files) object(pid int32, m procfs.Mapping, id []byte) *unwind.Object {
	o := f.objects.Object(m.Name, id)
	// The file at the name is right: by its build-id, or, without one, by its inode.
	if !o.IsFile() || o.Path() != "" && (len(id) > 0 || inodeOf(o.Path()) == m.Inode) {
		return o
	}
	key := fmt.Sprintf("%x %d %s", id, m.Inode, m.Name)
	file := f.open[key]
	if file == nil {
		if file = openMapped(pid, m, id); file == nil {
			return o
		}
		f.open[key] = file
	}
	return f.objects.At(m.Name, id, fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
}

// openMapped opens the file of a mapping as the process sees it; nil: it cannot be opened.
func openMapped(pid int32, m procfs.Mapping, id []byte) *os.File {
	// map_files needs a right that root has; the root and the executable of a process can be opened
	// by its user.
	proc := fmt.Sprintf("/proc/%d", pid)
	for _, open := range []func() (*os.File, error){
		func() (*os.File, error) {
			return regular.Open(filepath.Join(proc, "map_files", fmt.Sprintf("%x-%x", m.Start, m.End)))
		},
		func() (*os.File, error) { return regular.OpenBelow(proc+"/root", m.Name) },
		func() (*os.File, error) { return regular.Open(proc + "/exe") },
	} {
		file, err := open()
		if err != nil {
			continue
		}
		if there, err := abi.BuildID(file); err == nil && (len(id) > 0 && bytes.Equal(there, id) || len(id) == 0 && inodeOf(file.Name()) == m.Inode) {
			return file
		}
		file.Close()
	}
	return nil
}

// inodeOf returns the inode number of a file, or 0, which no file has.
func inodeOf(path string) uint64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return sys.Ino
}
