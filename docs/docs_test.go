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

// block is a fenced part of a document: its info string's words, and its text.
type block struct {
	info []string
	text string
}

func blocks(t *testing.T, path string) (list []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for i, part := range strings.Split("\n"+string(text), "\n```") {
		if i%2 == 1 {
			info, body, _ := strings.Cut(part, "\n")
			list = append(list, block{strings.Fields(info), body + "\n"})
		}
	}
	return list
}

// TestDocuments goes through each document in order, in a folder of its own: a block
// "```c FILE" or "```go FILE" becomes that file, and the lines of "```console" blocks
// that begin with "$ " are run by bash, with ehasm and libehunwind installed. A
// command must succeed, and print something if the document shows that it does.
func TestDocuments(t *testing.T) {
	prefix := install(t)
	documents, err := filepath.Glob("*.md")
	require.NoError(t, err)
	ran := 0
	for _, doc := range append(documents, "../README.md") {
		t.Run(filepath.Base(doc), func(t *testing.T) {
			dir := t.TempDir()
			for _, b := range blocks(t, doc) {
				if len(b.info) == 2 {
					require.NoError(t, os.WriteFile(filepath.Join(dir, b.info[1]), []byte(b.text), 0o644))
				}
				if len(b.info) == 2 && b.info[0] == "go" {
					compileGo(t, b)
				}
				if len(b.info) == 0 || b.info[0] != "console" {
					continue
				}
				for _, c := range commands(b.text) {
					ran++
					out := runIn(t, dir, prefix, c.line)
					if c.shows {
						assert.NotEmpty(t, strings.TrimSpace(out), "%s: prints nothing", c.line)
					}
				}
			}
		})
	}
	assert.NotZero(t, ran)
}

type command struct {
	line  string
	shows bool // output follows in the document
}

func commands(text string) (list []command) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "$ "):
			list = append(list, command{line: line[2:]})
		case len(list) > 0 && strings.HasSuffix(list[len(list)-1].line, "\\"):
			list[len(list)-1].line += "\n" + line
		case len(list) > 0 && strings.TrimSpace(line) != "":
			list[len(list)-1].shows = true
		}
	}
	return list
}

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

func runIn(t *testing.T, dir, prefix, line string) string {
	t.Helper()
	cmd := exec.Command("bash", "-e", "-o", "pipefail", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(prefix, "bin")+":"+os.Getenv("PATH"), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib/pkgconfig"),
		"LD_LIBRARY_PATH="+filepath.Join(prefix, "lib"), "XDG_CACHE_HOME="+filepath.Join(dir, ".cache"), "GOCACHE="+goCache(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", line, out)
	return string(out)
}

// goCache is where go keeps what it has built: the documents' cache is another.
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
