package ondemand

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/rows"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTablesCached: tables are read from the cache only if no other user can have written them, and this release made
// them, with the usual options, from this very object.
func TestTablesCached(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	path := filepath.Join(dir, "program")
	compileTo := func(source string) {
		cmd := exec.Command("gcc", "-O1", "-Wl,--build-id=0x1234", "-x", "c", "-o", path, "-")
		cmd.Stdin = bytes.NewReader([]byte(source))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	object := func() *unwind.Object { return unwind.NewObjects(unwind.Options{}).Object(path, nil) }
	cached := func(opt Options) *bpfunwind.Tables {
		ts, err := New(opt).Tables(t.Context(), object(), false)
		require.NoError(t, err)
		return ts
	}
	compileTo("int main(int n, char **v) { char b[n]; return b[0] + (n > 9 ? main(n - 1, v) : 1); }")
	require.Nil(t, cached(Options{}))
	made, err := New(Options{}).Tables(t.Context(), object(), true)
	require.NoError(t, err)
	require.Nil(t, cached(Options{}), "without Keep nothing is written")
	_, err = New(Options{Keep: true}).Tables(t.Context(), object(), true)
	require.NoError(t, err)
	assert.Equal(t, made, cached(Options{}))
	assert.Nil(t, cached(Options{Options: rows.Options{TablesOnly: true}}), "others are wanted")
	assert.Nil(t, cached(Options{Options: rows.Options{Source: dwarfcfa.SourceDebugFrame}}))

	o, err := dwarfcfa.Open(path)
	require.NoError(t, err)
	defer o.Close()
	folder, err := builder.CacheFolder(os.Getenv)
	require.NoError(t, err)
	file := filepath.Join(folder, builder.TablesName(o))
	names, err := builder.CacheNames(t.Context(), []string{path})
	require.NoError(t, err)
	assert.True(t, names[builder.TablesName(o)], "what --only keeps")
	good, err := os.ReadFile(file)
	require.NoError(t, err)
	write := func(b []byte) {
		require.NoError(t, os.WriteFile(file, b, 0o600))
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		write(bad)
		require.Nil(t, cached(Options{}), "byte %d", i)
		write(good[:i])
		require.Nil(t, cached(Options{}), "%d bytes", i)
	}
	from, ts, err := bpfunwind.ParseFile(good)
	require.NoError(t, err)
	write(ts.AppendFile(nil, from))
	require.NotNil(t, cached(Options{}))
	other := from
	other.Made = "another release" + from.Made[len(compile.Release):]
	write(ts.AppendFile(nil, other))
	assert.Nil(t, cached(Options{}))
	other = from
	other.Note.Content = append(abi.Content{}, from.Note.Content...)
	other.Note.Content[0].Hash++
	write(ts.AppendFile(nil, other))
	assert.Nil(t, cached(Options{}))
	write(good)
	require.NoError(t, os.Chmod(file, 0o602))
	assert.Nil(t, cached(Options{}), "others may write")
	require.NoError(t, os.Chmod(file, 0o600))
	require.NotNil(t, cached(Options{}))

	compileTo("int main(int n, char **v) { char b[n * 8000]; return b[0] + (n > 9 ? main(n - 1, v) + main(n - 2, v) : 1); }")
	o, err = dwarfcfa.Open(path)
	require.NoError(t, err)
	defer o.Close()
	write2 := filepath.Join(folder, builder.TablesName(o))
	require.NoError(t, os.MkdirAll(filepath.Dir(write2), 0o700))
	require.NoError(t, os.WriteFile(write2, good, 0o600))
	assert.Nil(t, cached(Options{}), "another object with the build-id")
	KeepTables(t.Context(), o)
	assert.NotNil(t, cached(Options{}), "as build --cache keeps them")
}
