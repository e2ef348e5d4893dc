package symbolize

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKernelOnce: the Namers of a recording's parts share the kernel's symbols, which are read once.
func TestKernelOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kallsyms")
	require.NoError(t, os.WriteFile(path, []byte("ffffffff81000000 T _text\nffffffff81000100 t first\n"), 0o666))
	all := New(Options{Kallsyms: path})
	for range 2 {
		part := New(Options{Kallsyms: path, Symbols: all})
		assert.Equal(t, "first", part.NewCache(nil).Kernel(0xffffffff81000104, nil).Name)
		require.Empty(t, part.Close())
		os.Remove(path)
	}
	assert.Empty(t, all.Close())
}
