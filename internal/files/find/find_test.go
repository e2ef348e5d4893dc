//go:build unix

package find

import (
	"context"
	"debug/elf"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// write makes a file below dir and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o755))
	return path
}

const magic = "\x7fELF and no more"

func find(t *testing.T, paths ...string) *Result {
	t.Helper()
	return Find(context.Background(), paths, Options{})
}

func skipsOf(res *Result) map[string]string {
	m := make(map[string]string)
	for _, s := range res.Skipped {
		m[filepath.Base(s.Path)] = s.Reason
	}
	return m
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b", magic)
	write(t, dir, "sub/a", magic)
	write(t, dir, "text", "#!/bin/sh\n")
	write(t, dir, "short", "\x7fE")
	write(t, dir, "empty", "")
	write(t, dir, "holes", magic)
	require.NoError(t, os.Truncate(filepath.Join(dir, "holes"), 1<<30))
	write(t, dir, "old.eh_elf.so", magic)
	outside := t.TempDir()
	write(t, outside, "x", magic)
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "folderlink")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	require.NoError(t, os.Symlink("fifo", filepath.Join(dir, "fifolink")))
	l, err := net.Listen("unix", filepath.Join(dir, "socket"))
	require.NoError(t, err)
	defer l.Close()

	for _, arg := range []string{dir, dir + "/", dir + "/sub/.."} {
		res := find(t, arg)
		assert.Empty(t, res.Problems)
		require.Len(t, res.Inputs, 2)
		assert.Equal(t, "b", res.Inputs[0].Names[0].Rel)
		assert.Equal(t, filepath.Join(dir, "b"), res.Inputs[0].Names[0].Next)
		assert.Equal(t, "sub/a", res.Inputs[1].Names[0].Rel)
		assert.Equal(t, "out/sub/a.eh_elf.so", res.Inputs[1].Names[0].Target("out"))
		assert.Equal(t, filepath.Join(dir, "sub/a.eh_elf.so"), res.Inputs[1].Names[0].Target(""))
		assert.False(t, res.Inputs[0].Given)
		assert.Equal(t, map[string]string{"text": ReasonNotELF, "short": ReasonNotELF, "empty": ReasonNotELF,
			"holes":         "a file that is mostly holes",
			"old.eh_elf.so": ReasonEhElf, "folderlink": ReasonFolderLink, "dangling": ReasonDangling,
			"loop": ReasonDangling,
			"fifo": ReasonNotRegular, "fifolink": ReasonNotRegular, "socket": ReasonNotRegular}, skipsOf(res))
	}

	// A link to a folder that is an argument is followed.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	assert.Len(t, find(t, link).Inputs, 2)
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, syscall.Mkfifo(fifo, 0o644))
	text := write(t, dir, "text", "no ELF file")
	res := find(t, fifo, filepath.Join(dir, "gone"), "", "/dev/null", text, write(t, dir, "x.eh_elf.so", magic))
	var lines []string
	for _, p := range res.Problems {
		lines = append(lines, strings.TrimPrefix(p.Path, dir+"/")+": "+p.Err.Error())
	}
	assert.Equal(t, []string{"fifo: is a FIFO", "gone: stat: no such file or directory",
		": stat: no such file or directory",
		"/dev/null: is a device"}, lines)
	require.Len(t, res.Inputs, 1)
	assert.True(t, res.Inputs[0].Given)
	assert.Equal(t, map[string]string{"x.eh_elf.so": ReasonEhElf}, skipsOf(res))
}

