package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/builder"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withBuildID gives what smallELF made a note with a build-id, between its
// headers and its code.
func withBuildID(t testing.TB, elf []byte, id []byte) []byte {
	t.Helper()
	le := binary.LittleEndian
	const header, noteOff = 64 + 56, 64 + 2*56
	note := le.AppendUint32(nil, 4)
	note = le.AppendUint32(note, uint32(len(id)))
	note = le.AppendUint32(note, 3) // NT_GNU_BUILD_ID
	note = append(append(note, "GNU\x00"...), id...)
	require.LessOrEqual(t, noteOff+len(note), 0x100)
	b := bytes.Clone(elf)
	le.PutUint16(b[56:], 2)     // e_phnum
	le.PutUint32(b[header:], 4) // PT_NOTE
	le.PutUint32(b[header+4:], 4)
	for _, field := range []int{8, 16, 24} { // p_offset, p_vaddr, p_paddr
		le.PutUint64(b[header+field:], noteOff)
	}
	le.PutUint64(b[header+32:], uint64(len(note)))
	le.PutUint64(b[header+40:], uint64(len(note)))
	le.PutUint64(b[header+48:], 4)
	copy(b[noteOff:], note)
	return b
}

func TestBuildCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	dir := t.TempDir()
	one, two := bytes.Repeat([]byte{0x11}, 20), bytes.Repeat([]byte{0x22}, 20)
	a := writeFile(t, filepath.Join(dir, "a.so"), withBuildID(t, smallELF(t, 0), one))
	writeFile(t, filepath.Join(dir, "copy", "a.so"), withBuildID(t, smallELF(t, 0), one))
	b := writeFile(t, filepath.Join(dir, "b.so"), withBuildID(t, smallELF(t, 1), two))

	const base = "ehasm/.build-id/"
	var want []string
	for _, id := range []string{"11", "22"} {
		name := base + id + "/" + strings.Repeat(id, 19)
		want = append(want, name+".eh_elf.bpf", name+".eh_elf.so")
	}
	r := ehasm(t, "build", "--cache", dir)
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Equal(t, want, files(t, cache), "two for each build-id, no temporary file left")
	assert.Equal(t, []string{"a.so", "b.so", "copy/a.so"}, files(t, dir), "nothing beside the objects")

	f, err := os.Open(filepath.Join(cache, want[3]))
	require.NoError(t, err)
	defer f.Close()
	info, err := elfout.ReadInfo(f)
	require.NoError(t, err)
	assert.Equal(t, two, info.Note.BuildID)
	assert.Contains(t, info.Build, "object=b.so", "the name there does not tell")

	// Nothing is written that is up to date; a damaged file is made again.
	stamp := time.Unix(1e9, 0)
	for _, name := range want {
		require.NoError(t, os.Chtimes(filepath.Join(cache, name), stamp, stamp))
	}
	for _, name := range want[:2] {
		require.NoError(t, os.WriteFile(filepath.Join(cache, name), []byte("damaged"), 0o600))
	}
	r = ehasm(t, "build", "--cache", a, b)
	require.Equal(t, exitDone, r.code, r.stderr)
	st, err := os.Stat(filepath.Join(cache, want[3]))
	require.NoError(t, err)
	assert.True(t, st.ModTime().Equal(stamp), "up to date")
	for _, name := range want[:2] {
		made, err := os.ReadFile(filepath.Join(cache, name))
		require.NoError(t, err)
		assert.NotEqual(t, "damaged", string(made))
	}
	r = ehasm(t, "build", "--cache", a, b)
	assert.Contains(t, r.stdout, "up to date")

	// The same object at another size, as strip leaves it, has the same eh_elf.
	longer := writeFile(t, filepath.Join(t.TempDir(), "a.so"),
		append(withBuildID(t, smallELF(t, 0), one), make([]byte, 100)...))
	r = ehasm(t, "build", "--cache", longer)
	assert.Contains(t, r.stdout, "up to date")
}

