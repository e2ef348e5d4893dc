package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOtherHost builds on a host that cannot run the code, a 32-bit one that this
// one can play: it proves what it writes, and the bytes are the same.
func TestOtherHost(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "ehasm")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", other, ".")
	build.Env = append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	out, err = exec.Command(other, "build", "-o", filepath.Join(dir, "said"), "/bin/ls").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), "not verified")
	for _, flag := range []string{"--dispatch=tree", "--dispatch=packed", "--no-deref", "--relro"} {
		var images [2][]byte
		for i, program := range []string{goBuild(t), other} {
			to := filepath.Join(dir, "out", flag, strconv.Itoa(i))
			out, err := exec.Command(program, "build", "-q", flag, "-o", to, "/bin/ls").CombinedOutput()
			require.NoError(t, err, "%s", out)
			images[i], err = os.ReadFile(filepath.Join(to, "ls.eh_elf.so"))
			require.NoError(t, err)
		}
		assert.Equal(t, images[0], images[1], flag)
	}
}
