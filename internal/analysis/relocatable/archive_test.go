package relocatable

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// members returns the names and contents of an archive's members.
func members(b []byte) (names []string, contents []byte, err error) {
	for m, err := range Members(bytes.NewReader(b), int64(len(b))) {
		if err != nil {
			return names, contents, err
		}
		data := make([]byte, m.Size())
		if _, err := m.ReadAt(data, 0); err != nil {
			return names, contents, err
		}
		names, contents = append(names, m.Name), append(contents, data...)
	}
	return names, contents, nil
}

// TestMembers compares what ar lists and prints with the members, and cuts the archive everywhere.
func TestMembers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"odd.o", "a_name_of_more_than_16_bytes.o", "two words", "empty"} {
		text := strings.Repeat("x", len(name)%8)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	code, err := os.ReadFile(object(t, "g++", "-O1"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "code.o"), code, 0o600))
	run := func(args ...string) []byte {
		cmd := exec.Command("ar", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return out
	}
	run("rcs", "all.a", "odd.o", "a_name_of_more_than_16_bytes.o", "code.o", "two words", "empty")
	b, err := os.ReadFile(filepath.Join(dir, "all.a"))
	require.NoError(t, err)
	require.True(t, IsArchive(bytes.NewReader(b)))
	names, contents, err := members(b)
	require.NoError(t, err)
	assert.Equal(t, strings.Split(strings.TrimSpace(string(run("t", "all.a"))), "\n"), names)
	assert.Equal(t, run("p", "all.a"), contents)
	for n := range len(b) {
		_, _, err := members(b[:n])
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
		}
	}

	bsd := "!<arch>\n#1/5            0           0     0     644     7         `\nname\x00hi\n"
	names, contents, err = members([]byte(bsd))
	require.NoError(t, err)
	assert.Equal(t, []string{"name"}, names)
	assert.Equal(t, "hi", string(contents))

	run("rcsT", "thin.a", "code.o")
	b, err = os.ReadFile(filepath.Join(dir, "thin.a"))
	require.NoError(t, err)
	_, _, err = members(b)
	assert.ErrorIs(t, err, ErrThin)
}

func FuzzMembers(f *testing.F) {
	f.Add([]byte(archiveMagic + "#1/5            0           0     0     644     7         `\nname\x00hi\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = members(b) })
}
