package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestCompressedBomb: sections that hold far more than the file are not inflated. Those that
// compilers write are, see package srcline.
func TestCompressedBomb(t *testing.T) {
	testtool.Need(t, "gcc")
	testtool.Need(t, "objcopy")
	dir := t.TempDir()
	source := writeFile(t, filepath.Join(dir, "a.c"), []byte("int f(int n) { return n + 1; }\n"))
	zeros := writeFile(t, filepath.Join(dir, "zeros"), make([]byte, 32<<20))
	object := filepath.Join(dir, "a.so")
	for _, args := range [][]string{
		{"gcc", "-g", "-shared", "-o", object, source},
		{"objcopy", "--update-section", ".debug_info=" + zeros, object},
		{"objcopy", "--compress-debug-sections=zlib", object},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for _, stage := range []string{"lines", "types", "rows"} {
		r := ehasm(t, "dump", "--stage="+stage, object)
		assert.Equal(t, exitFailed, r.code, stage)
		assert.Contains(t, r.stderr, "compressed sections are said to hold 335", stage)
	}
}
