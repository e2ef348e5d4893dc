package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// riddles are phrases that hide who does something, or what a word stands for. A phrase may
// continue in the next line of a comment.
var riddles = regexp.MustCompile(`(?i)\b(?:(?:no|any|some)body|who[m]|(?:gives?|given)[\s/*#]+away|of[\s/*#]+its[\s/*#]+own|that[\s/*#]+of|so[\s/*#]+many|such[\s/*#]+a|are[\s/*#]+told|what[\s/*#]+is[\s/*#]+what|(?-i:W[h]o))\b`)

// vague are names that say nothing of what a field or a type is.
var vague = []string{"again", "alone", "at", "how", "is", "met", "sure", "was"}

// TestWords: the project's text has no riddles.
func TestWords(t *testing.T) {
	var places []string
	for _, path := range sources(t, ".go", ".c", ".cc", ".h", ".S", ".md", ".sh") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, span := range riddles.FindAllIndex(text, -1) {
			places = append(places, fmt.Sprintf("%s:%d: %s", path, 1+strings.Count(string(text[:span[0]]), "\n"),
				text[span[0]:span[1]]))
		}
	}
	assert.Empty(t, places, "%d phrases to say more plainly:\n%s", len(places), strings.Join(places, "\n"))
}

// TestColumns: hardly a line of code has more than 120 columns.
func TestColumns(t *testing.T) {
	const columns, oneIn = 120, 500
	lines := 0
	var long []string
	for _, path := range sources(t, ".go", ".c", ".cc", ".h", ".S") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.Contains(string(text[:min(len(text), 200)]), "Code generated") {
			continue
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > columns {
				long = append(long, fmt.Sprintf("%s:%d", path, n))
			}
		}
		lines += n
	}
	assert.LessOrEqual(t, len(long)*oneIn, lines, "%d long lines of %d:\n%s", len(long), lines, strings.Join(long, "\n"))
}

// TestNames: fields and types are nouns, or adjectives that say of what.
func TestNames(t *testing.T) {
	var places []string
	set := token.NewFileSet()
	for _, path := range sources(t, ".go") {
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, name := range declared(file) {
			if slices.Contains(vague, strings.ToLower(name.Name)) {
				places = append(places, fmt.Sprintf("%s: %s", set.Position(name.Pos()), name.Name))
			}
		}
	}
	assert.Empty(t, places, "%d fields or types to name:\n%s", len(places), strings.Join(places, "\n"))
}

// declared returns the names of a file's types and of their fields.
func declared(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.StructType:
			for _, field := range n.Fields.List {
				names = append(names, field.Names...)
			}
		}
		return true
	})
	return names
}

// TestRiddles: the tests above find what they look for.
func TestRiddles(t *testing.T) {
	for _, text := range []string{"No" + "body knows", "a user who" + "m it trusts", "in a file of\n// its own",
		"other than that\n * of the table", "gives a" + "way", "for so" + " many of it", "in such" + " a case", "errors are" + "\n// told", "what is" + " what", "Wh" + "o waits"} {
		assert.True(t, riddles.MatchString(text), text)
	}
	assert.False(t, riddles.MatchString("its own file; what of it; the thing that offers; anybodyElse; callers are those who call"))
	file, err := parser.ParseFile(token.NewFileSet(), "",
		"package p\ntype How struct{ At, n int; m struct{ was bool } }", parser.SkipObjectResolution)
	require.NoError(t, err)
	var names []string
	for _, name := range declared(file) {
		names = append(names, name.Name)
	}
	assert.Equal(t, []string{"How", "At", "n", "m", "was"}, names)
}

// sources returns the project's files with one of the endings, except what make writes to build.
func sources(t *testing.T, endings ...string) (paths []string) {
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			if slices.Contains(endings, filepath.Ext(path)) {
				paths = append(paths, path)
			}
		case path != root && (entry.Name() == "build" || strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(paths), 100)
	return paths
}
