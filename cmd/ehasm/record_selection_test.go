//go:build linux && amd64

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordSelection: --name records the processes of that name and no other, and says if there is none.
func TestRecordSelection(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"ehsel-one", "ehsel-two", "other-one"} {
		program := filepath.Join(dir, name)
		require.NoError(t, os.Symlink("/bin/sh", program))
		cmd := exec.Command(program, "-c", "while :; do :; done")
		require.NoError(t, cmd.Start())
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
		}()
	}
	r := recordIn(t, dir, "--name", "^ehsel-", "--duration", "2s", "-o", "p.folded")
	assert.Zero(t, r.code, r.stderr)
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(b), "ehsel-one;")
	assert.Contains(t, string(b), "ehsel-two;")
	assert.NotContains(t, string(b), "other-one;")
	for _, args := range [][]string{{"--name", "^ehsel-none$"}, {"--unit", "ehsel-none.service"},
		{"--container", "0123456789ab"}} {
		r = recordIn(t, dir, append(args, "-o", "q.folded")...)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, args[0]+" "+args[1]+": no process that runs now")
	}
	for _, args := range [][]string{{"--name", "("}, {"--container", "name"}, {"--name", "a", "-a"}} {
		assert.Equal(t, exitUsage, recordIn(t, dir, append(args, "-o", "q.folded")...).code)
	}
}
