package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOtherHost builds on a host that cannot run the code, a 32-bit one that this
// one can play: it proves what it writes, and the bytes are the same.
func TestOtherHost(t *testing.T) {
	dir := t.TempDir()
	other := otherHost(t, filepath.Join(dir, "ehasm"))
	out, err := other("build", "-o", filepath.Join(dir, "said"), "/bin/ls").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.NotContains(t, string(out), "not verified")
	for _, flag := range []string{"--dispatch=tree", "--dispatch=packed", "--no-deref", "--relro"} {
		var images [2][]byte
		this := func(args ...string) *exec.Cmd { return exec.Command(goBuild(t), args...) }
		for i, program := range []func(...string) *exec.Cmd{this, other} {
			to := filepath.Join(dir, "out", flag, strconv.Itoa(i))
			out, err := program("build", "-q", flag, "-o", to, "/bin/ls").CombinedOutput()
			require.NoError(t, err, "%s", out)
			images[i], err = os.ReadFile(filepath.Join(to, "ls.eh_elf.so"))
			require.NoError(t, err)
		}
		assert.Equal(t, images[0], images[1], flag)
	}
}

// otherHost builds the command at path for a 32-bit host, and returns how to run it: for x86, or, where the kernel runs
// no such programs, for ARM with qemu.
func otherHost(t *testing.T, path string) func(args ...string) *exec.Cmd {
	build := func(arch string) {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".")
		build.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	build("386")
	if !errors.Is(exec.Command(path, "version").Run(), syscall.ENOEXEC) {
		return func(args ...string) *exec.Cmd { return exec.Command(path, args...) }
	}
	testtool.Need(t, "qemu-arm")
	build("arm")
	return func(args ...string) *exec.Cmd { return exec.Command("qemu-arm", append([]string{path}, args...)...) }
}
