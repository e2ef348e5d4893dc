package gotable_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/files/gotable"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// program builds a Go program and returns its image, with its symbols.
func program(t *testing.T, flags ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", append(append([]string{"build", "-o", path}, flags...),
		"../../../dwarfcfa/testdata/cgo")...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	image, err := os.ReadFile(path)
	require.NoError(t, err)
	return image
}

// TestFunctions compares the functions with the symbols that Go's and C's linkers write.
func TestFunctions(t *testing.T) {
	testtool.Need(t, "gcc")
	for _, flag := range testtool.Sweep([]string{"-ldflags=-linkmode=internal", "-ldflags=-linkmode=external",
		"-buildmode=pie"}) {
		f, err := elf.NewFile(bytes.NewReader(program(t, flag)))
		require.NoError(t, err)
		symbols, err := f.Symbols()
		require.NoError(t, err)
		names := make(map[uint64][]string)
		for _, s := range symbols {
			names[s.Value] = append(names[s.Value], s.Name, s.Name+".abi0")
		}
		table, err := gotable.Open(f)
		require.NoError(t, err)
		list := table.Functions()
		assert.Greater(t, len(list), 1000)
		same := 0
		for i := range list {
			for _, name := range names[list[i].Lo] {
				if name == list[i].Name || name == list[i].Name+".abi0" {
					same++
					break
				}
			}
			depths, ok := table.Depths(nil, &list[i])
			for k, d := range depths {
				require.True(t, d.Lo < d.Hi && d.Hi <= list[i].Hi && (k == 0 || depths[k-1].Hi == d.Lo), "%v", depths)
			}
			if ok {
				require.Equal(t, list[i].Lo, depths[0].Lo)
			}
		}
		assert.Greater(t, float64(same), 0.97*float64(len(list)), "%s: %d of %d", flag, same, len(list))
	}
}

// TestDamaged: a damaged table is refused or has fewer functions; nothing panics.
func TestDamaged(t *testing.T) {
	image := program(t)
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	s := f.Section(".gopclntab")
	require.NotNil(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	for range testtool.Few(200, 50) {
		hurt := bytes.Clone(image)
		section := hurt[s.Offset : s.Offset+s.Size]
		for range 1 + random.IntN(4) {
			i := random.IntN(72)
			if random.IntN(2) == 0 {
				i = random.IntN(len(section))
			}
			section[i] = byte(random.Uint32())
		}
		table, err := elfTable(hurt)
		if err != nil {
			require.ErrorIs(t, err, gotable.ErrNone)
			continue
		}
		for _, fn := range table.Functions() {
			table.Depths(nil, &fn)
		}
	}
}

// TestOneName: functions that share a long name share its bytes.
func TestOneName(t *testing.T) {
	image := program(t)
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	s := f.Section(".gopclntab")
	require.NotNil(t, s)
	section := image[s.Offset : s.Offset+s.Size]
	const namesAt, filesAt = 32, 40
	names := section[binary.LittleEndian.Uint64(section[namesAt:]):]
	for i := range binary.LittleEndian.Uint64(section[filesAt:]) - binary.LittleEndian.Uint64(section[namesAt:]) {
		names[i] = 'a'
	}
	table, err := elfTable(image)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list := table.Functions()
	runtime.ReadMemStats(&after)
	require.Greater(t, len(list), 1000)
	assert.Len(t, list[0].Name, 4096)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, 2*s.Size, "bytes of %d functions", len(list))
}

func elfTable(image []byte) (*gotable.Table, error) {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	return gotable.Open(f)
}
