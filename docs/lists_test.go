//go:build linux

package docs

import (
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

// TestNamesOfFormats holds help texts and pages that list the formats of stacks to the formats there are.
func TestNamesOfFormats(t *testing.T) {
	anywhere := []string{"cmd/ehasm/script.go", "cmd/ehasm/stack.go", "docs/stack.md"}
	recorded := []string{"cmd/ehasm/script.go", "cmd/ehasm/record.go", "docs/script.md", "docs/record.md"}
	page := source(t, "docs/script.md")
	known := map[string]bool{"perf.data": true} // of package main
	for i, spec := range append(stackfmt.Specs(), timeline.Spec()) {
		known[spec.Name] = true
		assert.Contains(t, page, "`"+spec.Name+"`")
		paths := recorded
		if i < len(stackfmt.Specs()) {
			paths = append(anywhere, recorded...)
		}
		for _, path := range paths {
			// .json is not the beginning of .json.gz.
			suffix := regexp.MustCompile(regexp.QuoteMeta(spec.Suffixes[0]) + `(?:[^.\w]|\.\W)`)
			assert.Regexp(t, suffix, source(t, path), "%s lists suffixes of formats", path)
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
