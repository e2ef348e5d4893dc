//go:build linux

package input

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	below := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(below("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", below("link")))
	require.NoError(t, os.WriteFile(below("empty"), nil, 0o600))
	require.NoError(t, unix.Mkfifo(below("fifo"), 0o600))
	require.NoError(t, os.Symlink("/dev/tty", below("device")))
	for name, size := range map[string]int64{"holes": 1 << 40, "few holes": plainSize} {
		require.NoError(t, os.WriteFile(below(name), []byte("text"), 0o600))
		require.NoError(t, os.Truncate(below(name), size))
	}
	for name, size := range map[string]int64{"no blocks": 1 << 40, "small without blocks": plainSize} {
		require.NoError(t, os.WriteFile(below(name), nil, 0o600))
		require.NoError(t, os.Truncate(below(name), size))
	}
	small, err := Open(below("small without blocks"))
	require.NoError(t, err)
	small.Close()
	for name, want := range map[string]error{
		"file": nil, "link": nil, "few holes": nil, "none": os.ErrNotExist, "empty": ErrEmpty, "fifo": ErrNotRegular,
		"device": ErrNotRegular,
		".":      ErrNotRegular, "holes": ErrSparse, "no blocks": ErrSparse,
		"../../../../../../../proc/kallsyms": ErrEmpty, "file/x": unix.ENOTDIR,
	} {
		testtool.Within(t, 10*time.Second, func() {
			f, err := Open(below(name))
			if want != nil {
				assert.ErrorIs(t, err, want, name)
				return
			}
			if !assert.NoError(t, err) {
				return
			}
			defer f.Close()
			assert.Equal(t, below(name), f.Name())
			b := make([]byte, 4)
			_, err = io.ReadFull(f, b)
			assert.NoError(t, err)
			assert.Equal(t, "text", string(b))
		})
	}
	_, err = Open(below("fifo"))
	assert.EqualError(t, err, below("fifo")+": not a regular file")
}

// TestOpenBelow: a link that a process has in place of its file does not lead out of its root folder.
func TestOpenBelow(t *testing.T) {
	root := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for _, path := range []string{secret, root + "/bin/prog"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	}
	require.NoError(t, os.Symlink(secret, root+"/link"))
	require.NoError(t, os.Symlink(filepath.Dir(secret), root+"/folder"))
	require.NoError(t, os.Symlink("bin", root+"/inside"))
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o600))
	for path, good := range map[string]bool{
		"/bin/prog": true, "bin/prog": true, "//bin//prog": false, "/link": false, "/folder/secret": false,
		"/inside/prog": false, "/fifo": false,
		"/bin/../bin/prog": false, "/..": false, "/": false, "/none": false, "/bin/prog/x": false,
	} {
		testtool.Within(t, 10*time.Second, func() {
			f, err := OpenBelow(root, path)
			assert.Equal(t, good, err == nil, "%s: %v", path, err)
			if err == nil {
				assert.Equal(t, root+path, f.Name())
				f.Close()
			}
		})
	}
	_, err := OpenBelow(root+"/none", "/bin/prog")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// TestOpenWhileReplaced has a file become a FIFO, a link and a file again all the time.
func TestOpenWhileReplaced(t *testing.T) {
	dir := t.TempDir()
	path, fifo, file := filepath.Join(dir, "path"), filepath.Join(dir, "fifo"), filepath.Join(dir, "file")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			temp := filepath.Join(dir, "new")
			_ = os.Link([]string{file, fifo}[i%2], temp)
			_ = os.Rename(temp, path)
			_ = os.Remove(temp) // rename does nothing where both are one file
		}
	}()
	testtool.Within(t, 10*time.Second, func() {
		opened := 0
		for begin := time.Now(); time.Since(begin) < 200*time.Millisecond; {
			if f, err := Open(path); err == nil {
				st, err := f.Stat()
				assert.NoError(t, err)
				assert.True(t, st.Mode().IsRegular())
				f.Close()
				opened++
			}
		}
		assert.NotZero(t, opened)
	})
	close(stop)
	<-stopped
}
