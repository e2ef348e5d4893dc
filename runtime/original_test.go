//go:build unix

package runtime_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestOriginal walks as the original project's clients do, by _eh_elf, with names from the
// process's maps and return addresses that are looked up as they are.
func TestOriginal(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "gcc")
	for _, level := range []string{"-O0", "-O1", "-O2", "-O3"} {
		dir := t.TempDir()
		program := compileTo(t, filepath.Join(dir, "original"), "gcc "+level+" -fPIE -pie testdata/original.c")
		for _, dispatch := range []string{"tree", "packed"} {
			out := filepath.Join(dir, dispatch)
			libgcc := strings.TrimSpace(mustOutput(t, "gcc", "-print-file-name=libgcc_s.so.1")) // backtrace opens it
			k.mustRun(t, "", nil, k.path("ehasm"), "build", "-q", "--deps", "--dispatch="+dispatch, "-o", out,
				program, libgcc)
			said := k.mustRun(t, "", []string{"LD_LIBRARY_PATH=" + out}, program)
			assert.Regexp(t, `^\d{3} walks, more than 20 times as many frames\n$`, said, level+" "+dispatch)
		}
	}
	// Without one of them it refuses the process.
	dir := t.TempDir()
	program := compileTo(t, filepath.Join(dir, "original"), "gcc -O2 testdata/original.c")
	k.mustRun(t, "", nil, k.path("ehasm"), "build", "-q", "--deps", "-o", dir, program)
	said, err := k.run(t, "", []string{"LD_LIBRARY_PATH=" + dir}, program)
	assert.Error(t, err)
	assert.Contains(t, said, "libgcc_s.so.1.eh_elf.so: cannot open")
}
