package elfout

import (
	"debug/elf"
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// This file writes and reads notes (gABI chapter 5, "Note Section"); abi says what ehasm's mean.

const (
	noteAlign      = 4  // of PT_NOTE, of names and descs within it (gABI chapter 5, as binutils reads it)
	noteHeaderSize = 12 // namesz, descsz, type
	noteGNUBuildID = 3  // NT_GNU_BUILD_ID
	buildIDSize    = 20 // bytes of the file's own build-id
)

// appendNote appends one note.
func appendNote(b []byte, owner string, typ uint32, desc []byte) []byte {
	b = le.AppendUint32(b, uint32(len(owner)+1))
	b = le.AppendUint32(b, uint32(len(desc)))
	b = le.AppendUint32(b, typ)
	b = append(b, owner...)
	b = append(b, 0)
	b = padTo(b, noteAlign)
	b = append(b, desc...)
	return padTo(b, noteAlign)
}

// padTo appends zeros up to a multiple of align.
func padTo(b []byte, align int) []byte {
	for len(b)%align != 0 {
		b = append(b, 0)
	}
	return b
}

// buildLines encodes the lines of the build note, each ended by a newline.
func buildLines(lines []string) ([]byte, error) {
	var b []byte
	for _, line := range lines {
		if strings.ContainsAny(line, "\n\x00") || !strings.Contains(line, "=") {
			return nil, fmt.Errorf("%w: build line %q is not one \"key=value\" line", ErrBadSource, line)
		}
		b = append(append(b, line...), '\n')
	}
	return b, nil
}

// eachNote calls f for each note of a PT_NOTE segment or SHT_NOTE section of alignment 4, until f returns false. A
// malformed note is an error. The desc is part of b. The last note may lack the padding behind its desc, as some
// producers leave it out.
func eachNote(b []byte, f func(owner string, typ uint32, desc []byte) bool) error {
	for len(b) > 0 {
		if len(b) < noteHeaderSize {
			return fmt.Errorf("note header of %d bytes", len(b))
		}
		nameSize, descSize := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
		typ := le.Uint32(b[8:])
		b = b[noteHeaderSize:]
		descOff := alignUp(nameSize, noteAlign)
		if descOff+descSize > uint64(len(b)) {
			return fmt.Errorf("note of %d+%d bytes in %d", nameSize, descSize, len(b))
		}
		owner := strings.TrimSuffix(string(b[:nameSize]), "\x00")
		if !f(owner, typ, b[descOff:descOff+descSize]) {
			return nil
		}
		b = b[min(descOff+alignUp(descSize, noteAlign), uint64(len(b))):]
	}
	return nil
}

// noteChunk returns the section of the identity notes. If there is a table of
// sites, a further note locates it.
func (im *Image) noteChunk(notes []byte) *chunk {
	if len(im.src.Sites) == 0 {
		return bytesChunk(abi.NoteSection, elf.SHT_NOTE, elf.SHF_ALLOC, noteAlign, notes)
	}
	notes = appendNote(notes, abi.NoteOwner, abi.NoteSites, make([]byte, abi.SitesNoteSize))
	c := bytesChunk(abi.NoteSection, elf.SHT_NOTE, elf.SHF_ALLOC, noteAlign, notes)
	c.write = func(dst []byte) {
		note := abi.SitesNote{Version: abi.SitesVersion, Addr: im.sites.addr, Size: im.sites.size}
		copy(dst[copy(dst, notes)-abi.SitesNoteSize:], note.Bytes()) // the desc of the last note
	}
	return c
}

// identity returns the desc of the identity note.
func (im *Image) identity() []byte {
	code, src := im.code, im.src
	note := abi.Note{
		Version: abi.Version,
		Low:     uint64(code.Low), High: uint64(code.High),
		Ranges: uint32(code.Ranges), Rows: uint32(code.Rows),
		BuildID: src.BuildID, FileSize: uint64(src.FileSize), Content: src.Content,
	}
	if code.NoDeref {
		note.Flags |= abi.FlagNoDeref
	}
	if code.Packed {
		note.Flags |= abi.FlagPacked
	}
	if src.HasSites {
		note.Flags |= abi.FlagSites
	}
	return note.Bytes()
}