func TestSameFileOnce(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "lib/libx.so.1.2", magic)
	link := filepath.Join(dir, "lib/libx.so.1")
	hard := filepath.Join(dir, "lib/libx.hard")
	require.NoError(t, os.Symlink("libx.so.1.2", link))
	require.NoError(t, os.Link(file, hard))

	res := find(t, link, file, file, hard, dir+"/lib/../lib/libx.so.1.2")
	require.Len(t, res.Inputs, 1)
	var rels []string
	for _, n := range res.Inputs[0].Names {
		rels = append(rels, n.Rel)
	}
	// The first that is no symbolic link leads.
	assert.Equal(t, []string{"libx.so.1.2", "libx.so.1", "libx.hard"}, rels[:3])

	res = find(t, link)
	require.Len(t, res.Inputs, 1)
	assert.Equal(t, link+".eh_elf.so", res.Inputs[0].Names[0].Target(""))

	res = find(t, filepath.Join(dir, "lib"), link)
	require.Len(t, res.Inputs, 1)
	assert.True(t, res.Inputs[0].Given)
}

func TestFindEnds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", magic)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.Empty(t, Find(ctx, []string{dir}, Options{}).Inputs)
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "secret", magic)
	require.NoError(t, os.Chmod(file, 0))
	sub := filepath.Join(dir, "sub")
	require.NoError(t, os.Mkdir(sub, 0))
	var res *Result
	testtool.AsOther(t, dir, func() { res = find(t, dir) })
	require.Len(t, res.Problems, 2)
	assert.Equal(t, file, res.Problems[0].Path)
	assert.EqualError(t, res.Problems[0].Err, "open: permission denied")
	assert.Equal(t, sub, res.Problems[1].Path)
}

func needProc(t *testing.T) {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		t.Skip("needs /proc")
	}
}

func TestVDSO(t *testing.T) {
	needProc(t)
	res := Find(context.Background(), nil, Options{VDSO: true, PIDs: []int{os.Getpid()}})
	assert.Empty(t, res.Problems)
	var vdso []*Input
	self := false
	exe, err := os.Executable()
	require.NoError(t, err)
	for _, in := range res.Inputs {
		if in.Data != nil {
			vdso = append(vdso, in)
		}
		self = self || in.Path == exe
	}
	assert.True(t, self, "the program itself is mapped")
	require.Len(t, vdso, 1, "this process's and the kernel's are one")
	r, size, done, err := vdso[0].Open()
	require.NoError(t, err)
	defer done()
	assert.Equal(t, vdso[0].Size, size)
	f, err := elf.NewFile(r)
	require.NoError(t, err)
	assert.NotNil(t, f.Section(".eh_frame"))
	assert.Equal(t, "linux-vdso.so.1.eh_elf.so", vdso[0].Names[0].Target(""))
}

// TestProcessReplaced: the file under the name is another one by now.
func TestProcessReplaced(t *testing.T) {
	needProc(t)
	testtool.Need(t, "sleep")
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	content, err := os.ReadFile(sleep)
	require.NoError(t, err)
	dir := t.TempDir()
	prog := write(t, dir, "mysleep", string(content))
	cmd := exec.Command(prog, "60")
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	require.NoError(t, os.Remove(prog))
	write(t, dir, "mysleep", "another file")

	res := Find(context.Background(), nil, Options{PIDs: []int{cmd.Process.Pid}})
	var got *Input
	for _, in := range res.Inputs {
		if in.Names[0].Path == prog {
			got = in
		}
	}
	if got == nil { // not allowed to read map_files: it is said
		require.Len(t, res.Problems, 1)
		assert.Contains(t, res.Problems[0].Err.Error(), "deleted or replaced since process")
		return
	}
	require.Len(t, res.Notes, 1)
	assert.Contains(t, res.Notes[0].Err.Error(), "taking the file that is mapped")
	r, size, done, err := got.Open()
	require.NoError(t, err)
	defer done()
	b := make([]byte, size)
	_, err = r.ReadAt(b, 0)
	require.NoError(t, err)
	assert.Equal(t, string(content), string(b))
	assert.Equal(t, "mysleep.eh_elf.so", got.Names[0].Target(""))
}

func TestNoProcess(t *testing.T) {
	needProc(t)
	res := Find(context.Background(), nil, Options{PIDs: []int{1 << 30}})
	require.Len(t, res.Problems, 1)
	assert.Equal(t, "process 1073741824", res.Problems[0].Path)
	assert.EqualError(t, res.Problems[0].Err, "no such process")
}