func TestBuildCacheRefusals(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "a.so"), smallELF(t, 0))
	r := ehasm(t, "build", "--cache", file)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, builder.ErrNoKey.Error(), "a file that was given")
	r = ehasm(t, "build", "--cache", dir)
	assert.Equal(t, exitFailed, r.code, "nothing else is in the folder")
	assert.Contains(t, r.stdout, builder.ErrNoKey.Error(), "a file that a folder holds")
	assert.Equal(t, exitUsage, ehasm(t, "build", "--cache", "-o", dir, file).code)
	t.Setenv("XDG_CACHE_HOME", "relative")
	assert.Equal(t, exitUsage, ehasm(t, "build", "--cache", file).code)
}

// TestCacheVerb: the cache's size, and what is removed from it.
func TestCacheVerb(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	r := ehasm(t, "cache", "--prune")
	require.Equal(t, exitDone, r.code, r.stderr)
	assert.Equal(t, filepath.Join(cache, "ehasm")+": 0 files, 0.0 MB\nremoved: 0 files, 0.0 MB\n", r.stdout,
		"no cache yet")

	dir := t.TempDir()
	for i := range 2 {
		writeFile(t, filepath.Join(dir, string(rune('a'+i))+".so"),
			withBuildID(t, smallELF(t, byte(i)), bytes.Repeat([]byte{byte(i + 1)}, 20)))
	}
	require.Equal(t, exitDone, ehasm(t, "build", "--cache", dir).code)
	made := files(t, cache)
	require.Len(t, made, 4, "eh_elfs, and tables for the kernel")
	old := time.Now().AddDate(0, 0, -8)
	for _, name := range made[2:] {
		require.NoError(t, os.Chtimes(filepath.Join(cache, name), old, old))
	}

	r = ehasm(t, "cache", "--prune")
	assert.Regexp(t, `: 4 files, 0\.\d MB, .* `+old.Format(time.DateOnly)+`.*\nremoved: 0 files, 0\.0 MB\n\z`, r.stdout)
	r = ehasm(t, "cache", "--prune", "--unused", "7")
	assert.Contains(t, r.stdout, "removed: 2 files")
	assert.Equal(t, made[:2], files(t, cache))
	r = ehasm(t, "cache", "--prune", "--max-size", "1", "--json")
	assert.Contains(t, r.stdout, `"removed": 2`)
	assert.Empty(t, files(t, cache))

	require.Equal(t, exitDone, ehasm(t, "build", "--cache", dir).code)
	absent := filepath.Join(dir, "absent")
	r = ehasm(t, "cache", "--prune", "--only", dir, absent)
	assert.Equal(t, result{exitFailed, "", "ehasm: cache: " + absent + ": stat: no such file or directory\n"}, r)
	assert.Equal(t, made, files(t, cache), "nothing is removed if a path is mistyped")
	r = ehasm(t, "cache", "--prune", "--only", t.TempDir())
	assert.Equal(t, exitFailed, r.code, "as a folder where nothing is mounted")
	assert.Equal(t, made, files(t, cache))
	require.NoError(t, os.Remove(filepath.Join(dir, "b.so")))
	r = ehasm(t, "cache", "--prune", "--only", dir)
	assert.Contains(t, r.stdout, "removed: 2 files")
	assert.Equal(t, made[:2], files(t, cache))

	for _, args := range [][]string{{"x"}, {"--prune", "x"}, {"--prune", "--only"}, {"--only", dir}, {"--unused", "3"},
		{"--max-size", "3"}, {"--prune", "--max-size", "many"}} {
		assert.Equal(t, exitUsage, ehasm(t, append([]string{"cache"}, args...)...).code, "%q", args)
	}
	t.Setenv("XDG_CACHE_HOME", "relative")
	assert.Equal(t, exitFailed, ehasm(t, "cache").code)
}
