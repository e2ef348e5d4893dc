//go:build unix

package runtime_test

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// norow links the program norow in several ways, each into dir, and makes their eh_elfs.
func norow(t *testing.T, k *kit, dir string, flags map[string]string) {
	t.Helper()
	var objects []string
	var steps [][]string
	for _, name := range []string{"norow", "verdict"} {
		objects = append(objects, filepath.Join(dir, name+".o"))
		steps = append(steps, append(k.gcc(name+".o", "-c", "testdata/"+name+".c"), "-o", objects[len(objects)-1]))
	}
	build := []string{k.path("ehasm"), "build", "-q", "-o", dir}
	for name, f := range flags {
		args := append(objects, k.path("libehunwind.a"), "-lunwind", "-pthread", f, "-o", filepath.Join(dir, name))
		steps = append(steps, append([]string{"gcc"}, args...))
		build = append(build, filepath.Join(dir, name))
	}
	require.Empty(t, runAll(append(steps, build)))
}

// tables returns where a program's procedure linkage tables begin and end.
func tables(t *testing.T, path string) (low, high string) {
	t.Helper()
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var start, end uint64
	for _, s := range f.Sections {
		if s.Name == ".plt" || strings.HasPrefix(s.Name, ".plt.") {
			if start == 0 {
				start = s.Addr
			}
			end = s.Addr + s.Size
		}
	}
	require.Positive(t, start)
	return fmt.Sprintf("%x", start), fmt.Sprintf("%x", end)
}

// TestTablesWithoutRows steps through procedure linkage tables of GNU ld, which it writes
// rows for, or is told not to.
func TestTablesWithoutRows(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	const without = ",--no-ld-generated-unwind-info"
	instructions := map[string]int{ // of 2 functions, and one in .plt.got
		"-Wl,-z,lazy":           2 + 2*3 + 1,
		"-Wl,-z,now":            3 * 1,
		"-Wl,-z,lazy,-z,ibtplt": 2 + 2*(3+2) + 2,
		"-Wl,-z,now,-z,ibtplt":  3 * 2,
	}
	flags := make(map[string]string)
	for f := range instructions {
		name := strings.ReplaceAll(strings.TrimPrefix(f, "-Wl,"), ",", "")
		flags[name], flags[name+without] = f, f+without
	}
	norow(t, k, dir, flags)
	for name, f := range flags {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prog := filepath.Join(dir, name)
			low, high := tables(t, prog)
			want := instructions[strings.TrimSuffix(f, without)]
			out := k.mustRun(t, dir+":"+k.path("eh"), nil, prog, "tables", low, high)
			assert.Regexp(t, fmt.Sprintf(`^instructions=%d tables stacks=[1-9]\d* .* guessed=0 failures=0\n$`, want),
				out)
			out = k.mustRun(t, "", []string{"NO_ROWS=1"}, prog, "tables", low, high)
			assert.Regexp(t, fmt.Sprintf(`^instructions=%d tables .* failures=0\n$`, want), out, "without an eh_elf")
		})
	}
}

// TestKnownInstructions steps through tables of other linkers, and from the frames of
// signals; and does not where the instructions are others.
func TestKnownInstructions(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	norow(t, k, dir, map[string]string{"norow": "-Wl,-z,lazy"})
	prog, path := filepath.Join(dir, "norow"), dir+":"+k.path("eh")
	assert.Equal(t, "instructions=19 forms stacks=38 frames=228 registers=0 guessed=0 failures=0\n",
		k.mustRun(t, path, nil, prog, "forms"))
	assert.Equal(t, "signals stacks=4 frames=24 registers=0 guessed=0 failures=0\n",
		k.mustRun(t, path, nil, prog, "signals"))
	assert.Regexp(t, "^others .* failures=0\n$", k.mustRun(t, path, nil, prog, "others"))
	testtool.Need(t, "valgrind")
	out := k.mustRun(t, path, nil, "valgrind", "-q", "--error-exitcode=9", prog, "others")
	assert.Regexp(t, "^others .* failures=0\n$", out)
}
