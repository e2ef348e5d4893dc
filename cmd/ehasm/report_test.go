//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBuildNothing: a folder without anything to compile is a failure, one with files that are up to date is not.
func TestBuildNothing(t *testing.T) {
	empty, text, good := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(text, "a"), []byte("text"))
	writeFile(t, filepath.Join(good, "a.so"), programOf("main"))
	for _, flags := range [][]string{nil, {"-q"}, {"--json"}} {
		for _, folder := range []string{empty, text} {
			r := ehasm(t, append(append([]string{"build"}, flags...), folder)...)
			assert.Equal(t, exitFailed, r.code)
			assert.Contains(t, r.stderr, folder+": nothing to compile")
		}
		for range 2 {
			r := ehasm(t, append(append([]string{"build"}, flags...), empty, good)...)
			assert.Equal(t, exitDone, r.code, r.stderr)
		}
	}
}

// TestBuildJSONNames: names that are not UTF-8 are in the JSON as bytes, others only as text.
func TestBuildJSONNames(t *testing.T) {
	dir := t.TempDir()
	odd, plain := filepath.Join(dir, "a\xff\xfe.so"), filepath.Join(dir, "b.so")
	for _, path := range []string{odd, plain} {
		if err := os.WriteFile(path, programOf("main"), 0o755); err != nil {
			t.Skip("needs a file system for this name:", err)
		}
	}
	missing := filepath.Join(dir, "\xff")
	r := ehasm(t, "build", "--json", odd, plain, missing)
	assert.Equal(t, exitFailed, r.code)
	var doc struct {
		Files []struct {
			File   string
			Output string
			Bytes  []byte `json:"file_base64"`
			Built  []byte `json:"output_base64"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &doc))
	require.NotEmpty(t, doc.Files)
	found := make(map[string]string)
	for _, f := range doc.Files {
		name, built := string(f.Bytes), string(f.Built)
		if f.File == plain {
			assert.Empty(t, name+built)
			name, built = f.File, f.Output
		}
		found[name] = built
	}
	for _, path := range []string{odd, plain} {
		require.Contains(t, found, path)
		assert.FileExists(t, found[path])
	}
}
