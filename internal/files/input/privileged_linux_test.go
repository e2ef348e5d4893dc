package input

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// openedBy names, in the environment of a copy of this test's program, what it opens.
const openedBy = "EHASM_TEST_TRUST_OPEN"

// TestOverflow: in a user namespace that knows none of them all users seem to be one.
func TestOverflow(t *testing.T) {
	if path := os.Getenv(openedBy); path != "" {
		_, err := OpenTrusted(path)
		if os.Geteuid() != 65534 || err == nil {
			os.Exit(4)
		}
		require.ErrorIs(t, err, ErrUntrusted)
		os.Exit(3)
	}
	testtool.NeedRoot(t, "to give a file away")
	dir := tree(t)
	file := filepath.Join(dir, "a", "b", "file")
	require.NoError(t, os.Chown(file, 4711, 4711))
	for name, attr := range map[string]*syscall.SysProcAttr{
		"unknown": {Cloneflags: syscall.CLONE_NEWUSER},
		"known": {Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 65534, HostID: 0, Size: 1}},
			Credential:  &syscall.Credential{Uid: 65534, NoSetGroups: true},
			GidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}}},
	} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestOverflow$")
		cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{openedBy + "=" + file}, dir, attr
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skip("needs user namespaces, which are forbidden in a chroot and some containers")
		}
		require.NotNil(t, cmd.ProcessState, "%v", err)
		require.Equal(t, 3, cmd.ProcessState.ExitCode(), "%s: %s", name, out)
	}
	require.False(t, shared(4711))
	require.False(t, shared(65534), "where all users are known")
}

// TestPrivileged: a program with rights that who starts it has not believes none of that user's
// files, though the real and the effective user are the same.
func TestPrivileged(t *testing.T) {
	if path := os.Getenv(openedBy); path != "" {
		f, err := OpenTrusted(path)
		if err == nil {
			f.Close()
			return
		}
		require.ErrorIs(t, err, ErrUntrusted)
		os.Exit(3)
	}
	testtool.NeedRoot(t, "to give a program rights")
	const user, group = 4711, 4713
	dir := tree(t)
	file := filepath.Join(dir, "a", "b", "file")
	require.NoError(t, os.Chown(file, user, user))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	prog := filepath.Join(dir, "prog")
	require.NoError(t, os.WriteFile(prog, self, 0o755))
	open := func() int {
		t.Helper()
		cmd := exec.Command(prog, "-test.run=^TestPrivileged$")
		cmd.Env, cmd.Dir = []string{openedBy + "=" + file}, dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		out, err := cmd.CombinedOutput()
		require.NotNil(t, cmd.ProcessState, "%v", err)
		require.Contains(t, []int{0, 3}, cmd.ProcessState.ExitCode(), "%s", out)
		return cmd.ProcessState.ExitCode()
	}
	require.Equal(t, 0, open(), "a program as any other: the user's own file")

	capability := make([]byte, 20) // vfs_cap_data of linux/capability.h: revision 2, effective; CAP_NET_RAW
	binary.LittleEndian.PutUint32(capability, 0x02000001)
	binary.LittleEndian.PutUint32(capability[4:], 1<<unix.CAP_NET_RAW)
	require.NoError(t, unix.Setxattr(prog, "security.capability", capability, 0))
	require.Equal(t, 3, open(), "file capabilities")
	require.NoError(t, unix.Removexattr(prog, "security.capability"))

	require.NoError(t, os.Chown(prog, 0, group))
	require.NoError(t, syscall.Chmod(prog, 0o755|syscall.S_ISGID))
	require.Equal(t, 3, open(), "set-gid")
	require.NoError(t, os.Chown(file, 0, 0))
	require.Equal(t, 0, open(), "root's file")
}

// TestAccessList: who may write by an access list makes a file or folder untrusted, unless the mask takes that away.
func TestAccessList(t *testing.T) {
	const user, none = 65534, 0xffffffff
	for name, of := range map[string]string{"folder": "a", "file": "a/b/file"} {
		for mask, want := range map[uint16]error{7: ErrUntrusted, 5: nil} {
			dir := tree(t)
			le := binary.LittleEndian
			list := le.AppendUint32(nil, 2) // posix_acl_xattr_header of linux/posix_acl_xattr.h: a_version
			for _, e := range []struct {
				tag, perm uint16
				id        uint32
				// owner, user, group, mask, others
			}{{1, 7, none}, {2, 7, user}, {4, 5, none}, {0x10, mask, none}, {0x20, 5, none}} {
				list = le.AppendUint32(le.AppendUint16(le.AppendUint16(list, e.tag), e.perm), e.id)
			}
			err := unix.Setxattr(filepath.Join(dir, of), "system.posix_acl_access", list, 0)
			if errors.Is(err, unix.ENOTSUP) {
				t.Skip("needs a file system with access lists")
			}
			require.NoError(t, err)
			f, err := OpenTrusted(filepath.Join(dir, "a/b/file"))
			require.ErrorIs(t, err, want, "%s, mask %o", name, mask)
			if err == nil {
				f.Close()
			}
		}
	}
}
