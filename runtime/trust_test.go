//go:build unix

package runtime_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	someone = 4711 // users and a group without members
	another = 4712
)

// needRoot skips by name where files of several users cannot be made.
func needRoot(t *testing.T) {
	t.Helper()
	testtool.NeedRoot(t, "to make files of other users; TestTrust tests the rules themselves")
}

// tree makes files, folders (with a slash at the end) and links (with " -> "), each with an
// owner and a mode, below a folder of root's that all may enter.
func tree(t *testing.T, entries ...string) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	for _, entry := range entries {
		var name string
		var owner int
		var mode uint32
		_, err := fmt.Sscanf(entry, "%d %o %s", &owner, &mode, &name)
		require.NoError(t, err, entry)
		path := filepath.Join(dir, name)
		_, to, link := strings.Cut(entry, " -> ")
		switch {
		case link:
			require.NoError(t, os.Symlink(strings.ReplaceAll(to, "DIR", dir), path))
		case strings.HasSuffix(name, "/"):
			require.NoError(t, os.Mkdir(path, 0o755))
		default:
			require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
		}
		require.NoError(t, os.Lchown(path, owner, owner))
		if !link {
			require.NoError(t, syscall.Chmod(path, mode))
		}
	}
	return dir
}

// TestTrustedPath: a file is opened only if no user but root and this one could have put it
// where it is, by any of the folders and links on the way.
func TestTrustedPath(t *testing.T) {
	needRoot(t)
	k := makeKit(t)
	dir := tree(t,
		"0 755 root/", "0 644 root/file", "4711 644 root/someones", "4712 644 root/anothers", "0 664 root/group",
		"0 646 root/all",
		"4711 755 own/", "4711 644 own/file", "0 644 own/roots", "4712 644 own/anothers",
		"4712 755 other/", "0 644 other/file", "4712 755 other/in/", "4711 644 other/in/file",
		"4711 775 group/", "4711 644 group/file", "4711 777 all/", "4711 755 all/in/", "4711 644 all/in/file",
		"0 1777 tmp/", "4711 644 tmp/file", "4712 644 tmp/anothers", "4711 755 tmp/in/", "4711 644 tmp/in/file",
		"4712 1777 othertmp/", "4711 644 othertmp/file",
		"4711 0 own/link -> file", "4711 0 own/up -> ../root/file", "4711 0 own/abs -> DIR/root/file",
		"4711 0 own/folder -> DIR/root",
		"4711 0 own/bad -> ../other/file", "4711 0 own/loop -> loop", "4711 0 own/none -> nothing",
		"4712 0 tmp/link -> ../own/file", "4711 0 tmp/mine -> ../own/file", "0 0 root/into -> ../all/in/file")
	files := map[int][]string{}
	all := map[int]string{} // the answers for these
	for file, want := range map[string]struct{ someone, root bool }{
		"root/file": {true, true}, "root/someones": {true, false}, "root/anothers": {false, false}, "root/group": {},
		"root/all": {},
		"own/file": {true, false}, "own/roots": {true, false}, "own/anothers": {}, "other/file": {},
		"other/in/file": {},
		"group/file":    {}, "all/in/file": {}, "tmp/file": {true, false}, "tmp/anothers": {},
		"tmp/in/file": {true, false}, "othertmp/file": {},
		"own/link": {true, false}, "own/up": {true, false}, "own/abs": {true, false}, "own/folder/file": {true, false},
		"own/bad": {}, "own/loop": {}, "own/none": {}, "own/nothing": {}, "own": {}, "own/file/x": {}, "tmp/link": {},
		"tmp/mine":  {true, false},
		"root/into": {}, "root/./../root//file": {true, true}, "other/../root/file": {},
	} {
		for uid, opens := range map[int]bool{someone: want.someone, 0: want.root} {
			expected := "refused\n"
			if opens {
				expected = "opened\n"
			}
			got := k.mustRun(t, "", nil, k.path("trust"), "open", fmt.Sprint(uid), dir+"/"+file)
			assert.Equal(t, expected, got, "%s for user %d", file, uid)
			for range 2 {
				files[uid] = append(files[uid], dir+"/"+file)
				all[uid] += expected
			}
		}
	}
	for uid, files := range files { // one after the other, from folders that were kept
		got := k.mustRun(t, "", nil, append([]string{k.path("trust"), "kept", fmt.Sprint(uid)}, files...)...)
		assert.Equal(t, all[uid], got, "%v for user %d", files, uid)
	}
	// A path that begins where the process is.
	in := func(folder, path string) string {
		cmd := exec.Command(k.path("trust"), "open", "0", path)
		cmd.Dir = filepath.Join(dir, folder)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Equal(t, "opened\n", in("root", "file"))
	assert.Equal(t, "refused\n", in("other", "file"))
	assert.Equal(t, "opened\n", in("root", "../root/file"))
	assert.Equal(t, "refused\n", in("other", "../root/file"), "it leads through another's folder")
	long := strings.Repeat("x/../", 1000) + "file"
	assert.Equal(t, "refused\n", in("root", long))
	assert.Equal(t, "refused\n", in("root", strings.Repeat("x", 300)))
}

// privileged compiles the program objects, statically with libehunwind, with eh_elfs beside it
// that belong to someone.
func privileged(t *testing.T, k *kit) string {
	t.Helper()
	dir := tree(t, "4711 755 home/")
	prog := filepath.Join(dir, "home", "objects")
	args := k.gcc("privileged", "testdata/objects.c", k.path("libehunwind.a"), "-pthread", "-static")
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(k.path("privileged"), prog))
	buildFor(t, k, filepath.Dir(prog), prog)
	require.NoError(t, os.Chown(prog+".eh_elf.so", someone, someone))
	return prog
}

