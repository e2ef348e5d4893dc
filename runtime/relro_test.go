//go:build unix

package runtime_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRelro: eh_elfs made for dlopen of old glibc are loaded as all are, and
// nothing of them is writable.
func TestRelro(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	out, err := exec.Command(k.path("ehasm"), "build", "-q", "--relro", "--deps", "--vdso", "-o", dir,
		k.path("objects")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, objectsInProgram, ehElfs(t, k, dir))
	path := filepath.Join(dir, "objects.eh_elf.so")
	var seen []string
	for line := range strings.Lines(k.mustRun(t, dir, nil, k.path("objects"), path)) {
		if fields := strings.Fields(line); fields[len(fields)-1] == path {
			seen = append(seen, fields[1])
		}
	}
	assert.Equal(t, []string{"r--p", "r-xp", "r--p"}, seen)

	// What is writable and not just that one segment is refused.
	good := read(t, path)
	const text, dynamic, relro = 64 + 56, 64 + 2*56, 64 + 7*56 // program headers
	const flags, addr, fileSize, memSize = 4, 16, 32, 40       // in them
	le := binary.LittleEndian
	add := func(b []byte, off int, n uint64) { le.PutUint64(b[off:], le.Uint64(b[off:])+n) }
	for name, change := range map[string]func(b []byte){
		"no RELRO":          func(b []byte) { le.PutUint32(b[relro:], 0) },
		"RELRO too short":   func(b []byte) { add(b, relro+memSize, ^uint64(0)) },
		"RELRO begins late": func(b []byte) { add(b, relro+addr, 1) },
		"RELRO ends early":  func(b []byte) { add(b, relro+addr, ^uint64(0)) },
		"RELRO below":       func(b []byte) { le.PutUint64(b[relro+addr:], 0) },
		"RELRO of nothing":  func(b []byte) { le.PutUint64(b[relro+memSize:], 0) },
		"executable":        func(b []byte) { b[dynamic+flags] |= 1 },
		"writable code":     func(b []byte) { b[text+flags] |= 2 },
		"writable data":     func(b []byte) { b[64+flags] |= 2 },
		"writable code in RELRO": func(b []byte) {
			b[text+flags] |= 2
			le.PutUint64(b[relro+addr:], 0)
			le.PutUint64(b[relro+memSize:], 1<<20)
		},
		"RELRO wraps": func(b []byte) {
			le.PutUint64(b[relro+addr:], ^uint64(0))
			le.PutUint64(b[relro+memSize:], ^uint64(0))
		},
		"larger than RELRO":     func(b []byte) { add(b, dynamic+memSize, 1) },
		"memory of a page more": func(b []byte) { add(b, dynamic+memSize, 0x1000); add(b, relro+memSize, 0x1000) },
		"memory below file":     func(b []byte) { le.PutUint64(b[dynamic+memSize:], 0x7f) },
		"memory wraps":          func(b []byte) { le.PutUint64(b[dynamic+memSize:], ^uint64(0)) },
		"not writable":          func(b []byte) { b[dynamic+flags] &^= 2 }, // and of more memory than file
	} {
		b := bytes.Clone(good)
		change(b)
		require.NoError(t, os.WriteFile(path, b, 0o644))
		assert.Equal(t, objectsInProgram-1, ehElfs(t, k, dir), name)
	}
	for _, header := range []int{dynamic, relro} { // what is damaged is refused or works
		for i := header; i < header+56; i++ {
			b := bytes.Clone(good)
			b[i] ^= 0x80
			require.NoError(t, os.WriteFile(path, b, 0o644))
			assert.GreaterOrEqual(t, ehElfs(t, k, dir), objectsInProgram-1, "byte %#x", i)
		}
	}
	// strip may take from the segment what no section covers.
	le.PutUint64(good[dynamic+memSize:], le.Uint64(good[dynamic+fileSize:]))
	require.NoError(t, os.WriteFile(path, good, 0o644))
	assert.Equal(t, objectsInProgram, ehElfs(t, k, dir), "less than RELRO")
}
