package elfout

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
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
