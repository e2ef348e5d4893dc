package abi_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// TestNote: what is written is read back, and files made before there was a content are
// read as ones that say nothing of it.
func TestNote(t *testing.T) {
	note := abi.Note{
		Version: abi.Version, Flags: abi.FlagPacked, Low: 1, High: 2, Ranges: 3, Rows: 4,
		BuildID: []byte{}, FileSize: 5, Content: abi.Content{{Low: 6, Size: 7, Hash: 1<<63 + 8}, {Low: 9, Size: 1}},
	}
	b := note.Bytes()
	require.Zero(t, len(b)%8)
	for _, more := range []string{"", "later versions may say more"} {
		got, err := abi.ParseNote(append(bytes.Clone(b), more...))
		require.NoError(t, err)
		require.Equal(t, note, got)
	}
	const part = 24
	// the last: earlier releases wrote no part
	for _, want := range []abi.Content{note.Content, note.Content[:1], nil, nil} {
		note.Content = want
		for range part {
			b = b[:len(b)-1]
			got, err := abi.ParseNote(b)
			require.NoError(t, err)
			require.Equal(t, note, got)
		}
	}
	_, err := abi.ParseNote(b[:len(b)-1])
	require.ErrorIs(t, err, abi.ErrBadNote)

	note.Content = make(abi.Content, abi.MaxParts+1)
	for i := range note.Content {
		note.Content[i].Size = 1
	}
	_, err = abi.ParseNote(note.Bytes())
	require.ErrorIs(t, err, abi.ErrBadNote)
}

// elf64 returns a file with two segments: 0x100 bytes at 0x1000 that may be read, and as
// many after them at 0x2000 that may be written.
func elf64() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0x400)
	for i := range b {
		b[i] = byte(i * 7)
	}
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint64(b[32:], 64) // e_phoff
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 2)
	for i, p := range [][4]uint64{{4, 0x200, 0x1000, 0x100}, {6, 0x300, 0x2000, 0x100}} {
		h := b[64+56*i:]
		le.PutUint32(h, 1) // PT_LOAD
		le.PutUint32(h[4:], uint32(p[0]))
		le.PutUint64(h[8:], p[1])
		le.PutUint64(h[16:], p[2])
		le.PutUint64(h[32:], p[3])
		le.PutUint64(h[40:], p[3])
	}
	return b
}

func TestReadPart(t *testing.T) {
	file := elf64()
	for _, c := range []abi.Part{{Low: 0x1000, Size: 0x100}, {Low: 0x1003, Size: 1}, {Low: 0x10ff, Size: 1}} {
		got, err := abi.ReadPart(bytes.NewReader(file), c.Low, c.Size)
		require.NoError(t, err)
		off := 0x200 + c.Low - 0x1000
		c.Hash = xxhash.Sum64(file[off : off+c.Size])
		require.Equal(t, c, got)
	}
	for name, c := range map[string]abi.Part{
		"nothing": {Low: 0x1000}, "before": {Low: 0xfff, Size: 2}, "behind": {Low: 0x1000, Size: 0x101},
		"elsewhere": {Low: 0x5000, Size: 1},
		"wraps":     {Low: 0x1001, Size: 1<<64 - 1}, "may be written": {Low: 0x2000, Size: 1},
		"end": {Low: 0x1100, Size: 1},
	} {
		_, err := abi.ReadPart(bytes.NewReader(file), c.Low, c.Size)
		require.ErrorIs(t, err, abi.ErrNoContent, name)
	}
	for n := range 0x300 { // cut anywhere
		_, err := abi.ReadPart(bytes.NewReader(file[:n]), 0x1000, 0x100)
		require.Error(t, err, "%#x bytes", n)
	}
	_, err := abi.ReadPart(strings.NewReader(strings.Repeat("x", 5000)), 0x1000, 0x100)
	require.ErrorIs(t, err, abi.ErrNoContent)
}

// TestNoteCheck: each part counts, and so does the build-id; what is unknown is no object's.
func TestNoteCheck(t *testing.T) {
	file := elf64()
	read := func(low, size uint64) abi.Part {
		p, err := abi.ReadPart(bytes.NewReader(file), low, size)
		require.NoError(t, err)
		return p
	}
	note := abi.Note{Content: abi.Content{read(0x1000, 0x10), read(0x1080, 0x10)}}
	require.NoError(t, note.Check(bytes.NewReader(file)))
	for offset := range len(file) {
		other := bytes.Clone(file)
		other[offset] ^= 1
		in := offset >= 0x200 && offset < 0x210 || offset >= 0x280 && offset < 0x290
		if err := note.Check(bytes.NewReader(other)); in {
			require.ErrorIs(t, err, abi.ErrMismatch, "%#x", offset)
		} else if offset >= 0x200 {
			require.NoError(t, err, "%#x", offset)
		}
	}
	require.ErrorIs(t, note.Check(nil), abi.ErrMismatch)
	require.ErrorIs(t, note.Check(bytes.NewReader(file[:0x250])), abi.ErrMismatch, "cut")
	require.ErrorIs(t, note.Check(strings.NewReader("")), abi.ErrMismatch)
	note.BuildID = []byte{1}
	require.ErrorIs(t, note.Check(bytes.NewReader(file)), abi.ErrMismatch, "build-id")
	note.BuildID, note.Content = nil, nil
	require.ErrorIs(t, note.Check(bytes.NewReader(file)), abi.ErrMismatch, "nothing is known")
}
