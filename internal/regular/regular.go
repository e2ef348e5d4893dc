// Package regular opens regular files and nothing else, whatever has the name by then: opening
// a FIFO waits for who writes to it, opening some devices does something, and some files of
// /proc block whoever reads them. The names come from recordings, from processes and from
// other files, so that anybody may have chosen them.
package regular

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Errors about what is not opened; they are wrapped with its path.
var (
	ErrNotRegular = errors.New("not a regular file")
	// ErrEmpty is about files without bytes, also those of /proc, whose size is 0 whatever can be read.
	ErrEmpty = errors.New("an empty file")
	// ErrSparse is about files that are far larger than what the disk has of them: their
	// zeros cost who made them nothing, and their readers memory.
	ErrSparse = errors.New("a file that is mostly holes")
)

// A file of more than plainSize bytes may have sparsest times the bytes that the disk has of it.
const (
	plainSize = 64 << 20
	sparsest  = 16
)

// Open opens the file at path for reading.
func Open(path string) (*os.File, error) { return open(path) }

// check returns why a file is not opened, or nil.
func check(path string, st fs.FileInfo) error {
	err := error(nil)
	switch {
	case !st.Mode().IsRegular():
		err = ErrNotRegular
	case st.Size() == 0:
		err = ErrEmpty
	case IsSparse(st):
		err = ErrSparse
	default:
		return nil
	}
	return fmt.Errorf("%s: %w", path, err)
}
