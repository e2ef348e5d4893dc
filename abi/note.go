package abi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// This file has the encoding of the identity note. docs/abi.md is its description for other readers; runtime/src/load.c
// reads the notes in C.

// The identity notes, in the section .note.ehasm and a PT_NOTE segment.
const (
	NoteSection  = ".note.ehasm"
	NoteOwner    = "ehasm"
	NoteIdentity = 1 // desc: Note
	NoteBuild    = 2 // desc: how the file was made, "key=value" lines; informative
	NoteSites    = 3 // desc: SitesNote; only with FlagSites
)

// Bits of Note.Flags.
const (
	FlagNoDeref uint32 = 1 << 0 // _eh_elf has no deref argument
	FlagPacked  uint32 = 1 << 1 // packed dispatch
	FlagSites   uint32 = 1 << 2 // the file has what exceptions need; without NoteSites they pass over all frames
)

// ErrBadNote is wrapped by the errors of ParseNote.
var ErrBadNote = errors.New("malformed identity note")

// Note is the desc of the identity note.
type Note struct {
	Version  uint32
	Flags    uint32
	Low      uint64  // lowest pc covered, a link-time address
	High     uint64  // one past the highest pc covered
	Ranges   uint32  // number of row ranges
	Rows     uint32  // number of distinct rows
	BuildID  []byte  // the object's NT_GNU_BUILD_ID; empty if it has none
	FileSize uint64  // size of the object's file in bytes
	Content  Content // empty in files of ehasm 0.10.0 and before, which are no object's
}

const (
	noteFixed  = 4 + 4 + 8 + 8 + 4 + 4 + 4 // up to the bytes of the build-id
	noteUnused = 24                        // where earlier releases had the content of an object without a build-id; zero
	partSize   = 8 + 8 + 8
)

// Bytes encodes the desc, little-endian, its length a multiple of 8.
func (n Note) Bytes() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, noteFixed+len(n.BuildID)+16+noteUnused+partSize*(len(n.Content)+1))
	b = le.AppendUint32(b, n.Version)
	b = le.AppendUint32(b, n.Flags)
	b = le.AppendUint64(b, n.Low)
	b = le.AppendUint64(b, n.High)
	b = le.AppendUint32(b, n.Ranges)
	b = le.AppendUint32(b, n.Rows)
	b = le.AppendUint32(b, uint32(len(n.BuildID)))
	b = append(b, n.BuildID...)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	b = le.AppendUint64(b, n.FileSize)
	b = append(b, make([]byte, noteUnused)...)
	for _, p := range n.Content {
		b = le.AppendUint64(b, p.Low)
		b = le.AppendUint64(b, p.Size)
		b = le.AppendUint64(b, p.Hash)
	}
	return append(b, make([]byte, partSize)...) // a part without bytes ends them
}

// ParseNote decodes the desc of an identity note. It refuses a version it does not know. Bytes behind the empty part
// that ends the list are ignored. The error wraps ErrBadNote; for another version n.Version is set.
func ParseNote(b []byte) (Note, error) {
	le := binary.LittleEndian
	if len(b) < 4 {
		return Note{}, fmt.Errorf("%w: %d bytes", ErrBadNote, len(b))
	}
	n := Note{Version: le.Uint32(b)}
	if n.Version != Version {
		return n, fmt.Errorf("%w: ABI version %d, want %d", ErrBadNote, n.Version, Version)
	}
	if len(b) < noteFixed {
		return n, fmt.Errorf("%w: %d bytes", ErrBadNote, len(b))
	}
	n.Flags = le.Uint32(b[4:])
	n.Low = le.Uint64(b[8:])
	n.High = le.Uint64(b[16:])
	n.Ranges = le.Uint32(b[24:])
	n.Rows = le.Uint32(b[28:])
	idLen := uint64(le.Uint32(b[32:]))
	end := (noteFixed + idLen + 7) &^ 7
	if uint64(len(b)) < end+8 {
		return n, fmt.Errorf("%w: build-id of %d bytes in a desc of %d", ErrBadNote, idLen, len(b))
	}
	n.BuildID = bytes.Clone(b[noteFixed : noteFixed+idLen])
	n.FileSize = le.Uint64(b[end:])
	for b = b[min(end+8+noteUnused, uint64(len(b))):]; len(b) >= partSize; b = b[partSize:] {
		part := Part{Low: le.Uint64(b), Size: le.Uint64(b[8:]), Hash: le.Uint64(b[16:])}
		if part.Size == 0 {
			break
		}
		if len(n.Content) == MaxParts {
			return n, fmt.Errorf("%w: more than %d parts of content", ErrBadNote, MaxParts)
		}
		n.Content = append(n.Content, part)
	}
	return n, nil
}
