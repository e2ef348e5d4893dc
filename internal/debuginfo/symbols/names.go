package symbols

import (
	"bytes"
	"debug/elf"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/internal/files/input"
)

// fileNames reads names from the string table of a file when they are needed: of the names of a large program, a
// recording needs a few. The file stays open, since programs are removed while they run; it is closed with the last
// reference to it.
type fileNames struct {
	file   *os.File
	info   os.FileInfo // of the file when its symbols were read
	offset int64       // of the string table in the file
	size   int64       // of the string table

	mu    sync.Mutex
	known map[uint32]string // those read, by offset in the string table
}

// namesIn returns what reads names from a string table of the file r later; nil: they must be kept. A compressed table
// cannot be read in parts.
func namesIn(table *elf.Section, r io.ReaderAt, open *OpenFiles) *fileNames {
	const worthIt = 64 << 10 // bytes; a file costs more than the names of a small library
	file, ok := r.(*os.File)
	if !ok || open == nil || table.Flags&elf.SHF_COMPRESSED != 0 || table.Size < worthIt {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return nil
	}
	if !open.take() {
		return nil
	}
	n := &fileNames{file: file, info: info, offset: int64(table.Offset), size: int64(table.Size),
		known: make(map[uint32]string)}
	// os.File closes itself when nothing refers to it; this gives back its place among the open ones
	runtime.AddCleanup(n, (*OpenFiles).give, open)
	return n
}

// OpenFiles is how many files tables may keep open together. It is safe for concurrent use.
type OpenFiles struct{ left atomic.Int64 }

// NewOpenFiles returns room for n files.
func NewOpenFiles(files int) *OpenFiles {
	o := new(OpenFiles)
	o.left.Store(int64(files))
	return o
}

// take takes room for a file, and returns false if there is none. A nil OpenFiles has room for any number.
func (o *OpenFiles) take() bool {
	if o == nil {
		return true
	}
	if o.left.Add(-1) < 0 {
		o.left.Add(1)
		return false
	}
	return true
}

// give gives room back.
func (o *OpenFiles) give() {
	if o != nil {
		o.left.Add(1)
	}
}

// get returns the name at an offset in the string table, or as much of it as is ever shown; "" if the file has changed.
// It is safe for concurrent use.
func (n *fileNames) get(off uint32) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.known[off]
	if !ok {
		name = n.read(int64(off))
		n.known[off] = name
	}
	return name
}

// read is get for a name that is not known yet. It looks at the file after reading: a write in between has changed its
// times.
func (n *fileNames) read(off int64) string {
	const usual = 256 // bytes, more than most names have
	b := make([]byte, min(usual, n.size-off))
	m, err := n.file.ReadAt(b, n.offset+off)
	// a longer name, of which Cut leaves no more than longestName
	if bytes.IndexByte(b[:m], 0) < 0 && m == usual {
		b = make([]byte, min(longestName, n.size-off))
		m, err = n.file.ReadAt(b, n.offset+off)
	}
	if m < len(b) && err != nil {
		return ""
	}
	if st, err := n.file.Stat(); err != nil || !input.Same(st, n.info) {
		return ""
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// memoryNames returns the names of symbols, by their numbers. It copies them, as they may be a small part of what a
// file has, into memory without gaps, unless they are longer than usual: those of a hostile file may all be parts of
// one long string.
func memoryNames(list []*Symbol) []string {
	const usual = 16 << 20 // bytes of all names
	total := 0
	for _, s := range list {
		if total += len(s.Name); total > usual {
			break
		}
	}
	var text strings.Builder
	if total <= usual {
		text.Grow(total)
	}
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Name
		if total <= usual {
			from := text.Len()
			text.WriteString(s.Name)
			names[i] = text.String()[from:]
		}
	}
	return names
}
