package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestHidden: an FDE is found to be hidden from libgcc exactly where the program's throw terminates: clang's empty function
// has an empty FDE, which some linkers keep in .eh_frame_hdr.
func TestHidden(t *testing.T) {
	testtool.Need(t, "clang++", "ld.lld", "mold", "ld.gold")
	const program = `void spin() { for (;;); }
static int n;
__attribute__((noinline)) void thrower() { n++; throw n; }
int main() { try { thrower(); } catch (int x) { return x - 1; } }
`
	dir := t.TempDir()
	source, exe := filepath.Join(dir, "p.cc"), filepath.Join(dir, "p")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o644))
	for _, linker := range []string{"bfd", "gold", "lld", "mold"} {
		out, err := exec.Command("clang++", "-O2", "-fuse-ld="+linker, "-o", exe, source).CombinedOutput()
		require.NoError(t, err, "%s", out)
		terminates := exec.Command(exe).Run() != nil
		var hidden []string
		for _, f := range run(t, exe).Findings {
			if f.Kind == check.KindHidden {
				hidden = append(hidden, f.Function)
				assert.Equal(t, check.SeverityError, f.Severity)
				assert.Contains(t, f.Message(), "a throw terminates")
			}
		}
		t.Logf("%s: terminates %v", linker, terminates)
		assert.Equal(t, terminates, len(hidden) > 0, "%s: %q", linker, hidden)
	}
}
