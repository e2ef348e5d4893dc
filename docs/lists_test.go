//go:build linux

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/timeline"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// source returns the text of a file of the project.
func source(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	require.NoError(t, err)
	return string(text)
}

// between returns the text of a file from one phrase to another.
func between(t *testing.T, path, from, to string) string {
	t.Helper()
	_, text, found := strings.Cut(source(t, path), from)
	require.True(t, found, "%s: %s", path, from)
	text, _, found = strings.Cut(text, to)
	require.True(t, found, "%s: %s", path, to)
	return text
}

// TestNamesOfFormats holds help texts, an error and pages that list the formats of stacks to the formats there are.
func TestNamesOfFormats(t *testing.T) {
	// Each list alone: examples beside it name suffixes, too.
	recorded := []string{
		between(t, "cmd/ehasm/script.go", "Without --format", "\n\n"),
		between(t, "cmd/ehasm/record.go", "const recordMore = `", "several events."),
		between(t, "cmd/ehasm/record.go", "unknown suffix: want", "or --format"),
		between(t, "docs/script.md", "| `--format` |", "\n\n"),
		between(t, "docs/record.md", "| name | for |", "\n\n"),
	}
	anywhere := append([]string{
		between(t, "cmd/ehasm/stack.go", "Without --format", "any other"),
		between(t, "docs/stack.md", "The name of `-o` chooses", "else text"),
	}, recorded...)
	page, help := source(t, "docs/script.md"), between(t, "cmd/ehasm/script.go", "\nFormats:\n", "Without --format")
	known := map[string]bool{"perf.data": true} // of package main
	for i, spec := range append(stackfmt.Specs(), timeline.Spec()) {
		known[spec.Name] = true
		assert.Contains(t, page, "`"+spec.Name+"`")
		assert.Contains(t, help, "\n  "+spec.Name+" ", "help of script")
		lists := recorded
		if i < len(stackfmt.Specs()) {
			lists = anywhere
		}
		for _, list := range lists {
			// .json is not the beginning of .json.gz.
			assert.Regexp(t, regexp.QuoteMeta(spec.Suffixes[0])+`(?:[^.\w]|\.\W)`, list, "suffixes of formats")
		}
	}
	_, rows, found := strings.Cut(page, "| `--format` |")
	require.True(t, found)
	rows, _, _ = strings.Cut(rows, "\n\n")
	names := 0
	for line := range strings.Lines(rows) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, m := range regexp.MustCompile("`([a-z.]+)`").FindAllStringSubmatch(cell, -1) {
			assert.True(t, known[m[1]], "docs/script.md: no format %s", m[1])
			names++
		}
	}
	assert.Equal(t, len(known), names)
}

// TestNamesOfFindings holds the texts about kinds of findings to the kinds there are.
func TestNamesOfFindings(t *testing.T) {
	const folder = "internal/analysis/check/"
	help, page := source(t, "cmd/ehasm/check.go"), source(t, "docs/check.md")
	message, sarif := source(t, folder+"message.go"), source(t, folder+"sarif.go")
	kinds := regexp.MustCompile(`(Kind\w+) +Kind = "([a-z-]+)"`).FindAllStringSubmatch(source(t, folder+"report.go"), -1)
	assert.Greater(t, len(kinds), 10)
	for _, kind := range kinds {
		assert.Contains(t, help, "\n  "+kind[2]+" ", "help of check")
		assert.Contains(t, page, "\n| `"+kind[2]+"` |", "docs/check.md")
		assert.Regexp(t, `case .*\b`+kind[1]+`\b`, message, "message.go")
		assert.Contains(t, sarif, "{string("+kind[1]+")", "sarif.go")
	}
}

// TestKindsOfRules holds the list of what a new kind of rule concerns to the switches over kinds.
func TestKindsOfRules(t *testing.T) {
	list := between(t, "CONTRIBUTING.md", "## How to add a kind of rule", "`TestKindsOfRules`")
	kinds := regexp.MustCompile(`case .*\bRule(Undefined|SameValue|Offset|ValOffset|Register|Expression|ValExpression)\b`)
	found := 0
	require.NoError(t, fs.WalkDir(os.DirFS(".."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "bench" || path == "build" || path == ".git"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || !kinds.MatchString(source(t, path)):
			return nil
		}
		found++
		assert.Regexp(t, "[`/]"+regexp.QuoteMeta(filepath.Base(path))+"`", list, "CONTRIBUTING.md: %s switches over kinds of rules", path)
		return nil
	}))
	assert.Greater(t, found, 10)
}
