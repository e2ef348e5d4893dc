//go:build linux

// Package docs holds the test of what the documents tell a reader to do.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// install lays ehasm and libehunwind below a folder, as make install does.
func install(t *testing.T) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "usr")
	top, err := filepath.Abs("..")
	require.NoError(t, err)
	for _, args := range [][]string{
		{"go", "build", "-o", filepath.Join(prefix, "bin", "ehasm"), "./cmd/ehasm"},
		{"make", "-s", "-C", "runtime", "OUT=" + t.TempDir(), "PREFIX=" + prefix, "install"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = top
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%q: %s", args, out)
	}
	return prefix
}

// goCache returns where go keeps what it has built: the documents' cache is another.
func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// compileGo compiles a program of a document inside this module.
func compileGo(t *testing.T, b block) {
	t.Helper()
	dir, err := os.MkdirTemp(".", "_example-") // which ./... passes over
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, b.info[1]), []byte(b.text), 0o644))
	out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
	require.NoError(t, err, "%s: %s", b.info[1], out)
}

// TestLinks holds links between the documents to files that exist.
func TestLinks(t *testing.T) {
	var all []string
	for _, pattern := range []string{"*.md", "validation/*.md", "../*.md", "../bench/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	for _, path := range all {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, part := range strings.Split(string(text), "](")[1:] {
			target, _, ok := strings.Cut(part, ")")
			if !ok || strings.Contains(target, "://") || strings.HasPrefix(target, "#") || strings.ContainsAny(target, " \n`") {
				continue
			}
			target, _, _ = strings.Cut(target, "#")
			_, err := os.Stat(filepath.Join(filepath.Dir(path), target))
			assert.NoError(t, err, "%s links to it", path)
		}
	}
}

func goPath(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOPATH").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
