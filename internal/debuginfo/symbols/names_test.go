package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// namesFromFile reads the symbols of the file at path, whose names stay in the file if there is room for it.
func namesFromFile(t *testing.T, path string, room *OpenFiles) *Table {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	table, err := FromFiles(f, &Files{Open: room})
	require.NoError(t, err)
	if !table.Keeps(f) {
		f.Close()
	}
	return table
}

// TestNamesInFile: names read when they are needed are those that are read at once.
func TestNamesInFile(t *testing.T) {
	self, err := os.Executable() // has .gopclntab and maybe no .symtab
	require.NoError(t, err)
	for _, path := range []string{self, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} { // the latter has .dynsym
		image, err := os.ReadFile(path)
		require.NoError(t, err)
		want, err := FromELF(bytes.NewReader(image), "", nil, nil)
		require.NoError(t, err)
		got := namesFromFile(t, path, NewOpenFiles(1))
		require.Equal(t, want.Len(), got.Len())
		assert.Less(t, len(got.text), want.Len()/2, "most names are in the file")
		step := 1 + want.Len()/500
		var met []uint64
		for i := 0; i < want.Len(); i += step {
			met = append(met, want.list[i].start)
		}
		for _, addr := range met {
			assert.Equal(t, want.Find(addr), got.Find(addr))
		}
		few := got.Only(met)
		got.names.file.Close() // Only keeps nothing of it
		for _, addr := range met {
			assert.Equal(t, want.Find(addr), few.Find(addr))
		}
	}
}

// TestNamesOfAnyLength: names around the sizes that are read at a time, and up to the end of the string table.
func TestNamesOfAnyLength(t *testing.T) {
	const text = 0x1000
	var syms []byte
	strtab := []byte{0}
	lengths := []int{1, 255, 256, 257, 5000, longestName - 1, longestName, longestName + 1, 300}
	for i, n := range lengths {
		syms = binary.LittleEndian.AppendUint64(syms, uint64(len(strtab))|uint64(elf.STT_FUNC)<<32|1<<48)
		syms = binary.LittleEndian.AppendUint64(syms, uint64(text+i))
		syms = binary.LittleEndian.AppendUint64(syms, 1)
		strtab = append(append(strtab, strings.Repeat("n", n)...), 0)
	}
	strtab = strtab[:len(strtab)-1] // the last name ends with the table
	image := elfWith([]section{
		{name: ".text", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: 6, Addr: text},
			data: make([]byte, 4096)},
		{name: ".strtab", Section64: elf.Section64{Type: uint32(elf.SHT_STRTAB)}, data: strtab},
		{name: ".symtab", Section64: elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: 2, Entsize: symSize}, data: syms},
	})
	path := filepath.Join(t.TempDir(), "names")
	require.NoError(t, os.WriteFile(path, image, 0o600))
	whole, err := FromELF(bytes.NewReader(image), "", nil, nil)
	require.NoError(t, err)
	room := NewOpenFiles(1)
	table := namesFromFile(t, path, room)
	assert.Nil(t, namesFromFile(t, path, room).names, "no file more may stay open")
	require.NoError(t, os.Rename(path, path+".old"), "the file was open")
	path += ".old"
	for i, n := range lengths {
		s := table.Find(uint64(text + i))
		require.NotNil(t, s, n)
		assert.Len(t, s.Name, min(n, longestName))
		assert.Equal(t, Cut(whole.Find(uint64(text+i)).Name), Cut(s.Name), "as it is shown")
	}

	// A file that was written to may have other names there.
	table = namesFromFile(t, path, NewOpenFiles(1))
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	assert.Nil(t, table.Find(text))
}
