package abi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file finds build-ids without debug/elf: the unwinder and the profiler ask for the build-id of every mapped file,
// and need only its headers.

// ELF64 numbers (gABI chapters 4 and 5), little-endian.
const (
	ehdrSize = 64
	phdrSize = 56
	shdrSize = 64

	ptNote    = 4
	shtNote   = 7
	ntBuildID = 3       // NT_GNU_BUILD_ID, owner "GNU"
	maxNotes  = 1 << 20 // bytes of all note segments, or note sections, that are read
)

// ErrNotELF64 is wrapped if a file is not a little-endian ELF64 file.
var ErrNotELF64 = errors.New("not a little-endian ELF64 file")

// BuildID returns the build-id of the object that r reads: the desc of the first
// NT_GNU_BUILD_ID note in its note segments, then in its note sections. It is nil if the
// object has none; the error then is nil, too. Notes that reach past the end of the file
// are left out.
func BuildID(r io.ReaderAt) ([]byte, error) {
	ehdr := make([]byte, ehdrSize)
	if n, err := r.ReadAt(ehdr, 0); n < ehdrSize {
		if errors.Is(err, io.EOF) {
			return nil, ErrNotELF64
		}
		return nil, fmt.Errorf("reading the ELF header: %w", err)
	}
	if string(ehdr[:6]) != "\x7fELF\x02\x01" {
		return nil, ErrNotELF64
	}
	le := binary.LittleEndian
	for _, t := range []headers{
		{start: le.Uint64(ehdr[32:]), size: phdrSize, each: le.Uint16(ehdr[54:]), num: le.Uint16(ehdr[56:]), kind: 0,
			note: ptNote, off: 8, filesz: 32, align: 48},
		{start: le.Uint64(ehdr[40:]), size: shdrSize, each: le.Uint16(ehdr[58:]), num: le.Uint16(ehdr[60:]), kind: 4,
			note: shtNote, off: 24, filesz: 32, align: 48},
	} {
		if id := t.buildID(r); id != nil {
			return id, nil
		}
	}
	return nil, nil
}

// headers is a table of program or section headers: where it lies, and at which
// offsets an entry has what is needed.
type headers struct {
	start                    uint64
	size, each, num          uint16
	note                     uint32
	kind, off, filesz, align int
}

// buildID looks through the notes that a table of headers names, and returns nil without one.
func (t headers) buildID(r io.ReaderAt) []byte {
	// An entry size of 0, of a file without such headers, ends here too.
	if t.each != t.size || t.start > 1<<62 {
		return nil
	}
	table := make([]byte, int(t.num)*int(t.size))
	if _, err := r.ReadAt(table, int64(t.start)); err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	le := binary.LittleEndian
	left := uint64(maxNotes)
	for ; len(table) > 0; table = table[t.size:] {
		off, n := le.Uint64(table[t.off:]), le.Uint64(table[t.filesz:])
		if le.Uint32(table[t.kind:]) != t.note || off > 1<<62 || n > left {
			continue
		}
		left -= n
		notes := make([]byte, n)
		if got, err := r.ReadAt(notes, int64(off)); err != nil && got < len(notes) {
			continue
		}
		if id := buildIDIn(notes, le.Uint64(table[t.align:])); id != nil {
			return id
		}
	}
	return nil
}

// buildIDIn looks for the build-id in notes, which are aligned by 8 if align says so
// (gABI chapter 5, "Note Section") and by 4 otherwise.
func buildIDIn(notes []byte, align uint64) []byte {
	const header = 12
	if align != 8 {
		align = 4
	}
	le := binary.LittleEndian
	end := uint64(len(notes))
	pad := func(offset uint64) uint64 { return min((offset+align-1)&^(align-1), end) }
	for offset := uint64(0); end-offset >= header; {
		b := notes[offset:]
		name := offset + header
		nameSize, descSize := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		if nameSize > end-name {
			return nil
		}
		desc := pad(name + nameSize)
		if descSize > end-desc {
			return nil
		}
		if le.Uint32(b[8:]) == ntBuildID && string(notes[name:name+nameSize]) == "GNU\x00" && descSize > 0 {
			return bytes.Clone(notes[desc : desc+descSize])
		}
		offset = pad(desc + descSize)
	}
	return nil
}
