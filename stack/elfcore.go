package stack

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// This file reads the ELF part of a core: program headers, segments and notes (gABI chapter 5, elf(5)). It takes files
// that are cut short, as by ulimit -c, with what they have.

// ErrNotCore says that a file is no core of an x86-64 program. Errors of functions that open cores wrap it.
var ErrNotCore = errors.New("not a core file of an x86-64 program")

// Sizes and offsets of ELF64 structures, and bounds on what is read of a core.
const (
	ehdrSize    = 64
	phdrSize    = 56
	manyPhdrs   = 0xffff  // PN_XNUM: section 0 has their number
	mostPhdrs   = 4 << 20 // a process may have a million mappings or more
	mostThreads = 1 << 20
	noteHeader  = 12      // struct Elf64_Nhdr: n_namesz, n_descsz, n_type
	mostNotes   = 1 << 30 // bytes; a thread has some KB
)

// segment is a PT_LOAD header: memory of the process. The file may have only its beginning, or nothing of it.
type segment struct {
	start, end uint64 // run-time addresses
	off, size  uint64 // in the file
	exec       bool
}

// image is an opened core: its headers. It is read by offset, and keeps no memory of the process.
type image struct {
	file     io.ReaderAt
	size     uint64    // of the file, in bytes
	wanted   uint64    // what its headers say
	segments []segment // ascending
	notes    []segment // offsets and sizes alone
}

// openImage reads the headers of a core of size bytes. Segments that lie behind the end of the file are kept: their
// addresses were mapped.
func openImage(file io.ReaderAt, size int64) (*image, error) {
	var h [ehdrSize]byte
	if n, err := file.ReadAt(h[:], 0); n < len(h) {
		if err == io.EOF {
			return nil, fmt.Errorf("%w: it has %d bytes", ErrNotCore, n)
		}
		return nil, err
	}
	off, n, err := programHeaders(&h)
	if err != nil {
		return nil, err
	}
	im := &image{file: file, size: uint64(size)}
	if n == manyPhdrs {
		if n, err = im.many(off, binary.LittleEndian.Uint64(h[40:])); err != nil {
			return nil, err
		}
	}
	if n > mostPhdrs || off > im.size || n*phdrSize > im.size-off {
		return nil, fmt.Errorf("core cut short: %d program headers at offset %d of %d bytes", n, off, size)
	}
	// n is in bounds of the file, so a small core allocates little
	table := make([]byte, n*phdrSize)
	if _, err := file.ReadAt(table, int64(off)); err != nil && err != io.EOF {
		return nil, err
	}
	for ; len(table) > 0; table = table[phdrSize:] {
		im.add(table[:phdrSize])
	}
	slices.SortStableFunc(im.segments, func(a, b segment) int { return cmp.Compare(a.start, b.start) })
	return im, nil
}

// programHeaders returns the offset and the number of a core's program headers, which may be manyPhdrs.
func programHeaders(h *[ehdrSize]byte) (off, n uint64, err error) {
	le := binary.LittleEndian
	kind, machine := elf.Type(le.Uint16(h[16:])), elf.Machine(le.Uint16(h[18:]))
	switch {
	case string(h[:4]) != elf.ELFMAG:
		return 0, 0, fmt.Errorf("%w: no ELF file", ErrNotCore)
	case h[elf.EI_CLASS] != byte(elf.ELFCLASS64) || h[elf.EI_DATA] != byte(elf.ELFDATA2LSB) || machine != elf.EM_X86_64:
		return 0, 0, fmt.Errorf("%w: %v, %v", ErrNotCore, elf.Class(h[elf.EI_CLASS]), machine)
	case kind != elf.ET_CORE:
		return 0, 0, fmt.Errorf("%w: its type is %v", ErrNotCore, kind)
	case le.Uint16(h[54:]) != phdrSize:
		return 0, 0, fmt.Errorf("%w: program headers of %d bytes", ErrNotCore, le.Uint16(h[54:]))
	}
	return le.Uint64(h[32:]), uint64(le.Uint16(h[56:])), nil
}

// many returns the number of program headers if it does not fit the ELF header. Section 0 has it, which Linux writes at
// the end of the core. If section 0 is missing, the number follows from the offset of the notes, behind the headers.
func (im *image) many(headers, sections uint64) (uint64, error) {
	const infoOffset = 44 // of sh_info
	le := binary.LittleEndian
	var section [64]byte
	if im.fill(section[:], sections) == nil {
		return uint64(le.Uint32(section[infoOffset:])), nil
	}
	var first [phdrSize]byte
	if err := im.fill(first[:], headers); err != nil {
		return 0, fmt.Errorf("core cut short: the number of its program headers is missing")
	}
	return notesNumber(first[:], headers)
}

