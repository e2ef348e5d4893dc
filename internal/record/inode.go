//go:build linux && amd64

package record

import (
	"os"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/abi"
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

// fileID returns the build-id of a mapped file, or nil if there is none. It is read from the
// file as the process sees it.
func (t *tracker) fileID(pid int32, m procMapping) []byte {
	if m.inode == 0 || !strings.HasPrefix(m.name, "/") {
		return nil
	}
	ways := t.ways(pid, m.name, m.start, m.end)
	f, err := ways[0]()
	if err != nil {
		f, err = ways[1]()
	}
	if err != nil { // the process is gone
		f, err = os.Open(m.name)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	sys := st.Sys().(*syscall.Stat_t)
	if sys.Ino != m.inode {
		return nil
	}
	k := fileKey{sys.Dev, sys.Ino, sys.Size, sys.Ctim}
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
