package abi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// ErrNoContent is wrapped by the errors of Content.Of: the object does not have the
// bytes in question, or they may differ in memory.
var ErrNoContent = errors.New("no such bytes in the object's read-only segments")

// Content identifies an object without a build-id by the bytes of its image from
// which its unwind tables come. Size 0 means that nothing is known.
type Content struct {
	Low  uint64 // link-time address of the first byte
	Size uint64 // bytes
	Hash uint64 // XXH64 of them, seed 0
}

// Of returns the content of the same range in the object that r reads. One readable
// PT_LOAD that is not writable must map the whole range from the file, so that file and
// memory agree. Of reads only the headers and the range.
func (c Content) Of(r io.ReaderAt) (Content, error) {
	off, err := c.offset(r)
	if err != nil {
		return Content{}, err
	}
	h := xxhash.New()
	n, err := io.Copy(h, io.NewSectionReader(r, int64(off), int64(c.Size)))
	if err != nil {
		return Content{}, fmt.Errorf("reading %#x bytes at %#x: %w", c.Size, off, err)
	}
	if uint64(n) != c.Size {
		return Content{}, fmt.Errorf("%w: the file ends at %#x", ErrNoContent, off+uint64(n))
	}
	return Content{Low: c.Low, Size: c.Size, Hash: h.Sum64()}, nil
}

// offset returns the file offset of the range. The headers are those of ELF64
// (gABI chapters 4 and 5), little-endian.
func (c Content) offset(r io.ReaderAt) (uint64, error) {
	const ehdrSize, phdrSize, ptLoad, pfW, pfR = 64, 56, 1, 2, 4
	le := binary.LittleEndian
	ehdr := make([]byte, ehdrSize)
	if _, err := r.ReadAt(ehdr, 0); err != nil {
		return 0, fmt.Errorf("reading the ELF header: %w", err)
	}
	phoff, size, num := le.Uint64(ehdr[32:]), le.Uint16(ehdr[54:]), le.Uint16(ehdr[56:])
	if string(ehdr[:6]) != "\x7fELF\x02\x01" || size != phdrSize || phoff > 1<<62 {
		return 0, fmt.Errorf("%w: no ELF64 program headers", ErrNoContent)
	}
	phdrs := make([]byte, int(num)*phdrSize)
	if _, err := r.ReadAt(phdrs, int64(phoff)); err != nil {
		return 0, fmt.Errorf("reading the program headers: %w", err)
	}
	for ; len(phdrs) > 0; phdrs = phdrs[phdrSize:] {
		flags, off, addr, filesz := le.Uint32(phdrs[4:]), le.Uint64(phdrs[8:]), le.Uint64(phdrs[16:]), le.Uint64(phdrs[32:])
		if le.Uint32(phdrs) == ptLoad && flags&(pfR|pfW) == pfR && c.Size > 0 && c.Low >= addr &&
			c.Low-addr <= filesz && c.Size <= filesz-(c.Low-addr) && off < 1<<62 && filesz < 1<<62 {
			return off + c.Low - addr, nil
		}
	}
	return 0, fmt.Errorf("%w: %#x bytes at %#x", ErrNoContent, c.Size, c.Low)
}
