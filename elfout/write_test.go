package elfout

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testtool"
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

func TestWriteFile(t *testing.T) {
	dir, im := t.TempDir(), tiny(t)
	path := filepath.Join(dir, "out")
	require.NoError(t, im.WriteFile(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, im.Bytes(), got)
	require.Equal(t, []string{"out"}, names(t, dir))

	probe, err := os.OpenFile(filepath.Join(dir, "probe"), os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	want, err := probe.Stat()
	require.NoError(t, err)
	require.NoError(t, probe.Close())
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, want.Mode(), st.Mode())

	var buf bytes.Buffer
	n, err := im.WriteTo(&buf)
	require.NoError(t, err)
	require.Equal(t, im.Size(), n)
	require.Equal(t, im.Bytes(), buf.Bytes())
}

func TestWriteFileReplaces(t *testing.T) {
	dir, im := t.TempDir(), tiny(t)
	path := filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	old, err := os.Open(path)
	require.NoError(t, err)
	defer old.Close()
	require.NoError(t, im.WriteFile(path))
	b := make([]byte, 10)
	n, _ := old.Read(b)
	require.Equal(t, "old", string(b[:n]), "who has the old file open keeps it")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, im.Bytes(), got)

	// A symbolic link is replaced; what it pointed to is not touched.
	link := filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kept"), []byte("kept"), 0o600))
	require.NoError(t, os.Symlink("kept", link))
	require.NoError(t, im.WriteFile(link))
	kept, err := os.ReadFile(filepath.Join(dir, "kept"))
	require.NoError(t, err)
	require.Equal(t, "kept", string(kept))
}

func TestWriteFileLongName(t *testing.T) {
	require.NoError(t, tiny(t).WriteFile(filepath.Join(t.TempDir(), strings.Repeat("n", 255))))
	require.NoError(t, tiny(t).WriteFile(filepath.Join(t.TempDir(), "new\nline")))
}

func TestWriteFileConcurrently(t *testing.T) {
	dir, im := t.TempDir(), tiny(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := im.WriteFile(filepath.Join(dir, "out")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, []string{"out"}, names(t, dir))
}

func TestWriteFileRefuses(t *testing.T) {
	im := tiny(t)
	t.Run("folder", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
		require.ErrorIs(t, im.WriteFile(filepath.Join(dir, "out")), ErrIsFolder)
		require.Equal(t, []string{"out"}, names(t, dir))
	})
	t.Run("fifo", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "out"), 0o644))
		require.ErrorIs(t, im.WriteFile(filepath.Join(dir, "out")), ErrNotRegular)
	})
	t.Run("no folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "none", "out")
		err := im.WriteFile(path)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, path+": ")
		require.NotContains(t, err.Error(), TempPrefix)
	})
	t.Run("file for a folder", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
		require.ErrorIs(t, im.WriteFile(filepath.Join(dir, "f", "out")), syscall.ENOTDIR)
	})
	t.Run("unwritable folder", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o555))
		testtool.AsOther(t, dir, func() {
			require.ErrorIs(t, im.WriteFile(filepath.Join(dir, "out")), os.ErrPermission)
		})
	})
}

// TestWriteFileFull writes past the limit on file sizes, as a full disk would
// stop the write half-way.
func TestWriteFileFull(t *testing.T) {
	dir, im := t.TempDir(), tiny(t)
	path := filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o644))
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1000, Max: was.Max}))
	err := im.WriteFile(path)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.Truef(t, errors.Is(err, syscall.EFBIG), "%v", err)
	require.ErrorContains(t, err, path+": cannot write: ")
	require.Equal(t, []string{"out"}, names(t, dir))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
}
