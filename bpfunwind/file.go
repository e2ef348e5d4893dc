package bpfunwind

import (
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"

	"github.com/ehasm/ehasm/abi"
)

// This file wraps tables for a cache: with what they were made from, and with a hash, since they go into the kernel
// without another proof.

// Origin says what the tables of a file were made from. Note.Check tells whether an object is the one.
type Origin struct {
	Note abi.Note
	Made string // the release and the options
}

// errDamaged says that a file is not as it was written.
var errDamaged = errors.New("a damaged file of tables, or one of another release")

// The form of files: a magic number, the XXH64 of all that follows, the lengths of Made and of the note (u32), both,
// and the tables.
const (
	fileMagic = "bpfufil2"
	fileHash  = len(fileMagic)
	fileSizes = fileHash + 8
	fileTexts = fileSizes + 8
)

// AppendFile appends the tables for ParseFile.
func (ts *Tables) AppendFile(b []byte, from Origin) []byte {
	first, note := len(b), from.Note.Bytes()
	b = append(append(b, fileMagic...), make([]byte, 8)...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(from.Made)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(note)))
	b, _ = ts.AppendBinary(append(append(b, from.Made...), note...))
	binary.LittleEndian.PutUint64(b[first+fileHash:], xxhash.Sum64(b[first+fileSizes:]))
	return b
}

// ParseFile returns the tables that AppendFile appended. They refer to b. It checks what ParseTables does, and that the
// bytes are those written; whether the tables mean the rows of an object was shown when they were made.
func ParseFile(b []byte) (from Origin, ts *Tables, err error) {
	if len(b) < fileTexts || string(b[:fileHash]) != fileMagic ||
		xxhash.Sum64(b[fileSizes:]) != binary.LittleEndian.Uint64(b[fileHash:]) {
		return from, nil, errDamaged
	}
	how, note := uint64(binary.LittleEndian.Uint32(b[fileSizes:])), uint64(binary.LittleEndian.Uint32(b[fileSizes+4:]))
	if b = b[fileTexts:]; how+note > uint64(len(b)) {
		return from, nil, errDamaged
	}
	from.Made = string(b[:how])
	if from.Note, err = abi.ParseNote(b[how : how+note]); err != nil {
		return from, nil, err
	}
	ts, err = ParseTables(b[how+note:])
	return from, ts, err
}
