package symbolize

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSettledFunctions: an object whose file is gone keeps the starts of the functions that were met, and no others.
func TestSettledFunctions(t *testing.T) {
	testtool.Need(t, "gcc", "strip")
	dir := t.TempDir()
	source, library := filepath.Join(dir, "a.c"), filepath.Join(dir, "a.so")
	require.NoError(t, os.WriteFile(source,
		[]byte("static __attribute__((noinline)) int f(int *p) { return *p + 1; } int g(int *p) { return f(p) * 2; }"),
		0o666))
	for _, args := range [][]string{{"gcc", "-O1", "-shared", "-fPIC", "-o", library, source}, {"strip", library}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	objects := unwind.NewObjects(unwind.Options{Compile: func(string, io.ReaderAt, int64) ([]byte, error) {
		return nil,
			nil
	}})
	o := objects.Object(library, nil)
	all := readFunctions(o)
	require.NotEmpty(t, all)
	n := New(Options{})
	hidden := function{}
	for _, f := range all {
		if n.table(o).Find(f.start) == nil {
			hidden = f
		}
	}
	require.NotZero(t, hidden, "f has no symbol")
	n.Settle(o, []uint64{hidden.start + 1}, func() {})
	n.background.Wait()
	require.NoError(t, os.Remove(library))
	f, ok := n.functionsOf(o).find(hidden.end - 1)
	assert.True(t, ok)
	assert.Equal(t, hidden, f)
	assert.Len(t, n.functionsOf(o), 1)
	_, ok = n.functionsOf(o).find(hidden.end)
	assert.False(t, ok)
}

// TestNameless: what is below main is not worth a line, a program without names is.
func TestNameless(t *testing.T) {
	objects := unwind.NewObjects(unwind.Options{})
	low, program := objects.Object("/bin/sh", nil), objects.Object("/bin/cat", nil)
	counts := map[*unwind.Object]Hits{low: {All: 20, Unnamed: 10}, program: {All: 60}}
	assert.Empty(t, Nameless(counts))
	counts[program] = Hits{All: 60, Unnamed: 30}
	require.Len(t, Nameless(counts), 1)
	assert.Contains(t, Nameless(counts)[0], "/bin/cat has no names for 50 % of its frames")
}
