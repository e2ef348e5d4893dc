//go:build linux

package runtime_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProfilesOfWalks: samples in the code of eh_elfs have whole stacks, in a profile and in a
// recording of the same run.
func TestProfilesOfWalks(t *testing.T) {
	k := makeKit(t)
	dir := t.TempDir()
	program := k.path("walking")
	require.Empty(t, runAll([][]string{
		k.gcc("walking", "testdata/walking.c", k.path("libehunwind.so")),
		{k.path("ehasm"), "build", "-q", "--deps", "--vdso", "-o", k.path("eh-walking"), program},
	}))
	for _, args := range [][]string{
		{"record", "--raw", "raw.data", "-o", "recorded.folded", program},
		{"script", "--format=folded", "-i", "raw.data", "-o", "scripted.folded"},
	} {
		cmd := exec.Command(k.path("ehasm"), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "EHASM_PATH="+k.path("eh-walking"), "XDG_CACHE_HOME="+dir, "HOME="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	for _, name := range []string{"recorded.folded", "scripted.folded"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		in := 0
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, "eh_elf") {
				in++
				assert.Contains(t, line, "main;"+strings.Repeat("walks;", 21)+"ehu_backtrace_from;", name)
			}
		}
		assert.Positive(t, in, "%s:\n%s", name, b)
	}
}
