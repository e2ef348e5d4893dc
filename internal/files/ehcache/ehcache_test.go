//go:build linux

package ehcache

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/input"
	"github.com/ehasm/ehasm/internal/files/output"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// put writes a file of 100 bytes that was last read some days ago, and written long before.
func put(t *testing.T, folder, name string, days int) {
	t.Helper()
	path := filepath.Join(folder, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, make([]byte, 100), 0o644))
	when := time.Now().Add(-time.Duration(days) * 24 * time.Hour)
	written := when
	if !output.IsTemporary(filepath.Base(name)) {
		written = when.Add(-1000 * time.Hour)
	}
	require.NoError(t, os.Chtimes(path, when, written))
}

func names(files []File) (list []string) {
	for _, f := range files {
		list = append(list, f.Name)
	}
	return list
}

// TestPrune: the least recently used go first, and nothing that is not the cache's.
func TestPrune(t *testing.T) {
	folder := filepath.Join(t.TempDir(), ".build-id")
	put(t, folder, "aa/1.eh_elf.so", 3)
	put(t, folder, "aa/2.eh_elf.so", 200)
	put(t, folder, "bb/3.eh_elf.bpf", 50)
	put(t, folder, "bb/.ehasm-0123456789abcdef.tmp", 2)
	put(t, folder, "cc/.ehasm-0123456789abcdef.tmp", 0)
	kept := []string{"aa/notes.txt", "abc/4.eh_elf.so", "5.eh_elf.so"}
	for _, name := range kept {
		put(t, folder, name, 900)
	}
	outside := filepath.Join(t.TempDir(), "6.eh_elf.so")
	require.NoError(t, os.WriteFile(outside, nil, 0o644))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(folder, "dd")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "aa", "7.eh_elf.so")))
	require.True(t, output.IsTemporary(".ehasm-0123456789abcdef.tmp"))

	now := time.Now()
	f, err := Open(folder)
	require.NoError(t, err)
	defer f.Close()
	files, err := f.Files(now)
	require.NoError(t, err)
	require.Equal(t, []string{"aa/2.eh_elf.so", "bb/3.eh_elf.bpf", "aa/1.eh_elf.so", "bb/.ehasm-0123456789abcdef.tmp"},
		names(files))

	const month = 30 * 24 * time.Hour
	leftover := "bb/.ehasm-0123456789abcdef.tmp"
	assert.Equal(t, []string{leftover}, names(Limits{}.Beyond(files, now)))
	assert.Equal(t, []string{"aa/2.eh_elf.so", "bb/3.eh_elf.bpf", leftover},
		names(Limits{Unused: month}.Beyond(files, now)))
	assert.Equal(t, []string{"aa/2.eh_elf.so", leftover}, names(Limits{Bytes: 300}.Beyond(files, now)))
	assert.Equal(t, names(files), names(Limits{Bytes: 1}.Beyond(files, now)))

	removed, err := f.Remove(files)
	require.NoError(t, err)
	assert.Equal(t, files, removed)
	removed, err = f.Remove(files)
	require.NoError(t, err, "another may have removed them")
	assert.Empty(t, removed)
	for _, name := range append(kept, "cc/.ehasm-0123456789abcdef.tmp") {
		assert.FileExists(t, filepath.Join(folder, name))
	}
	assert.FileExists(t, outside)
	assert.NoDirExists(t, filepath.Join(folder, "bb"), "it is empty")
}

// TestOpen: a cache that is not there, and one where others can write.
func TestOpen(t *testing.T) {
	folder := filepath.Join(t.TempDir(), ".build-id")
	_, err := Open(folder)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, os.Chmod(folder, 0o777))
	_, err = Open(folder)
	require.ErrorIs(t, err, input.ErrUntrusted)
}

// TestRemoveSwapped: a subfolder that became a link since it was listed leads to no other file.
func TestRemoveSwapped(t *testing.T) {
	folder, outside := filepath.Join(t.TempDir(), ".build-id"), t.TempDir()
	put(t, folder, "aa/1.eh_elf.so", 3)
	put(t, outside, "1.eh_elf.so", 3)
	f, err := Open(folder)
	require.NoError(t, err)
	defer f.Close()
	files, err := f.Files(time.Now())
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.RemoveAll(filepath.Join(folder, "aa")))
	require.NoError(t, os.Symlink(outside, filepath.Join(folder, "aa")))
	removed, err := f.Remove(files)
	assert.Error(t, err)
	assert.Empty(t, removed)
	assert.FileExists(t, filepath.Join(outside, "1.eh_elf.so"))
}

// TestRemoveFails: the error is one line, however many files cannot be removed, and only what is gone counts as
// removed.
func TestRemoveFails(t *testing.T) {
	folder := filepath.Join(t.TempDir(), ".build-id")
	put(t, folder, "aa/1.eh_elf.so", 3)
	f, err := Open(folder)
	require.NoError(t, err)
	defer f.Close()
	files, err := f.Files(time.Now())
	require.NoError(t, err)
	list := files
	for _, name := range []string{"bb", "cc", "dd"} { // folders that are not empty stay, for root too
		put(t, folder, name+"/.eh_elf.so/1", 3)
		list = append(list, File{Name: name + "/.eh_elf.so", Size: 1000})
	}
	removed, err := f.Remove(list)
	assert.EqualError(t, err, "3 files could not be removed, first bb/.eh_elf.so: directory not empty")
	assert.Equal(t, files, removed)
	_, err = f.Remove(list[3:])
	assert.EqualError(t, err, "dd/.eh_elf.so: directory not empty")
}
