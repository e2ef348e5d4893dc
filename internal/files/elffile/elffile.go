// Package elffile opens ELF files from any source, hostile ones included, and reads the relocations that a loader
// applies to them before their code runs.
package elffile

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ErrNotELF is about files that begin otherwise than ELF files.
var ErrNotELF = errors.New("not an ELF file")

// Open is elf.NewFile, with more errors: ErrNotELF, where elf.NewFile panics, and for files whose
// compressed sections would take more memory than Warranted allows for the bytes that they have in
// the file.
func Open(r io.ReaderAt) (f *elf.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, fmt.Errorf("debug/elf: %v", p)
		}
	}()
	// Looked at first, as errors of debug/elf have no value to compare with.
	var magic [len(elf.ELFMAG)]byte
	if n, err := r.ReadAt(magic[:], 0); (err == nil || errors.Is(err, io.EOF)) && string(magic[:n]) != elf.ELFMAG {
		return nil, ErrNotELF
	}
	if f, err = elf.NewFile(r); err != nil {
		return nil, err
	}
	claimed, taken := uint64(0), []span{} // bytes that headers promise, and stretches that hold the compressed ones
	for _, s := range f.Sections {
		if size := inflatedSize(s); size > 0 {
			if claimed += min(size, 1<<50); readable(r, s) { // bounded, so that the sum does not overflow
				taken = append(taken, span{s.Offset, s.Offset + s.FileSize})
			}
		}
	}
	if raw := union(taken); claimed > Warranted(raw) { // sections may overlap: their common bytes count once
		return nil, fmt.Errorf("%d bytes of compressed sections are said to hold %d, more than %d for each and %d", raw,
			claimed, mostOfEach, free)
	}
	return f, nil
}

// Compressed debug information inflates to 2 to 9 times its size, for code made by programs, too.
// Single sections may inflate to hundreds of times.
const (
	mostOfEach = 64       // times
	free       = 16 << 20 // bytes for each file: of little code with large tables, the ratio says little
)

// Warranted returns how many bytes raw compressed bytes may inflate to.
func Warranted(raw uint64) uint64 { return mostOfEach*raw + free }

// span is a stretch of a file, [lo, hi).
type span struct{ lo, hi uint64 }

// union counts the bytes that spans cover.
func union(list []span) (n uint64) {
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	end := uint64(0)
	for _, s := range list {
		if s.hi > end {
			n += s.hi - max(s.lo, end)
			end = s.hi
		}
	}
	return n
}

// readable reports whether the file has all bytes of a section: its last one stands for them. Others promise nothing,
// as inflating them fails.
func readable(r io.ReaderAt, s *elf.Section) bool {
	var last [1]byte
	if s.FileSize == 0 || s.Offset+s.FileSize < s.Offset {
		return false
	}
	n, _ := r.ReadAt(last[:], int64(s.Offset+s.FileSize-1))
	return n == 1
}

// inflatedSize returns the size of a compressed section's content, as its header claims; 0 if it is not compressed.
func inflatedSize(s *elf.Section) uint64 {
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return s.Size
	}
	var old [12]byte // GNU's older form: "ZLIB" and the size
	if !strings.HasPrefix(s.Name, ".zdebug_") || s.Type == elf.SHT_NOBITS {
		return 0
	}
	if n, _ := s.ReadAt(old[:], 0); n < len(old) || string(old[:4]) != "ZLIB" {
		return 0
	}
	return binary.BigEndian.Uint64(old[4:])
}
