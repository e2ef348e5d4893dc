package elfout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// ErrIsFolder and ErrNotRegular say why WriteFile leaves a target alone.
var (
	ErrIsFolder   = errors.New("is a folder")
	ErrNotRegular = errors.New("exists and is not a regular file")
)

// TempPrefix begins the names of the temporary files of WriteFile.
const TempPrefix = ".ehasm-"

// Bytes returns the file. The caller must not change it.
func (im *Image) Bytes() []byte { return im.bytes }

// BuildID returns the file's own build-id.
func (im *Image) BuildID() []byte { return bytes.Clone(im.buildID) }

// Size returns the size of the file in bytes.
func (im *Image) Size() int64 { return int64(len(im.bytes)) }

// TextSize returns the bytes of generated code, without ELF around them.
func (im *Image) TextSize() int64 { return int64(len(im.code.Text)) }

// DataSize returns the bytes of data that the code reads.
func (im *Image) DataSize() int64 { return int64(len(im.code.Data)) }

// WriteTo writes the file to w.
func (im *Image) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(im.bytes)
	return int64(n), err
}

// WriteFile writes the file to path, which either keeps what it held or holds
// the whole new file: the bytes go to a temporary file in the same folder, mode
// 0644 less the umask, that is renamed to path, and removed on any error. It
// replaces a regular file or a symbolic link and refuses anything else.
func (im *Image) WriteFile(path string) (err error) {
	if err := checkTarget(path); err != nil {
		return err
	}
	f, err := createTemp(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%s: cannot create a temporary file beside it: %w", path, reason(err))
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if _, err = im.WriteTo(f); err != nil {
		f.Close()
		return fmt.Errorf("%s: cannot write: %w", path, reason(err))
	}
	if err = f.Close(); err != nil {
		return fmt.Errorf("%s: cannot write: %w", path, reason(err))
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("%s: cannot rename the finished file: %w", path, reason(err))
	}
	return nil
}

// checkTarget refuses what a rename must not or cannot replace.
func checkTarget(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", path, reason(err))
	case st.IsDir():
		return fmt.Errorf("%s: %w", path, ErrIsFolder)
	case !st.Mode().IsRegular() && st.Mode()&fs.ModeSymlink == 0:
		return fmt.Errorf("%s: %w", path, ErrNotRegular)
	}
	return nil
}

// createTemp creates a new file in dir. os.CreateTemp gives mode 0600, and the
// umask that a later chmod would need cannot be read without changing it. The
// name does not derive from the target's, which may be as long as names can be.
func createTemp(dir string) (*os.File, error) {
	for tries := 0; ; tries++ {
		name := filepath.Join(dir, fmt.Sprintf("%s%016x.tmp", TempPrefix, rand.Uint64()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrExist) || tries == 100 {
			return f, err
		}
	}
}

// reason strips the operation and the path, which would name the temporary
// file, from an error of package os.
func reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
