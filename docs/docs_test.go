//go:build linux

// Package docs holds the test of what the documents tell a reader to do.
package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build, for ehasm preload beside LD_PRELOAD
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

// documents returns the paths of all documents.
func documents(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "validation/*.md", "../*.md", "../bench/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// heading is what a link's fragment is made of: the text without marks, in small letters, with
// hyphens for spaces.
func heading(line string) string {
	line = strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
	line = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(line, "")
	return strings.ReplaceAll(line, " ", "-")
}

// TestLinks holds links between the documents to files and headings that exist.
func TestLinks(t *testing.T) {
	headings := make(map[string]map[string]bool)
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		headings[path] = make(map[string]bool)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") {
				headings[path][heading(line)] = true
			}
		}
	}
	fragments := 0
	for path := range headings {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, part := range strings.Split(string(text), "](")[1:] {
			target, _, ok := strings.Cut(part, ")")
			if !ok || strings.Contains(target, "://") || strings.ContainsAny(target, " \n`") {
				continue
			}
			target, fragment, _ := strings.Cut(target, "#")
			file := filepath.Join(filepath.Dir(path), target)
			if target == "" {
				file = path
			}
			_, err := os.Stat(file)
			assert.NoError(t, err, "%s links to it", path)
			if fragment != "" && headings[file] != nil {
				assert.True(t, headings[file][fragment], "%s: %s has no heading %s", path, file, fragment)
				fragments++
			}
		}
	}
	assert.Greater(t, fragments, 5)
}

// TestPictures: a picture of a fixed size is shown smaller on a narrow page. Boxes of flame graphs are shares of its
// width.
func TestPictures(t *testing.T) {
	pictures, err := filepath.Glob("*.svg")
	require.NoError(t, err)
	require.NotEmpty(t, pictures)
	for _, path := range pictures {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if first, _, _ := strings.Cut(string(text), ">\n<"); !strings.Contains(string(text), `id="frames"`) {
			assert.Regexp(t, ` viewBox="0 0 \d+ \d+".*max-width:100%`, first, path)
		}
	}
}

// TestNames holds what documents name to what there is: targets of make, tests and files of this
// project.
func TestNames(t *testing.T) {
	makefiles := ""
	for _, path := range []string{"../Makefile", "../runtime/Makefile"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		makefiles += string(text)
	}
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z-]*):`).FindAllStringSubmatch(makefiles, -1) {
		targets[m[1]] = true
	}
	tests := make(map[string]bool)
	functions := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range functions.FindAllStringSubmatch(string(text), -1) {
			tests[m[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, len(tests), 500)
	made := regexp.MustCompile("(?m)(?:`|^ {4}|^\\$ )make (?:-C runtime )?([a-z][a-z-]*(?:, [a-z][a-z-]*)*)")
	tested := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*`)
	named := regexp.MustCompile("`((?:[a-z0-9]+/)+[\\w.-]+\\.(?:go|sh|c|S))`")
	elsewhere := []string{"csu/init-first.c"} // glibc's
	checked := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range made.FindAllStringSubmatch(string(text), -1) {
			for _, target := range strings.Split(m[1], ", ") {
				assert.True(t, targets[target], "%s: no target %s", path, target)
				checked++
			}
		}
		for _, name := range tested.FindAllString(string(text), -1) {
			assert.True(t, tests[name], "%s: no function %s", path, name)
			checked++
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			_, below := os.Stat(filepath.Join("..", m[1]))
			_, beside := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
			assert.True(t, below == nil || beside == nil || slices.Contains(elsewhere, m[1]), "%s: no file %s", path,
				m[1])
			checked++
		}
	}
	assert.Greater(t, checked, 100)
}

func goPath(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOPATH").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}
