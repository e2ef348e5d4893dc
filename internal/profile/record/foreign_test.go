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
	"github.com/ehasm/ehasm/internal/profile/mapped"
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
			defer tr.files.Close()
			done := make(chan struct{})
			var f mapped.Found
			var o *unwind.Object
			go func() {
				defer close(done)
				f = tr.files.Find(tr.origin(pid), &m, time.Time{})
				o = tr.object(&m, &f)
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("it waits")
			}
			assert.NotEmpty(t, f.BuildID())
			assert.Equal(t, f.BuildID(), o.BuildID())
			require.Len(t, tr.files.Open, 1)
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
		tr.files.Open[&unwind.Object{Name: fmt.Sprint(i)}] = nil
	}
	for i, want := range []bool{true, false} {
		m.Name += fmt.Sprint("/", i)
		o := objectAt(tr, pid, m)
		assert.Equal(t, want, o.Path() != "")
	}
	assert.Len(t, tr.files.Open, MostFiles())
	tr.files.Close()
}

// objectAt returns the object of a mapping.
func objectAt(tr *tracker, pid int32, m procfs.Mapping) *unwind.Object {
	f := tr.files.Find(tr.origin(pid), &m, time.Time{})
	return tr.object(&m, &f)
}

// gone is a process that there is not.
const gone = 1 << 30

// TestEnded: the file of a process that has ended is found where its parent sees it. What was not found for one process
// is looked for again for the next.
func TestEnded(t *testing.T) {
	pid, m := replaced(t, func(string) {})
	m.Name += ".old"
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.files.Close()
	require.NoError(t, os.Rename(m.Name, m.Name+".away"))
	first := objectAt(tr, gone, m)
	assert.Empty(t, first.Path())
	assert.ErrorContains(t, first.Err(), "is not to be found")
	assert.Same(t, first, objectAt(tr, gone, m))
	require.NoError(t, os.Rename(m.Name+".away", m.Name))
	second := objectAt(tr, gone+1, m)
	assert.Equal(t, m.Name, second.Path())
	assert.NotEmpty(t, second.BuildID())

	tr.processes[gone+2] = &process{parent: pid}
	assert.Same(t, second, objectAt(tr, gone+2, m))
	m.Inode++
	assert.Empty(t, objectAt(tr, gone+2, m).Path(), "another file")
}

// TestWrittenInPlace: a file that is written to is another one, with a build-id and without. One that was written to
// after it was mapped is not taken for what was mapped.
func TestWrittenInPlace(t *testing.T) {
	for _, withID := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "program")
		tr := newTracker(unwind.NewObjects(unwind.Options{}))
		defer tr.files.Close()
		known := make(map[*unwind.Object]bool)
		for i, from := range []string{"/bin/sleep", "/bin/cat", "/bin/ls"} {
			b, err := os.ReadFile(from)
			require.NoError(t, err)
			id, err := abi.BuildID(bytes.NewReader(b))
			require.NoError(t, err)
			if !withID {
				b = bytes.ReplaceAll(b, []byte("GNU\x00"+string(id)), []byte("XXX\x00"+string(id)))
				id = nil
			}
			time.Sleep(20 * time.Millisecond)                // more than the step of a file system's clock
			require.NoError(t, os.WriteFile(path, b, 0o755)) // into the same inode
			st, err := os.Stat(path)
			require.NoError(t, err)
			m := procfs.Mapping{Name: path, Inode: st.Sys().(*syscall.Stat_t).Ino}
			for _, pid := range []int32{gone, int32(os.Getpid())} {
				o := objectAt(tr, pid, m)
				assert.Equal(t, id, o.BuildID(), from)
				assert.Equal(t, path, o.Path())
				assert.Equal(t, pid != gone, known[o], from)
				known[o] = true
			}
			for after, found := range map[time.Duration]bool{-time.Microsecond: false, time.Microsecond: true} {
				f := tr.files.Find(tr.origin(gone), &m, st.ModTime().Add(after))
				assert.Equal(t, found, tr.object(&m, &f).Path() != "", "%d", i)
			}
		}
	}
}

// TestReplacedWithoutID: a file without build-id is not taken for the one that was in its place before.
func TestReplacedWithoutID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	defer tr.files.Close()
	var last *unwind.Object
	var was procfs.Mapping
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
		m := procfs.Mapping{Name: path, Inode: st.Sys().(*syscall.Stat_t).Ino}
		o := objectAt(tr, gone, m)
		id, err := abi.BuildID(bytes.NewReader(b))
		require.NoError(t, err)
		assert.Equal(t, id, o.BuildID(), from)
		assert.NotSame(t, last, o)
		assert.Same(t, o, objectAt(tr, gone, m))
		if last != nil {
			assert.Empty(t, objectAt(tr, gone, was).Path(), "nothing is at the name of the one before")
		}
		last, was = o, m
	}
}
