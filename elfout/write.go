package elfout

import (
	"bytes"
	"io"

	"github.com/ehasm/ehasm/internal/files/output"
)

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

// WriteFile writes the file to path, atomically, with mode 0644 minus the
// umask. It replaces a regular file or a symbolic link; anything else is an
// error.
func (im *Image) WriteFile(path string) error {
	return output.WriteFile(path, im.bytes, output.PermCode)
}
