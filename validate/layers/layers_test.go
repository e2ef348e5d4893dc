// Package layers holds the tests of which package may import which, and of plain words.
package layers

import (
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

const module = "github.com/ehasm/ehasm/"

// group is a line of ARCHITECTURE.md's table of groups.
type group struct {
	name     string
	packages []string // paths; those that end in /... stand for all below
	imports  []string // names of groups; "any" stands for all
}

// holds reports whether a package is in the group.
func (g *group) holds(pkg string) bool {
	return slices.ContainsFunc(g.packages, func(p string) bool {
		folder, all := strings.CutSuffix(p, "/...")
		return p == pkg || all && (pkg == folder || strings.HasPrefix(pkg, folder+"/"))
	})
}

// mayImport reports whether packages of the group may import those of another one.
func (g *group) mayImport(other *group) bool {
	return g == other || slices.Contains(g.imports, other.name) || slices.Contains(g.imports, "any")
}

// TestImports holds every package to ARCHITECTURE.md: it is in one group, which may import the
// groups of what it imports, and every import that a group may have, it has.
func TestImports(t *testing.T) {
	groups := readGroups(t)
	used := map[string]map[string]bool{}
	for pkg, imports := range packages(t) {
		g := groupOf(t, groups, pkg)
		for _, name := range imports {
			other := groupOf(t, groups, name)
			assert.True(t, g.mayImport(other), "%s (%s) imports %s (%s), which ARCHITECTURE.md does not allow", pkg,
				g.name, name, other.name)
			if used[g.name] == nil {
				used[g.name] = map[string]bool{}
			}
			used[g.name][other.name] = true
		}
	}
	for _, g := range groups {
		for _, name := range g.imports {
			assert.True(t, name == "any" || used[g.name][name],
				"ARCHITECTURE.md says that %s imports %s; it does not", g.name, name)
		}
	}
}

// TestPackages: ARCHITECTURE.md says what each package holds that is not a test's.
func TestPackages(t *testing.T) {
	groups, said := readGroups(t), map[string]bool{}
	for _, cells := range table(t, "| package | holds |") {
		for _, name := range names(cells[0]) {
			said[name] = true
		}
	}
	have := packages(t)
	for pkg := range have {
		if g := groupOf(t, groups, pkg); g.name != "testing" {
			assert.True(t, said[pkg], "ARCHITECTURE.md does not name package %s", pkg)
		}
	}
	for pkg := range said {
		assert.Contains(t, have, pkg, "ARCHITECTURE.md names package %s; there is none", pkg)
	}
}

// groupOf returns the one group that holds a package.
func groupOf(t *testing.T, groups []*group, pkg string) *group {
	t.Helper()
	var found []*group
	for _, g := range groups {
		if g.holds(pkg) {
			found = append(found, g)
		}
	}
	require.Len(t, found, 1, "groups of package %s in ARCHITECTURE.md", pkg)
	return found[0]
}

// packages returns the module's packages, each with those that it imports, tests apart.
func packages(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").CombinedOutput()
	require.NoError(t, err, "%s", out)
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		all[pkg] = []string{}
		for _, dep := range fields[1:] {
			if name, own := strings.CutPrefix(dep, module); own {
				all[pkg] = append(all[pkg], name)
			}
		}
	}
	return all
}

// readGroups returns the groups of ARCHITECTURE.md.
func readGroups(t *testing.T) (groups []*group) {
	t.Helper()
	for _, cells := range table(t, "| group | packages |") {
		g := &group{name: cells[0], packages: names(cells[1])}
		if cells[2] != "none" {
			g.imports = strings.Split(cells[2], ", ")
		}
		groups = append(groups, g)
	}
	return groups
}

// names returns what a cell has between backquotes.
func names(cell string) (out []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// table returns the cells of the lines of ARCHITECTURE.md's table whose head begins so.
func table(t *testing.T, head string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "ARCHITECTURE.md"))
	require.NoError(t, err)
	_, body, found := strings.Cut(string(text), "\n"+head)
	require.True(t, found, "ARCHITECTURE.md has no table %q", head)
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "|") && len(rows) > 0 {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(cells[0], " ---") {
			continue // the rest of the head, and the line below it
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	require.NotEmpty(t, rows)
	return rows
}

// TestStackIsSmall: a program that reads stacks links no more of our packages than they need: no compiler, no checks,
// no output formats.
func TestStackIsSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"stack").Output()
	require.NoError(t, err)
	own := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return !strings.HasPrefix(p, module) })
	assert.LessOrEqual(t, len(own), 25)
	for _, p := range []string{"asmgen", "compile", "perfdata", "internal/builder", "internal/analysis/check",
		"internal/profile/stackfmt"} {
		assert.NotContains(t, own, module+p)
	}
}