// asUser runs a program as a user without groups and returns what it says.
func asUser(t *testing.T, user uint32, prog string) string {
	t.Helper()
	cmd := exec.Command(prog)
	cmd.Env = []string{"PATH=/bin:/usr/bin", "HOME=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// TestPrivileged: a program that has rights which who starts it has not believes no file of
// theirs, though the effective user may be theirs: set-gid, file capabilities.
func TestPrivileged(t *testing.T) {
	needRoot(t)
	k := makeKit(t)
	const group, fileWithRights = 4713, "eh_elfs=0"
	prog := privileged(t, k)
	assert.Contains(t, asUser(t, someone, prog), "eh_elfs=1", "a program as any other")
	assert.Contains(t, asUser(t, another, prog), "eh_elfs=0", "of another user")

	require.NoError(t, os.Chown(prog, 0, group))
	require.NoError(t, syscall.Chmod(prog, 0o755|syscall.S_ISGID))
	assert.Contains(t, asUser(t, someone, prog), fileWithRights, "set-gid")
	require.NoError(t, syscall.Chmod(prog, 0o755|syscall.S_ISUID))
	assert.Contains(t, asUser(t, someone, prog), fileWithRights, "set-uid root")

	require.NoError(t, syscall.Chmod(prog, 0o755))
	capability := make([]byte, 20) // vfs_cap_data of linux/capability.h: revision 2, effective; CAP_NET_RAW
	binary.LittleEndian.PutUint32(capability, 0x02000001)
	binary.LittleEndian.PutUint32(capability[4:], 1<<13)
	require.NoError(t, unix.Setxattr(prog, "security.capability", capability, 0))
	assert.Contains(t, asUser(t, someone, prog), fileWithRights, "file capabilities")
	require.NoError(t, unix.Removexattr(prog, "security.capability"))
	assert.Contains(t, asUser(t, someone, prog), "eh_elfs=1")

	// What root put there is good for all.
	for _, path := range []string{prog + ".eh_elf.so", filepath.Dir(prog)} {
		require.NoError(t, os.Chown(path, 0, 0))
	}
	require.NoError(t, os.Chown(prog, 0, group))
	require.NoError(t, syscall.Chmod(prog, 0o755|syscall.S_ISGID))
	assert.Contains(t, asUser(t, someone, prog), "eh_elfs=1", "root's file for a set-gid program")
}
