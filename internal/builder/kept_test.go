//go:build unix

package builder

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKept: who keeps the cache of all users in step with some folders removes nothing that root has named, while it
// exists.
func TestKept(t *testing.T) {
	objects := twoObjects(t)
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	packages, srv := filepath.Join(dir, "packages"), filepath.Join(dir, "srv")
	for _, folder := range []string{packages, srv} {
		require.NoError(t, os.Mkdir(folder, 0o755))
	}
	place := func(path string, object int) string {
		b, err := os.ReadFile(objects[object])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, b, 0o755))
		return path
	}
	place(filepath.Join(packages, "lib0.so"), 0)
	server := place(filepath.Join(srv, "server\x01"), 1)
	names := func(paths ...string) int {
		kept, err := Kept(cache)
		require.NoError(t, err)
		all, err := CacheNames(context.Background(), slices.Concat([]string{packages}, paths, kept))
		require.NoError(t, err)
		only, err := CacheNames(context.Background(), []string{packages})
		require.NoError(t, err)
		return (len(all) - len(only) + 1) / 2 // of two names each, beyond those of the packages' folder
	}
	assert.Zero(t, names(), "there is no list")
	require.NoError(t, keep(cache, []string{server, packages, filepath.Join(packages, "lib0.so")}))
	kept, err := Kept(cache)
	require.NoError(t, err)
	assert.Equal(t, []string{server, packages}, kept)
	assert.Equal(t, 1, names())
	assert.Equal(t, 1, names(srv))

	// The same again, also after a writer was killed within a line.
	f, err := os.OpenFile(keptFile(cache), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString("/usr/lo")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, keep(cache, []string{server, srv}))
	require.NoError(t, keep(cache, []string{server, srv}))
	kept, err = Kept(cache)
	require.NoError(t, err)
	assert.Equal(t, []string{server, packages, srv}, kept)
	st, err := os.Stat(keptFile(cache))
	require.NoError(t, err)
	assert.EqualValues(t, 0o644, st.Mode().Perm())
	assert.Equal(t, 1, names())

	require.NoError(t, os.WriteFile(server, []byte("#!/bin/sh\n"), 0o755))
	assert.Zero(t, names(), "it is a script now")
	require.NoError(t, os.Remove(server))
	require.NoError(t, syscall.Mkfifo(server, 0o600))
	assert.Zero(t, names(), "it is a FIFO now")
	require.NoError(t, os.Remove(server))
	assert.Zero(t, names(), "it is gone")
	assert.ErrorContains(t, keep(cache, []string{"/a\nb"}), "no line")

	require.NoError(t, os.Chmod(keptFile(cache), 0o666))
	_, err = Kept(cache)
	assert.ErrorContains(t, err, "others may write it", "then nothing may be removed")
}
