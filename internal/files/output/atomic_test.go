//go:build unix

package output

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// names lists a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func requireHolds(t *testing.T, path, content string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
}

func TestReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	write(t, path, "old")
	old, err := os.Open(path)
	require.NoError(t, err)
	defer old.Close()
	f, err := Create(path, PermText)
	require.NoError(t, err)
	_, err = f.Write([]byte("ne"))
	require.NoError(t, err)
	requireHolds(t, path, "old")
	_, err = f.Write([]byte("w"))
	require.NoError(t, err)
	require.NoError(t, f.Commit())
	f.Abort()
	requireHolds(t, path, "new")
	require.Equal(t, []string{"out"}, names(t, dir))
	b, err := io.ReadAll(old)
	require.NoError(t, err)
	require.Equal(t, "old", string(b), "who has the old file open keeps it")

	// A symbolic link is replaced by Create; CreateOutput replaces what it leads to.
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("out", link))
	require.NoError(t, WriteOutput(link, []byte("through"), PermText))
	requireHolds(t, path, "through")
	require.NoError(t, WriteFile(link, []byte("instead"), PermText))
	requireHolds(t, path, "through")
	requireHolds(t, link, "instead")
	require.Equal(t, []string{"link", "out"}, names(t, dir))
}

// TestFollow has a link in the place of what the kernel has looked at.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "out"), filepath.Join(dir, "other")
	write(t, path, "old")
	write(t, other, "other's")
	st, err := os.Stat(path)
	require.NoError(t, err)
	dest, err := follow(path, st)
	require.NoError(t, err)
	found, err := os.Stat(dest)
	require.NoError(t, err)
	require.True(t, os.SameFile(st, found))
	require.NoError(t, os.Remove(path))
	_, err = follow(path, st)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Symlink(other, path))
	_, err = follow(path, st)
	require.ErrorIs(t, err, ErrReplaced)
	require.NoError(t, WriteOutput(path, []byte("new"), PermText))
	requireHolds(t, other, "new")
}

func TestAbort(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	write(t, path, "old")
	f, err := Create(path, PermText)
	require.NoError(t, err)
	_, err = f.Write([]byte("new"))
	require.NoError(t, err)
	f.Abort()
	require.Equal(t, []string{"out"}, names(t, dir))
	_, err = f.Write([]byte("more"))
	require.Error(t, err)
	require.ErrorIs(t, f.Commit(), fs.ErrClosed)
	requireHolds(t, path, "old")
}

func TestNames(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", 255), "new\nline"} {
		require.NoError(t, WriteFile(filepath.Join(t.TempDir(), name), nil, PermText))
	}
}

func TestConcurrently(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := WriteFile(filepath.Join(dir, "out"), []byte("x"), PermText); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []string{"out"}, names(t, dir))
}

func TestRefuses(t *testing.T) {
	both := func(t *testing.T, path string, want error) {
		for _, write := range []func(string, []byte, fs.FileMode) error{WriteFile, WriteOutput} {
			err := write(path, nil, PermText)
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, path+": ")
			require.NotContains(t, err.Error(), tempPrefix)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	both(t, filepath.Join(dir, "folder"), ErrIsFolder)
	both(t, filepath.Join(dir, "none", "out"), os.ErrNotExist)
	write(t, filepath.Join(dir, "file"), "")
	both(t, filepath.Join(dir, "file", "out"), syscall.ENOTDIR)
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	require.ErrorIs(t, WriteFile(filepath.Join(dir, "fifo"), nil, PermText), ErrNotRegular)
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o555))
	testtool.AsOther(t, closed, func() { both(t, filepath.Join(closed, "out"), os.ErrPermission) })
}

// TestModes has the umask decide.
func TestModes(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	for _, c := range []struct {
		umask      int
		perm, want fs.FileMode
	}{{0o022, PermText, 0o644}, {0o077, PermText, 0o600}, {0, PermText, 0o666}, {0, PermCode, 0o644},
		{0o077, PermCode, 0o600}, {0o022, 0o600, 0o600}} {
		syscall.Umask(c.umask)
		path := filepath.Join(t.TempDir(), "out")
		write(t, path, "old")
		require.NoError(t, WriteFile(path, []byte("new"), c.perm))
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, c.want, st.Mode(), "umask %o, perm %o", c.umask, c.perm)
	}
}

// TestInPlace has outputs that cannot be renamed to: a pipe, /dev/full, and by name a file
// that is open.
func TestInPlace(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	name := "/dev/fd/"
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		name = "/proc/self/fd/"
	}
	number := func(f *os.File) string { return name + strconv.Itoa(int(f.Fd())) }
	require.NoError(t, WriteOutput(number(w), []byte("piped"), PermText))
	require.NoError(t, w.Close())
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "piped", string(b))

	path := filepath.Join(t.TempDir(), "open")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	link := filepath.Join(t.TempDir(), "stdout")
	require.NoError(t, os.Symlink(number(file), link))
	before, err := file.Stat()
	require.NoError(t, err)
	require.NoError(t, WriteOutput(link, []byte("text"), PermText))
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the file that is open, as a shell has it for >file")
	requireHolds(t, path, "text")
	require.FileExists(t, link)

	if _, err := os.Stat("/dev/full"); err == nil {
		err := WriteOutput("/dev/full", []byte("x"), PermText)
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.EqualError(t, err, "/dev/full: cannot write: no space left on device")
	}
}

// TestNoSpace ends at every place: by the limit on file sizes, which stops a write in
// its middle, as a full disk does.
func TestNoSpace(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // else it ends the process
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	write(t, path, "old")
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	const pieces, size = 16, 64
	for limit := 0; limit <= pieces*size; limit += size / 2 {
		f, err := Create(path, PermText)
		require.NoError(t, err)
		now := was
		now.Cur = 0
		for range limit { // the type of Cur depends on the system
			now.Cur++
		}
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now))
		for range pieces {
			f.Write(bytes.Repeat([]byte("x"), size)) // as one that forgets to look
		}
		err = f.Commit()
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
		require.Equal(t, []string{"out"}, names(t, dir))
		if limit == pieces*size {
			require.NoError(t, err)
			break
		}
		require.ErrorIs(t, err, syscall.EFBIG)
		require.ErrorContains(t, err, path+": cannot write: ")
		require.Equal(t, err, f.Err())
		requireHolds(t, path, "old")
	}
	requireHolds(t, path, strings.Repeat("x", pieces*size))
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	for _, to := range []string{"one", "two"} {
		require.NoError(t, Symlink(to, link))
		got, err := os.Readlink(link)
		require.NoError(t, err)
		require.Equal(t, to, got)
	}
	require.Equal(t, []string{"link"}, names(t, dir))
	require.ErrorIs(t, Symlink("x", dir), ErrIsFolder)
	err := Symlink("x", filepath.Join(dir, "none", "link"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotContains(t, err.Error(), tempPrefix)
}
