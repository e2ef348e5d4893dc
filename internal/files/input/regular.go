package input

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Errors about files that are not opened; they are wrapped with the path.
var (
	ErrNotRegular = errors.New("not a regular file")
	// ErrEmpty is about files without bytes, also those of /proc, whose size is 0 whatever can be read.
	ErrEmpty = errors.New("an empty file")
	// ErrSparse is about files that are far larger than their blocks on the disk: their
	// zeros cost the writer nothing, but their readers memory.
	ErrSparse = errors.New("a file that is mostly holes")
)

// A file of more than plainSize bytes may have sparsest times the bytes that the disk has of it.
const (
	plainSize = 64 << 20
	sparsest  = 16
)

// Open opens the file at path for reading.
func Open(path string) (*os.File, error) { return open(path) }

// Same reports whether two descriptions are of the same file, and it was not written to in between.
func Same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// check returns why a file must not be opened, or nil.
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
