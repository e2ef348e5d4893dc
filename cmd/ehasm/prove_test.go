package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/prove"
)

// TestProveContent: an object without build-id is told by its content, whatever its size.
func TestProveContent(t *testing.T) {
	dir := t.TempDir()
	object := smallELF(t, 0)
	path := writeFile(t, filepath.Join(dir, "small.so"), object)
	require.Equal(t, exitDone, ehasm(t, "build", path).code)
	eh := path + ".eh_elf.so"
	longer := writeFile(t, filepath.Join(dir, "longer.so"), append(object[:len(object):len(object)], 0))
	r := ehasm(t, "prove", "--object", longer, eh)
	assert.Equal(t, exitDone, r.code, r.stderr)
	other := smallELF(t, 1)
	require.Len(t, other, len(object))
	r = ehasm(t, "prove", "--object", writeFile(t, filepath.Join(dir, "other.so"), other), eh)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "eh_elf of another object: other content")
}

// TestProveSites: the table for exceptions is the object's. A file with one that libehunwind cannot
// read, as its format was another then, is made again.
func TestProveSites(t *testing.T) {
	testtool.Need(t, "g++")
	dir := t.TempDir()
	source := writeFile(t, filepath.Join(dir, "a.cc"), []byte(`void g();
struct A { ~A(); };
void f() { A a; g(); }
void h() { try { g(); } catch (int) { } }
`))
	path := filepath.Join(dir, "a.so")
	out, err := exec.Command("g++", "-O1", "-shared", "-fPIC", "-Wl,--build-id", "-o", path, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, exitDone, ehasm(t, "build", path).code)
	eh := path + ".eh_elf.so"
	r := ehasm(t, "prove", eh)
	assert.Equal(t, exitDone, r.code, r.stderr)
	image, err := os.ReadFile(eh)
	require.NoError(t, err)
	table, has, err := prove.Sites(image)
	require.NoError(t, err)
	require.True(t, has)
	require.NotEmpty(t, table)
	offset := bytes.Index(image, table)
	for i := range table {
		image[offset+i]++
		writeFile(t, eh, image)
		r = ehasm(t, "prove", eh)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "its table for exceptions is not the object's")
		image[offset+i]--
	}

	writeFile(t, eh, image)
	assert.Contains(t, ehasm(t, "build", path).stdout, "up to date")
	// a small file is mapped as it is
	note := abi.SitesNote{Version: abi.SitesVersion, Addr: uint64(offset), Size: uint64(len(table))}
	require.Equal(t, 1, bytes.Count(image, note.Bytes()))
	older := note
	older.Version--
	writeFile(t, eh, bytes.Replace(image, note.Bytes(), older.Bytes(), 1))
	assert.NotContains(t, ehasm(t, "build", path).stdout, "up to date")
	made, err := os.ReadFile(eh)
	require.NoError(t, err)
	assert.Equal(t, image, made)
}
