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

// TableKey returns the number by which a cache finds the eh_elf of an object without a build-id: the XXH64 of the segment
// PT_GNU_EH_FRAME, the search table of .eh_frame. Objects with the same key may differ: Content tells them apart.
func TableKey(r io.ReaderAt) (uint64, error) {
	const ptGNUEHFrame = 0x6474e550
	headers, err := programHeaders(r)
	if err != nil {
		return 0, err
	}
	for _, p := range headers {
		if p.kind == ptGNUEHFrame {
			c, err := Content{Low: p.addr, Size: p.memsz}.Of(r)
			return c.Hash, err
		}
	}
	return 0, fmt.Errorf("%w: no PT_GNU_EH_FRAME", ErrNoContent)
}

// programHeader is an Elf64_Phdr (gABI chapter 5).
type programHeader struct {
	kind, flags              uint32
	off, addr, filesz, memsz uint64
}

// programHeaders reads the program headers of an ELF64 file, little-endian.
func programHeaders(r io.ReaderAt) ([]programHeader, error) {
	const ehdrSize, phdrSize = 64, 56
	le := binary.LittleEndian
	ehdr := make([]byte, ehdrSize)
	if _, err := r.ReadAt(ehdr, 0); err != nil {
		return nil, fmt.Errorf("reading the ELF header: %w", err)
	}
	phoff, size, num := le.Uint64(ehdr[32:]), le.Uint16(ehdr[54:]), le.Uint16(ehdr[56:])
	if string(ehdr[:6]) != "\x7fELF\x02\x01" || size != phdrSize || phoff > 1<<62 {
		return nil, fmt.Errorf("%w: no ELF64 program headers", ErrNoContent)
	}
	b := make([]byte, int(num)*phdrSize)
	if _, err := r.ReadAt(b, int64(phoff)); err != nil {
		return nil, fmt.Errorf("reading the program headers: %w", err)
	}
	headers := make([]programHeader, 0, num)
	for ; len(b) > 0; b = b[phdrSize:] {
		headers = append(headers, programHeader{
			kind: le.Uint32(b), flags: le.Uint32(b[4:]), off: le.Uint64(b[8:]), addr: le.Uint64(b[16:]),
			filesz: le.Uint64(b[32:]), memsz: le.Uint64(b[40:]),
		})
	}
	return headers, nil
}

// offset returns the file offset of the range.
func (c Content) offset(r io.ReaderAt) (uint64, error) {
	const ptLoad, pfW, pfR = 1, 2, 4
	headers, err := programHeaders(r)
	if err != nil {
		return 0, err
	}
	for _, p := range headers {
		if p.kind == ptLoad && p.flags&(pfR|pfW) == pfR && c.Size > 0 && c.Low >= p.addr &&
			c.Low-p.addr <= p.filesz && c.Size <= p.filesz-(c.Low-p.addr) && p.off < 1<<62 && p.filesz < 1<<62 {
			return p.off + c.Low - p.addr, nil
		}
	}
	return 0, fmt.Errorf("%w: %#x bytes at %#x", ErrNoContent, c.Size, c.Low)
}
