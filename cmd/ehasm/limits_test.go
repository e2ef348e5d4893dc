//go:build linux && amd64

package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/validate/verify"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLimits: what the Go run-time cannot do without ends in a line, not in registers.
func TestLimits(t *testing.T) {
	goBuild(t)
	file := writeFile(t, filepath.Join(t.TempDir(), "a.so"), smallELF(t, 0))
	for _, limit := range []string{"4", "6", "7"} {
		got := shell(t, "ulimit -n "+limit, "build", file)
		assert.Equal(t, exitFailed, got.code)
		assert.Empty(t, got.stdout)
		assert.Regexp(t, `^ehasm: [^\n]*ulimit -n[^\n]*\n$`, got.stderr, limit)
	}
	assert.Equal(t, exitDone, shell(t, "ulimit -n 16", "build", "-j1", file).code)

	for limit, code := range map[string]int{"-v 400000": exitFailed, "-v 700000": exitFailed,
		"-v 1200000": exitFailed, "-v 1572863": exitFailed,
		"-v 1572864": exitDone, "-v unlimited": exitDone, "-d 60000": exitFailed, "-d 131071": exitFailed,
		"-d 131072": exitDone} {
		cmd := exec.Command("/bin/sh", "-c", "ulimit "+limit+`; exec "$0" "$@"`, built.path, "info", file+".eh_elf.so")
		out, _ := cmd.CombinedOutput()
		assert.Equal(t, code, cmd.ProcessState.ExitCode(), "ulimit %s: %s", limit, out)
		if code != exitDone {
			assert.Regexp(t, `^ehasm: [^\n]*ulimit `+limit[:2]+`[^\n]*\n$`, string(out), limit)
		}
	}
	// The flag is the one that make build has.
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	assert.Contains(t, string(makefile), "-ldflags '"+entryFlag+"'")
	// And the size of what is handed out.
	stage, err := os.ReadFile(filepath.Join("..", "..", "scripts", "stage.sh"))
	require.NoError(t, err)
	assert.Regexp(t, "-ldflags='[^']*"+entryFlag+"'", string(stage))
}

// TestSparse: a small object whose code lies far apart does not become a large file, nor take much
// memory.
func TestSparse(t *testing.T) {
	const far = 0x70000000
	f := frames{text: 0x40}
	cie := f.cie()
	f.fde(cie, 0, 0x20)
	f.fde(cie, far, 0x20)
	b := withBuildID(t, f.elf(), []byte("01234567890123456789"))
	second := b[64+56:] // in place of the note
	clear(second[:56])
	le := binary.LittleEndian
	le.PutUint32(second, 1)                // PT_LOAD
	le.PutUint32(second[4:], 5)            // R+X
	le.PutUint64(second[8:], textOff)      // p_offset
	le.PutUint64(second[16:], far+textOff) // p_vaddr
	le.PutUint64(second[32:], 0x40)        // p_filesz
	le.PutUint64(second[40:], 0x40)        // p_memsz
	le.PutUint64(second[48:], 1)
	file := writeFile(t, filepath.Join(t.TempDir(), "a.so"), b)
	object, err := dwarfcfa.Open(file)
	require.NoError(t, err)
	defer object.Close()
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	require.NoError(t, err)
	for _, dispatch := range []string{"tree", "packed"} {
		got := ehasm(t, "build", "--force", "--dispatch="+dispatch, file)
		assert.Equal(t, exitDone, got.code, got.stderr)
		made, err := os.ReadFile(file + ".eh_elf.so")
		require.NoError(t, err)
		assert.Less(t, len(made), 8192, dispatch)
		if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
			_, err = verify.Image(made, table)
			assert.NoError(t, err, dispatch)
		}
	}
	assert.Regexp(t, `\npages 0x[0-9a-f]+ to 0x[0-9a-f]+, not in the table: block 0\n`,
		ehasm(t, "dump", "--stage=plan", file).stdout)
}
