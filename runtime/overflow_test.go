//go:build linux

package runtime_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOverflow: in a user namespace that maps no users, all look like one, this one included: no file is
// believed, whoever owns it.
func TestOverflow(t *testing.T) {
	needRoot(t)
	k := makeKit(t)
	prog := privileged(t, k)
	const overflow = 65534
	require.NoError(t, os.Chown(prog+".eh_elf.so", overflow, overflow))
	require.NoError(t, os.Chown(filepath.Dir(prog), overflow, overflow))
	assert.Contains(t, asUser(t, overflow, prog), "eh_elfs=1", "where all users are known")
	for _, owner := range []int{overflow, someone} {
		require.NoError(t, os.Chown(prog+".eh_elf.so", owner, owner))
		cmd := exec.Command(prog)
		cmd.Env = []string{"PATH=/bin:/usr/bin", "HOME=/nonexistent"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("needs user namespaces, which are forbidden in a chroot and some containers")
		}
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "eh_elfs=0", "%d", owner)
	}
}
