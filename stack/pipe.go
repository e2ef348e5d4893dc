package stack

import (
	"bytes"
	"fmt"
	"io"
)

// This file reads cores that come by a pipe, which cannot seek: ELF header, program headers and notes, in this order,
// as the kernel writes them. What follows is spool.go's.

// mostHead bounds the headers and notes of a core that comes by a pipe, in bytes. A thread has 3 KB of notes.
const mostHead = 256 << 20

// headReader reads the beginning of a core, and no byte more than is asked for.
type headReader struct {
	in   io.Reader
	head bytes.Buffer // what was read so far
}

// until reads up to an offset; less is no error only if that much was read before.
func (r *headReader) until(end uint64) error {
	if end > mostHead {
		return fmt.Errorf("the headers and notes of the core reach to byte %d: from a pipe, at most %d are read", end,
			mostHead)
	}
	switch _, err := io.CopyN(&r.head, r.in, max(0, int64(end)-int64(r.head.Len()))); {
	case err == io.EOF:
		return fmt.Errorf("core cut short: %d bytes, and its headers and notes have %d", r.head.Len(), end)
	default:
		return err
	}
}

// image reads the headers. For more than 65,534 segments their number is in section 0, at the end of the core: it is
// worked out from where the notes are.
func (r *headReader) image() (*image, error) {
	if err := r.until(ehdrSize); err != nil {
		if r.head.Len() > 0 {
			return nil, fmt.Errorf("%w: it has %d bytes", ErrNotCore, r.head.Len())
		}
		return nil, err
	}
	off, n, err := programHeaders((*[ehdrSize]byte)(r.head.Bytes()))
	if err != nil {
		return nil, err
	}
	if off > mostHead {
		return nil, fmt.Errorf("%w: its program headers are at offset %d", ErrNotCore, off)
	}
	if n == manyPhdrs {
		if err = r.until(off + phdrSize); err != nil {
			return nil, err
		}
		if n, err = notesNumber(r.head.Bytes()[off:], off); err != nil {
			return nil, err
		}
	}
	if err := r.until(off + n*phdrSize); err != nil {
		return nil, err
	}
	return openImage(bytes.NewReader(r.head.Bytes()), int64(r.head.Len()))
}

// notes reads on to the end of the notes, and returns the core without memory.
func (r *headReader) notes(im *image) (*Core, error) {
	for _, n := range im.notes {
		if err := r.until(n.off + n.size); err != nil {
			return nil, err
		}
	}
	return coreOf(bytes.NewReader(r.head.Bytes()), int64(r.head.Len()))
}

// OpenDump reads the headers and notes of a core from the kernel's pipe, for Live.TakeDumped. It reads nothing behind
// them. The error wraps ErrNotCore if the pipe has no core.
func OpenDump(r io.Reader) (*Core, error) {
	head := headReader{in: r}
	im, err := head.image()
	if err != nil {
		return nil, err
	}
	return head.notes(im)
}
