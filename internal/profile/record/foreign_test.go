//go:build linux && amd64

package record

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// replaced starts a program that sleeps, has something else put in the place of its file, and
// returns its first executable mapping.
func replaced(t *testing.T, replace func(path string)) (pid int32, m procfs.Mapping) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sleep")
	b, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o755))
	cmd := exec.Command(path, "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.NoError(t, os.Rename(path, path+".old"))
	replace(path)
	find := func() bool { // Start returns while execve has not mapped the program yet
		list, err := procfs.Mappings(int32(cmd.Process.Pid))
		require.NoError(t, err)
		i := slices.IndexFunc(list, func(m procfs.Mapping) bool { return m.Exec && m.Name == path+".old" })
		if i < 0 {
			return false
		}
		m = list[i]
		m.Name = path // as the kernel told when it was mapped
		return true
	}
	require.Eventually(t, find, 10*time.Second, time.Millisecond, "its program is not among its mappings")
	return int32(cmd.Process.Pid), m
}

// TestFilesOfOthers: in the place of its file a process may have a FIFO, which whoever opens it
// waits for, or a link to what is not its own; the file that is mapped is found all the same.
func TestFilesOfOthers(t *testing.T) {
	testtool.NeedRoot(t, "for map_files")
	for name, replace := range map[string]func(path string){
		"FIFO":   func(path string) { testtool.MakeFIFO(t, path) },
		"device": func(path string) { require.NoError(t, os.Symlink("/dev/tty", path)) },
		"link":   func(path string) { require.NoError(t, os.Symlink("/bin/cat", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			pid, m := replaced(t, replace)
			tr := newTracker(unwind.NewObjects(unwind.Options{}))
			defer tr.close()
			done := make(chan struct{})
			var id []byte
			var o *unwind.Object
			go func() {
				defer close(done)
				id = tr.fileID(pid, m)
				o = tr.findObject(pid, m.Name, nil, inode{number: m.Inode}, m.Start, m.End)
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("it waits")
			}
			assert.NotEmpty(t, id)
			assert.Equal(t, id, o.BuildID())
			require.Len(t, tr.files, 1)
			got, err := os.Stat(o.Path())
			require.NoError(t, err)
			want, err := os.Stat(m.Name + ".old")
			require.NoError(t, err)
			assert.True(t, os.SameFile(got, want))
		})
	}
}

// TestMostFiles: who maps many files that this process has not does not use its descriptors up.
func TestMostFiles(t *testing.T) {
	pid, m := replaced(t, func(path string) { testtool.MakeFIFO(t, path) })
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	for i := range MostFiles() - 1 {
		tr.files[&unwind.Object{Name: fmt.Sprint(i)}] = nil
	}
	for i, want := range []bool{true, false} {
		o := tr.findObject(pid, fmt.Sprintf("%s/%d", m.Name, i), nil, inode{number: m.Inode}, m.Start, m.End)
		assert.Equal(t, want, o.Path() != "")
	}
	assert.Len(t, tr.files, MostFiles())
	tr.close()
}

// TestEnded: the file of a process that has ended is found where its parent sees it, if it has the
// build-id. What was not found for one process is looked for again for the next.
func TestEnded(t *testing.T) {
	pid, m := replaced(t, func(string) {})
	path := m.Name + ".old"
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.close()
	id := tr.fileID(pid, procfs.Mapping{Name: path, Inode: m.Inode})
	require.NotEmpty(t, id)
	gone := func(n int32) *unwind.Object { // of 2^30 and more there are no processes
		return tr.object(1<<30+n, path, append(slices.Clone(id), 0), inode{}, 0, 0)
	}
	require.NoError(t, os.Rename(path, path+".away"))
	first := gone(1)
	assert.Empty(t, first.Path())
	assert.Same(t, first, gone(1))
	require.NoError(t, os.Rename(path+".away", path))
	assert.Empty(t, gone(1).Path(), "once for each process")
	tr.processes[1<<30+2] = &process{parent: pid}
	second := gone(2)
	assert.NotSame(t, first, second)
	assert.Contains(t, second.Path(), "/proc/self/fd/")
	assert.Same(t, second, gone(3))

	other := tr.object(1<<30+2, path, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
		inode{}, 0, 0)
	assert.Empty(t, other.Path(), "another build-id")
}

// TestReplacedWithoutID: a file without build-id is not taken for the one that was in its place before.
func TestReplacedWithoutID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.close()
	const gone = 1 << 30 // there is no such process
	var last *unwind.Object
	for _, from := range []string{"/bin/sleep", "/bin/cat", "/bin/ls"} {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".new", b, 0o755))
		if last != nil {
			require.NoError(t, os.Link(path, path+filepath.Base(from))) // its inode is not used again
		}
		require.NoError(t, os.Rename(path+".new", path))
		st, err := os.Stat(path)
		require.NoError(t, err)
		o := tr.object(gone, path, nil, inode{number: st.Sys().(*syscall.Stat_t).Ino}, 0, 0)
		id, err := abi.BuildID(bytes.NewReader(b))
		require.NoError(t, err)
		assert.Equal(t, id, o.BuildID(), from)
		assert.NotSame(t, last, o)
		assert.Same(t, o, tr.object(gone, path, nil, inode{number: st.Sys().(*syscall.Stat_t).Ino}, 0, 0))
		last = o
	}
}

// TestInodeUsedAgain: a file without build-id that has the inode of one before is another file.
// What /proc tells of is the last one.
func TestInodeUsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.close()
	const gone = 1 << 30 // there is no such process
	known := make(map[*unwind.Object]bool)
	for i, from := range []string{"/bin/sleep", "/bin/cat", "/bin/ls"} {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond)                // more than the step of a file system's clock
		require.NoError(t, os.WriteFile(path, b, 0o755)) // into the same inode
		st, err := os.Stat(path)
		require.NoError(t, err)
		of := inode{st.Sys().(*syscall.Stat_t).Ino, uint64(i + 1)}
		o := tr.object(gone, path, nil, of, 0, 0)
		id, err := abi.BuildID(bytes.NewReader(b))
		require.NoError(t, err)
		assert.Equal(t, id, o.BuildID(), from)
		assert.NotContains(t, known, o, from)
		known[o] = true
		assert.Equal(t, of, tr.generation(path, of.number))
		assert.Same(t, o, tr.object(gone, path, nil, tr.generation(path, of.number), 0, 0))
		assert.Equal(t, id, tr.fileID(gone, procfs.Mapping{Name: path, Inode: of.number}),
			"of the file that is there now")
	}
}
