package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	assert.Contains(t, r.stderr, "eh_elf of another object: no build-id, and other content")
}
