//go:build linux && amd64

package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// replaced starts a program that sleeps, has something else put in the place of its file, and
// returns its first executable mapping.
func replaced(t *testing.T, replace func(path string)) (pid int32, m procMapping) {
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
		list, err := readMaps(int32(cmd.Process.Pid))
		require.NoError(t, err)
		i := slices.IndexFunc(list, func(m procMapping) bool { return m.exec && m.name == path+".old" })
		if i < 0 {
			return false
		}
		m = list[i]
		m.name = path // as the kernel told when it was mapped
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
				o = tr.findObject(pid, m.name, nil, m.inode, m.start, m.end)
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
			want, err := os.Stat(m.name + ".old")
			require.NoError(t, err)
			assert.True(t, os.SameFile(got, want))
		})
	}
}

// TestMostFiles: who maps many files that this process has not does not use its descriptors up.
func TestMostFiles(t *testing.T) {
	pid, m := replaced(t, func(path string) { testtool.MakeFIFO(t, path) })
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	for range mostFiles() - 1 {
		tr.files = append(tr.files, nil)
	}
	for i, want := range []bool{true, false} {
		o := tr.findObject(pid, fmt.Sprintf("%s/%d", m.name, i), nil, m.inode, m.start, m.end)
		assert.Equal(t, want, o.Path() != "")
	}
	assert.Len(t, tr.files, mostFiles())
	tr.files[len(tr.files)-1].Close()
}
