// Package layers holds the test of which package may import which.
package layers

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/ehasm/ehasm/"

// TestImports holds every package to the table in ARCHITECTURE.md: its third
// column is what the packages of the first may import directly, and both name
// all there is.
func TestImports(t *testing.T) {
	allowed := readTable(t)
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	listed := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		listed[pkg] = true
		if !assert.Contains(t, allowed, pkg, "ARCHITECTURE.md does not name package %s", pkg) {
			continue
		}
		imported := map[string]bool{}
		for _, dep := range fields[1:] {
			if name, own := strings.CutPrefix(dep, module); own {
				imported[name] = true
				if !allowed[pkg]["any"] {
					assert.True(t, allowed[pkg][name], "%s imports %s, ARCHITECTURE.md does not allow it", pkg, name)
				}
			}
		}
		for name := range allowed[pkg] {
			if name != "any" {
				assert.True(t, imported[name], "ARCHITECTURE.md says that %s imports %s; it does not", pkg, name)
			}
		}
	}
	for pkg := range allowed {
		assert.True(t, listed[pkg], "ARCHITECTURE.md names package %s; there is none", pkg)
	}
}

// readTable returns the packages of ARCHITECTURE.md's table, each with what it
// may import: names of packages, or "any".
func readTable(t *testing.T) map[string]map[string]bool {
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	require.NoError(t, err)
	name := regexp.MustCompile("`([^`]+)`")
	allowed := map[string]map[string]bool{}
	inTable := false
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "| package |"):
			inTable = true
			continue
		case len(cells) != 5:
			inTable = false
		}
		if !inTable || strings.HasPrefix(line, "| ---") {
			continue
		}
		imports := map[string]bool{}
		for _, m := range name.FindAllStringSubmatch(cells[3], -1) {
			imports[m[1]] = true
		}
		switch strings.TrimSpace(cells[3]) {
		case "any":
			imports["any"] = true
		case "none":
		default:
			require.NotEmpty(t, imports, "third column of: %s", line)
		}
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			allowed[m[1]] = imports
		}
	}
	require.NotEmpty(t, allowed)
	return allowed
}
