package builder

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/files/find"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestForSystem: files that others may have written are refused; it is a failure if they were named, not below
// a folder.
func TestForSystem(t *testing.T) {
	image, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	dir := t.TempDir()
	below := filepath.Join(dir, "below")
	require.NoError(t, os.Mkdir(below, 0o755))
	named, other, good := filepath.Join(dir, "named"), filepath.Join(below, "other"), filepath.Join(below, "good")
	for path, mode := range map[string]os.FileMode{named: 0o666, other: 0o666, good: 0o644} {
		require.NoError(t, os.WriteFile(path, image, 0o600))
		require.NoError(t, os.Chmod(path, mode))
	}
	found := find.Find(context.Background(), []string{named, below}, find.Options{})
	list, given, refused := ForSystem(found.Inputs)
	require.Len(t, list, 1)
	assert.Equal(t, good, list[0].Path)
	for path, problems := range map[string][]find.Problem{named: given, other: refused} {
		require.Len(t, problems, 1)
		assert.Equal(t, path, problems[0].Path)
		assert.ErrorContains(t, problems[0].Err, "others may write it")
	}
}
