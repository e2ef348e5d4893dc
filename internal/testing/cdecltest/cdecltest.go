// Package cdecltest is what tests of declarations share: C programs, and whether gcc takes a
// declaration for another of the same function.
package cdecltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/require"
)

// Source is a C program with functions of many types.
func Source(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	path := filepath.Join(filepath.Dir(file), "..", "..", "debuginfo", "cdecl", "testdata", "prototypes.c")
	_, err := os.Stat(path)
	require.NoError(t, err)
	return path
}

// Build compiles C or C++ with gcc into out, which it returns. Warnings are off: random sources have many.
func Build(t testing.TB, src, out string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if filepath.Ext(src) == ".cc" {
		compiler = "g++"
	}
	testtool.Need(t, compiler)
	text, err := exec.Command(compiler, append([]string{"-w", src, "-o", out}, flags...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// Compatible has gcc compile the source again, with declarations after it: each must be of the type that its function
// is defined with (C11 6.7p4), or gcc reports conflicting types.
func Compatible(t testing.TB, src string, declarations []string) {
	t.Helper()
	text, err := os.ReadFile(src)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), filepath.Base(src))
	all := fmt.Sprintf("%s\n%s;\n", text, strings.Join(declarations, ";\n"))
	require.NoError(t, os.WriteFile(path, []byte(all), 0o666))
	Build(t, path, os.DevNull, "-fsyntax-only")
}
