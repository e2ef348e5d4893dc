package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// public are the packages that other modules may import.
func public() []string {
	return []string{"abi", "asmgen", "asmgen/plan", "bpfunwind", "compile", "dwarfcfa", "ehelf", "elfout", "perfdata",
		"prove", "sframe",
		"stack", "unwind"}
}

// TestPublicExamples runs the examples of the public packages in another module, which may not import what is internal.
func TestPublicExamples(t *testing.T) {
	testtool.Long(t)
	dir := t.TempDir()
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(top, name))
		require.NoError(t, err)
		if name == "go.mod" {
			b = []byte(strings.Replace(string(b), "module github.com/ehasm/ehasm", "module example.com/stranger", 1) +
				"\nrequire github.com/ehasm/ehasm v0.0.0\nreplace github.com/ehasm/ehasm => " + top + "\n")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	for _, pkg := range public() {
		files, err := filepath.Glob(filepath.Join(top, pkg, "example*_test.go"))
		require.NoError(t, err)
		var examples int
		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			if !strings.Contains(string(b), "\nfunc Example") {
				continue
			}
			examples++
			to := filepath.Join(dir, pkg, filepath.Base(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
			require.NoError(t, os.WriteFile(to, b, 0o600))
		}
		require.Positive(t, examples, "%s has no example", pkg)
		if data := filepath.Join(top, pkg, "testdata"); pkg == "perfdata" {
			require.NoError(t, os.CopyFS(filepath.Join(dir, pkg, "testdata"), os.DirFS(data)))
		}
	}
	command := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	command("vet", "./...")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "bpfunwind"))) // its example needs rights; it runs in its package
	out := command("test", "-run", "^Example", "./...")
	assert.Equal(t, len(public())-1, strings.Count(out, "ok  \t"), "%s", out)
}

// TestPublicSignatures: what the public packages export names no internal type, but by an alias of theirs.
func TestPublicSignatures(t *testing.T) {
	for _, pkg := range public() {
		files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				checkSignatures(t, name)
			}
		}
	}
}

// checkSignatures fails for exported declarations of a file that name a type of an internal package.
func checkSignatures(t *testing.T, name string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	internal := map[string]bool{}
	for _, imp := range file.Imports {
		if p, _ := strconv.Unquote(imp.Path.Value); strings.HasPrefix(p, module+"internal/") {
			internal[path.Base(p)] = true
		}
	}
	check := func(what string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok {
					assert.False(t, internal[id.Name], "%s: %s names %s.%s", fset.Position(sel.Pos()), what, id.Name, sel.Sel)
				}
			}
			return true
		})
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv.List[0].Type)) {
				check(d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok || !s.Name.IsExported() || s.Assign != token.NoPos {
					continue
				}
				fields, ok := s.Type.(*ast.StructType)
				if !ok {
					check(s.Name.Name, s.Type)
					continue
				}
				for _, f := range fields.Fields.List {
					if len(f.Names) == 0 || f.Names[0].IsExported() {
						check(s.Name.Name, f.Type)
					}
				}
			}
		}
	}
}

// exportedReceiver reports whether a method's type is exported.
func exportedReceiver(x ast.Expr) bool {
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if index, ok := x.(*ast.IndexExpr); ok {
		x = index.X
	}
	id, ok := x.(*ast.Ident)
	return ok && id.IsExported()
}
