package ehelf_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
)

// relro returns the hand-made eh_elf as it is made for old glibc: its third
// segment is writable, and PT_GNU_RELRO, its last header, covers that.
func relro(t testing.TB) []byte {
	t.Helper()
	src := source
	src.Relro = true
	return imageOf(t, elfouttest.Tiny(), src)
}

// Offsets of program headers and of their fields.
const (
	textHeader, dynamicHeader, relroHeader = 64 + 56, 64 + 2*56, 64 + 7*56

	inFlags, inAddr, inFileSize, inMemSize = 4, 16, 32, 40
)

func TestRelroParse(t *testing.T) {
	b := relro(t)
	require.NoError(t, ehelf.ParseOnly(b))
	f, err := elf.NewFile(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, elf.PT_LOAD, f.Progs[2].Type)
	require.Equal(t, elf.PT_GNU_RELRO, f.Progs[7].Type)

	dynamic := f.Section(".dynamic")
	for n := range b {
		if err := ehelf.ParseOnly(b[:n]); uint64(n) >= dynamic.Offset+dynamic.Size {
			require.NoError(t, err, "cut at %d", n)
		} else {
			require.ErrorIs(t, err, ehelf.ErrNotEhElf, "cut at %d", n)
		}
	}
	checkDamaged(t, b)
}

// TestRelroRefuses: what is writable and not just that one segment is refused.
func TestRelroRefuses(t *testing.T) {
	le := binary.LittleEndian
	add := func(b []byte, off int, n uint64) { le.PutUint64(b[off:], le.Uint64(b[off:])+n) }
	for name, change := range map[string]func(b []byte){
		"no RELRO":          func(b []byte) { le.PutUint32(b[relroHeader:], 0) },
		"RELRO too short":   func(b []byte) { add(b, relroHeader+inMemSize, ^uint64(0)) },
		"RELRO begins late": func(b []byte) { add(b, relroHeader+inAddr, 1) },
		"RELRO ends early":  func(b []byte) { add(b, relroHeader+inAddr, ^uint64(0)) },
		"RELRO elsewhere":   func(b []byte) { add(b, relroHeader+inAddr, 1<<20) },
		"RELRO of nothing":  func(b []byte) { le.PutUint64(b[relroHeader+inMemSize:], 0) },
		"RELRO below":       func(b []byte) { le.PutUint64(b[relroHeader+inAddr:], 0) },
		"second RELRO": func(b []byte) {
			copy(b[relroHeader-56:], b[relroHeader:relroHeader+56])
			add(b, relroHeader+inAddr, 1)
		},
		"executable":    func(b []byte) { b[dynamicHeader+inFlags] |= 1 },
		"writable code": func(b []byte) { b[textHeader+inFlags] |= 2 },
		"writable data": func(b []byte) { b[64+inFlags] |= 2 },
		"writable code in RELRO": func(b []byte) {
			b[textHeader+inFlags] |= 2
			le.PutUint64(b[relroHeader+inAddr:], 0)
			le.PutUint64(b[relroHeader+inMemSize:], 1<<20)
		},
		"RELRO wraps": func(b []byte) {
			le.PutUint64(b[relroHeader+inAddr:], ^uint64(0))
			le.PutUint64(b[relroHeader+inMemSize:], ^uint64(0))
		},
		"larger than RELRO": func(b []byte) { add(b, dynamicHeader+inMemSize, 1) },
		"memory of a page more": func(b []byte) {
			add(b, dynamicHeader+inMemSize, 0x1000)
			add(b, relroHeader+inMemSize, 0x1000)
		},
		"memory below file":   func(b []byte) { le.PutUint64(b[dynamicHeader+inMemSize:], 0x7f) },
		"nothing of the file": func(b []byte) { le.PutUint64(b[dynamicHeader+inFileSize:], 0) },
		"memory wraps":        func(b []byte) { le.PutUint64(b[dynamicHeader+inMemSize:], ^uint64(0)) },
		"not writable":        func(b []byte) { b[dynamicHeader+inFlags] &^= 2 }, // and of more memory than file
	} {
		t.Run(name, func(t *testing.T) {
			b := relro(t)
			change(b)
			require.ErrorIs(t, ehelf.ParseOnly(b), ehelf.ErrNotEhElf)
			_, err := ehelf.FromBytes(b)
			require.Error(t, err)
		})
	}
	// strip may take from the segment what no section covers.
	b := relro(t)
	le.PutUint64(b[dynamicHeader+inMemSize:], le.Uint64(b[dynamicHeader+inFileSize:]))
	require.NoError(t, ehelf.ParseOnly(b), "less than RELRO")
}
