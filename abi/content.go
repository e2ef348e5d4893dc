package abi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// This file compares objects by content (docs/abi.md). A process can do the same with its own memory:
// runtime/src/content.c.

// ErrNoContent is wrapped by the errors of ReadPart: the object does not have the
// bytes in question, or they may differ in memory.
var ErrNoContent = errors.New("no such bytes in the object's read-only segments")

// ErrMismatch is wrapped by the errors of Note.Check: an eh_elf was made from another object.
var ErrMismatch = errors.New("eh_elf of another object")

// Part is a range of an object's image with the hash of its bytes.
type Part struct {
	Low  uint64 // link-time address of the first byte
	Size uint64 // bytes, not 0
	Hash uint64 // XXH64 of them, seed 0
}

// Content identifies an object by those parts of its image that the rows and sites of its eh_elf are read from, at most
// MaxParts. An empty one is no object's. The order is the note's, and counts.
type Content []Part

// MaxParts is how many parts a Content has at most.
const MaxParts = 8

// ReadPart returns the part of size bytes at low of the object that r reads. One readable PT_LOAD that is not writable
// must map the whole range from the file, so that file and memory agree. ReadPart reads only the headers and the range.
// The error wraps ErrNoContent if no segment has the range; others come from r.
func ReadPart(r io.ReaderAt, low, size uint64) (Part, error) {
	headers, err := programHeaders(r)
	if err != nil {
		return Part{}, err
	}
	return readPart(r, headers, low, size)
}

func readPart(r io.ReaderAt, headers []programHeader, low, size uint64) (Part, error) {
	off, err := offset(headers, low, size)
	if err != nil {
		return Part{}, err
	}
	h := xxhash.New()
	n, err := io.Copy(h, io.NewSectionReader(r, int64(off), int64(size)))
	if err != nil {
		return Part{}, fmt.Errorf("reading %#x bytes at %#x: %w", size, off, err)
	}
	if uint64(n) != size {
		return Part{}, fmt.Errorf("%w: the file ends at %#x", ErrNoContent, off+uint64(n))
	}
	return Part{Low: low, Size: size, Hash: h.Sum64()}, nil
}

// Check returns an error that wraps ErrMismatch unless the eh_elf with this note was made from the object that r reads:
// they have the same build-id, or none, and the same bytes in each part of the content. A build-id alone proves
// nothing: who makes a file chooses it, and tools that rewrite files keep it. Check reads and hashes all parts, such as
// .eh_frame and, for rows made from code, the code.
func (n *Note) Check(r io.ReaderAt) error {
	if r == nil {
		return fmt.Errorf("%w: no object to compare with", ErrMismatch)
	}
	id, err := BuildID(r)
	if err != nil {
		return fmt.Errorf("%w: the object: %w", ErrMismatch, err)
	}
	if !bytes.Equal(n.BuildID, id) {
		return fmt.Errorf("%w: made from build-id %s, object has %s", ErrMismatch, idString(n.BuildID), idString(id))
	}
	if len(n.Content) == 0 {
		return fmt.Errorf("%w: it does not say of which content; make it again", ErrMismatch)
	}
	headers, err := programHeaders(r)
	if err != nil {
		return fmt.Errorf("%w: the object: %w", ErrMismatch, err)
	}
	for _, want := range n.Content {
		got, err := readPart(r, headers, want.Low, want.Size)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrMismatch, err)
		}
		if got != want {
			return fmt.Errorf("%w: other content: XXH64 of %#x bytes at %#x is %#x, of the object it was made from %#x",
				ErrMismatch, got.Size, got.Low, got.Hash, want.Hash)
		}
	}
	return nil
}

// idString returns a build-id in hexadecimal digits, for messages.
func idString(id []byte) string {
	if len(id) == 0 {
		return "none"
	}
	return fmt.Sprintf("%x", id)
}

// TableKey returns the number by which a cache finds the eh_elf of an object without a build-id: the XXH64 of the
// segment PT_GNU_EH_FRAME, the search table of .eh_frame. Objects with the same key may differ: Note.Check tells them
// apart. PT_GNU_EH_FRAME survives strip, and is small: 12 bytes and 8 for each FDE. The error wraps ErrNoContent
// without one.
func TableKey(r io.ReaderAt) (uint64, error) {
	const ptGNUEHFrame = 0x6474e550
	headers, err := programHeaders(r)
	if err != nil {
		return 0, err
	}
	for _, p := range headers {
		if p.kind == ptGNUEHFrame {
			part, err := readPart(r, headers, p.addr, p.memsz)
			return part.Hash, err
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

// offset returns the file offset of a range of the image. The first segment that holds the range whole counts. Files
// with more are not what linkers make.
func offset(headers []programHeader, low, size uint64) (uint64, error) {
	const ptLoad, pfW, pfR = 1, 2, 4
	for _, p := range headers {
		if p.kind == ptLoad && p.flags&(pfR|pfW) == pfR && size > 0 && low >= p.addr &&
			low-p.addr <= p.filesz && size <= p.filesz-(low-p.addr) && p.off < 1<<62 && p.filesz < 1<<62 {
			return p.off + low - p.addr, nil
		}
	}
	return 0, fmt.Errorf("%w: %#x bytes at %#x", ErrNoContent, size, low)
}
