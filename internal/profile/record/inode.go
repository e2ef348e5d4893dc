//go:build linux && amd64

package record

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/files/regular"
)

type objectKey struct {
	name, buildID string
	inode         inode
}

// inode is the number of a file, which another file may get later: then its generation differs. /proc has none of
// the latter.
type inode struct{ number, generation uint64 }

type fileKey struct {
	dev, inode uint64
	size       int64
	changed    syscall.Timespec
}

func keyOf(st *syscall.Stat_t) fileKey { return fileKey{st.Dev, st.Ino, st.Size, st.Ctim} }

// generation returns the inode of a mapping that /proc tells of: it is taken for the file of this name and number that was
// mapped last.
func (t *tracker) generation(name string, number uint64) inode {
	return inode{number, t.latest[objectKey{name: name, inode: inode{number: number}}]}
}

// replaces reports whether another file is known by the name of a file without build-id, as that was in its place before.
func (t *tracker) replaces(name string, buildID []byte, of inode) bool {
	if len(buildID) > 0 || of.number == 0 {
		return false
	}
	for k := range t.known {
		if k.name == name && k.buildID == "" && k.inode != of {
			return true
		}
	}
	return false
}

// openMapped opens the file of a mapping, as the process sees it or, if it is gone, under its name. nil: that is another file.
// Some file systems (overlayfs, btrfs) number a file otherwise than the kernel does; then its name decides.
func (t *tracker) openMapped(pid int32, m procfs.Mapping) (*os.File, *syscall.Stat_t) {
	ways := t.ways(pid, m.Name, m.Start, m.End)
	for i, open := range []func() (*os.File, error){ways[0], ways[1], func() (*os.File, error) { return regular.Open(m.Name) }} {
		f, err := open()
		if err != nil {
			continue
		}
		if st, err := f.Stat(); err == nil {
			sys := st.Sys().(*syscall.Stat_t)
			if sys.Ino == m.Inode {
				return f, sys
			}
			if link, err := os.Readlink(mapFile(pid, m.Start, m.End)); i == 1 && err == nil && link == m.Name {
				return f, sys
			}
		}
		f.Close()
	}
	return nil, nil
}

// fileID returns the build-id of a mapped file, or nil if there is none. It is read from the
// file as the process sees it.
func (t *tracker) fileID(pid int32, m procfs.Mapping) []byte {
	if m.Inode == 0 || !strings.HasPrefix(m.Name, "/") {
		return nil
	}
	if id, ok := t.knownID(pid, m); ok {
		return id
	}
	f, sys := t.openMapped(pid, m)
	if f == nil {
		return nil
	}
	defer f.Close()
	k := keyOf(sys)
	id, ok := t.ids[k]
	if !ok {
		if len(t.ids) >= manyFiles {
			clear(t.ids)
		}
		id, _ = abi.BuildID(f)
		t.ids[k] = id
	}
	return id
}

// knownID returns the build-id of a mapped file that was read before. It looks where openMapped does, in the same order, but
// opens nothing: a system-wide recording is asked hundreds of times a second.
func (t *tracker) knownID(pid int32, m procfs.Mapping) ([]byte, bool) {
	// A link may lead out of the process's root here; then the number is another one, or the file the same.
	for _, path := range []string{fmt.Sprintf("/proc/%d/root%s", pid, m.Name), mapFile(pid, m.Start, m.End), m.Name} {
		var st syscall.Stat_t
		if syscall.Stat(path, &st) == nil && st.Ino == m.Inode {
			id, ok := t.ids[keyOf(&st)]
			return id, ok
		}
	}
	return nil, false
}
