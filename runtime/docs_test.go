//go:build unix

package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// example returns the first code block of a language in a section of a page of docs.
func example(t *testing.T, page, section, language string) []byte {
	t.Helper()
	_, rest, ok := strings.Cut(string(read(t, "../docs/"+page)), "\n## "+section+"\n")
	require.True(t, ok)
	_, rest, ok = strings.Cut(rest, "```"+language) // and the name of the file
	require.True(t, ok)
	_, rest, ok = strings.Cut(rest, "\n")
	require.True(t, ok)
	code, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	return []byte(code)
}

// TestExampleC builds and runs the example of the documentation.
func TestExampleC(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	source, prog := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, example(t, "runtime.md", "From C", "c"), 0o644))
	args := k.gcc("example", source, k.path("libehunwind.so"))
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(k.path("example"), prog))
	build := exec.Command(k.path("ehasm"), "build", "-q", "--cache", "--deps", "--vdso", prog)
	build.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.Split(k.mustRun(t, "", []string{"XDG_CACHE_HOME=" + dir, "EHASM_STATS=1"}, prog), "\n")
	assert.Contains(t, strings.Join(lines, "\n"), "1 walks; 5 of 5 objects have an eh_elf")
	assert.Contains(t, strings.Join(lines, "\n"), "no information 0, memory not readable 0")
	assert.Greater(t, len(lines), 5)
}

// TestExamplePython runs the example for calls from other languages.
func TestExamplePython(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "python3")
	out := k.mustRun(t, k.path("eh"), []string{"LD_LIBRARY_PATH=" + k.dir}, "python3", "-c",
		string(example(t, "languages.md", "Python", "python")))
	assert.Regexp(t, `^\d+ frames, from 0x[0-9a-f]+\n$`, out)
}

// TestExamplePreload runs the example for existing programs.
func TestExamplePreload(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	source, prog := filepath.Join(dir, "program.c"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, example(t, "preload.md", "Existing programs", "c"), 0o644))
	out, err := exec.Command("gcc", "-rdynamic", "-o", prog, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	build := exec.Command(k.path("ehasm"), "build", "-q", "--cache", "--deps", "--vdso", prog,
		k.path("libehunwind-preload.so"))
	build.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir)
	out, err = build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	got, err := k.run(t, "", []string{"XDG_CACHE_HOME=" + dir, "EHASM_STATS=1",
		"LD_PRELOAD=" + k.path("libehunwind-preload.so")}, prog)
	require.NoError(t, err, "%s", got)
	for _, part := range []string{"libc.so.6(qsort_r+0x", "program(main+0x", "program(_start+0x", "backtrace 1/0,",
		"5 of 6 objects"} {
		assert.Contains(t, got, part)
	}
}