// notesNumber returns the number of program headers from the first of them and their offset, as Linux writes them.
func notesNumber(first []byte, headers uint64) (uint64, error) {
	le := binary.LittleEndian
	notes := le.Uint64(first[8:])
	if elf.ProgType(le.Uint32(first)) != elf.PT_NOTE || notes < headers || (notes-headers)%phdrSize != 0 {
		return 0, errors.New("core cut short: the number of its program headers is missing")
	}
	return (notes - headers) / phdrSize, nil
}

// add takes a program header. One whose end lies beyond the last address or offset is left out. Offsets in it: gABI,
// Elf64_Phdr: p_type 0, p_flags 4, p_offset 8, p_vaddr 16, p_filesz 32, p_memsz 40.
func (im *image) add(p []byte) {
	le := binary.LittleEndian
	s := segment{start: le.Uint64(p[16:]), off: le.Uint64(p[8:]), size: le.Uint64(p[32:]),
		exec: elf.ProgFlag(le.Uint32(p[4:]))&elf.PF_X != 0}
	s.end = s.start + le.Uint64(p[40:])
	if s.off+s.size < s.off || s.end < s.start {
		return
	}
	im.wanted = max(im.wanted, s.off+s.size)
	switch elf.ProgType(le.Uint32(p)) {
	case elf.PT_LOAD:
		if s.start < s.end {
			im.segments = append(im.segments, s)
		}
	case elf.PT_NOTE:
		im.notes = append(im.notes, s)
	}
}

// find returns the segment at an address, or nil.
func (im *image) find(addr uint64) *segment {
	i := sort.Search(len(im.segments), func(i int) bool { return im.segments[i].end > addr })
	if i < len(im.segments) && im.segments[i].start <= addr {
		return &im.segments[i]
	}
	return nil
}

// read is a memory: it reads what the file has, over the borders of adjacent segments. Memory that a segment has and
// the file has not (p_memsz above p_filesz) is unreadable: gdb leaves out what it can find in files, so it need not be
// zero.
func (im *image) read(p []byte, addr uint64) (n int) {
	for n < len(p) {
		s := im.find(addr)
		if s == nil || addr-s.start >= s.size {
			break
		}
		part := p[n:]
		part = part[:min(uint64(len(part)), s.size-(addr-s.start), s.end-addr)]
		// offsets beyond 2^62 would be negative for ReadAt
		got, _ := im.file.ReadAt(part, int64((s.off+addr-s.start)&(1<<62-1)))
		n, addr = n+got, addr+uint64(got)
		if got < len(part) {
			break
		}
	}
	return n
}

// region returns the bounds of the segment at an address, or two zeros.
func (im *image) region(addr uint64) (start, end uint64) {
	if s := im.find(addr); s != nil {
		return s.start, s.end
	}
	return 0, 0
}

// eachNote calls f with the type and the contents of notes. want returns how many bytes of a type of note to pass on;
// 0 skips the note. eachNote returns false if the notes are cut short.
func (im *image) eachNote(want func(kind uint32) int, f func(kind uint32, desc []byte)) bool {
	le := binary.LittleEndian
	whole := len(im.notes) > 0
	for _, s := range im.notes {
		for off, end := s.off, s.off+s.size; off < end; {
			var h [noteHeader]byte
			if end-off < noteHeader || off-s.off > mostNotes || im.fill(h[:], off) != nil {
				whole = false
				break
			}
			name, size, kind := uint64(le.Uint32(h[:])), uint64(le.Uint32(h[4:])), le.Uint32(h[8:])
			off += noteHeader + aligned(name)
			if most := want(kind); most > 0 {
				desc := make([]byte, min(size, uint64(most), im.size-min(off, im.size)))
				if im.fill(desc, off) != nil || off+size > im.size {
					whole = false
					break
				}
				f(kind, desc)
			}
			off += aligned(size)
		}
	}
	return whole
}

// aligned rounds up to the alignment of notes in cores: 4 bytes.
func aligned(n uint64) uint64 { return (n + 3) &^ 3 }

// fill reads bytes of the file: all of p, or it returns why not.
func (im *image) fill(p []byte, off uint64) error {
	if n, err := im.file.ReadAt(p, int64(off&(1<<62-1))); n < len(p) {
		return err
	}
	return nil
}
