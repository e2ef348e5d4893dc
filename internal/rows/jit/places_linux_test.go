package jit

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// contained starts a shell with PID 1 and an own /tmp, in which it has run a script, and returns its number here.
func contained(t *testing.T, script string) (pid int32, end func()) {
	t.Helper()
	testtool.NeedRoot(t, "for namespaces")
	cmd := exec.Command("unshare", "--pid", "--fork", "--mount", "--kill-child", "--mount-proc", "sh", "-c",
		"mount -t tmpfs tmpfs /tmp && "+script+" && echo ready && read line")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	end = func() {
		in.Close()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
	require.NoError(t, err)
	_, err = fmt.Sscan(string(children), &pid)
	require.NoError(t, err)
	return pid, end
}

// TestPlacesContained: a process in PID and mount namespaces writes names for its own number into its own /tmp. They
// are found also once it has ended, if it was seen before.
func TestPlacesContained(t *testing.T) {
	pid, end := contained(t, "echo 1000 10 inside > /tmp/perf-1.map")
	name := func(p *Places) string {
		for _, w := range p.Maps(pid) {
			if table, err := symbols.PerfMap(w, symbols.NewBudget(1<<20)); err == nil {
				assert.Equal(t, "/tmp/perf-1.map", w.Name)
				return table.Find(0x1008).Name
			}
		}
		return ""
	}
	assert.Equal(t, int32(1), procfs.OwnPID(pid))
	seen, live, dead := NewPlaces(true, "/tmp"), NewPlaces(true, "/tmp"), NewPlaces(false, "/tmp")
	defer seen.Close()
	defer live.Close()
	seen.See(pid)
	assert.Equal(t, "inside", name(seen))
	assert.Equal(t, "inside", name(live))
	assert.Empty(t, name(dead), "a recording may be of another process with that number")
	dead.SeeIf(pid, procfs.Namespace(pid, "pid"), procfs.Namespace(pid, "mnt")+1)
	assert.Empty(t, name(dead))
	dead.SeeIf(pid, procfs.Namespace(pid, "pid"), procfs.Namespace(pid, "mnt"))
	assert.Equal(t, "inside", name(dead))
	assert.Equal(t, "/tmp/perf-1.map", seen.Maps(pid)[0].Name)

	dump := seen.Dump(pid, "/tmp/jit-1.dump", 0, 0)
	assert.Equal(t, dump, seen.Dump(pid, "/tmp/jit-7.dump", 0, 0), "the own one goes first")
	end()
	assert.Equal(t, "inside", name(seen))
	_, err := symbols.JITDump(dump, symbols.NewBudget(1<<20))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestPlacesEarlier: a map from before a process began is not the process's, whose number another one had.
func TestPlacesEarlier(t *testing.T) {
	dir, self := t.TempDir(), int32(os.Getpid())
	path := filepath.Join(dir, fmt.Sprintf("perf-%d.map", self))
	require.NoError(t, os.WriteFile(path, []byte("1000 10 name\n"), 0o600))
	p := NewPlaces(true, dir)
	defer p.Close()
	began := procfs.Started(self)
	require.WithinDuration(t, time.Now(), began, 10*time.Minute)
	for after, want := range map[time.Duration]error{-time.Hour: os.ErrNotExist, 0: nil, time.Hour: nil} {
		require.NoError(t, os.Chtimes(path, began.Add(after), began.Add(after)))
		_, err := symbols.PerfMap(p.Maps(self)[0], symbols.NewBudget(1<<20))
		assert.ErrorIs(t, err, want)
	}
}

// TestPlacesLink: a process's /tmp that is a link, or a map that is one, leads nowhere.
func TestPlacesLink(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "map")
	require.NoError(t, os.WriteFile(outside, []byte("1000 10 outside\n"), 0o600))
	pid, _ := contained(t, "ln -s "+strings.Replace(outside, "/tmp", "/proc/1/root/tmp", 1)+" /tmp/perf-1.map")
	p := NewPlaces(true)
	defer p.Close()
	require.Len(t, p.Maps(pid), 1)
	_, err := symbols.PerfMap(p.Maps(pid)[0], symbols.NewBudget(1<<20))
	assert.Error(t, err)
}

// TestPlacesMapped: a jitdump file that has another name here, as in a chroot, is what the process has mapped.
func TestPlacesMapped(t *testing.T) {
	testtool.NeedRoot(t, "for /proc/PID/map_files")
	name := fmt.Sprintf("jit-%d.dump", os.Getpid())
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{1}, 1<<12), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 1<<12, unix.PROT_READ, unix.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(m) }()
	p := NewPlaces(true)
	defer p.Close()
	self, start := int32(os.Getpid()), uint64(uintptr(unsafe.Pointer(&m[0])))
	assert.Nil(t, p.Dump(self, path, start, start+1<<12).File)
	assert.Nil(t, p.Dump(self, "/nowhere/"+name, start+1<<12, start+2<<12).File)
	for _, change := range []func(string) error{func(string) error { return nil }, os.Remove} {
		require.NoError(t, change(path))
		there := p.Dump(self, "/nowhere/"+name, start, start+1<<12).File
		require.NotNil(t, there)
		a, err := f.Stat()
		require.NoError(t, err)
		b, err := there.Stat()
		require.NoError(t, err)
		assert.True(t, os.SameFile(a, b))
	}
}

// TestPlacesHere: root's processes of this namespace write where they do, and are not remembered. Of others, a limited
// number is.
func TestPlacesHere(t *testing.T) {
	p := NewPlaces(true, "/a", "/tmp")
	defer p.Close()
	self := int32(os.Getpid())
	p.See(self)
	user := symbols.UserOf(self)
	assert.Equal(t, user != 0, p.byPID[self] != nil)
	maps := p.Maps(self)
	require.Len(t, maps, 2)
	assert.Equal(t, fmt.Sprintf("/tmp/perf-%d.map", self), maps[1].Path)
	ps := unwind.NewProcesses()
	objects := unwind.NewObjects(unwind.Options{})
	ps.Space(self).Map(0x1000, 0x1000, 0, objects.Object("/x/jit-5.dump", nil))
	p.Learn(self, ps.Space(self).Maps())
	got, ok := p.Dumped(self)
	assert.True(t, ok)
	assert.Equal(t, symbols.Written{Path: "/x/jit-5.dump", Name: "/x/jit-5.dump", PID: self, User: user}, got)
	for i := range int32(2 * mostPlaces) {
		p.Dump(1<<30+i, "/tmp/jit-1.dump", 0, 0)
		assert.LessOrEqual(t, len(p.byPID), mostPlaces)
	}
	assert.Len(t, p.order, len(p.byPID))
}
