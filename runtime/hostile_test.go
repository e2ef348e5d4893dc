//go:build unix

package runtime_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// underPreload runs a program with eh_elfs under the preload and returns what it says,
// without the figures, and how it ended. Where it ends well the figures are returned.
func underPreload(t *testing.T, k *kit, command ...string) (said, figures string, err error) {
	t.Helper()
	out, err := k.run(t, k.path("eh-preload"), []string{"LD_PRELOAD=" + k.path("libehunwind-preload.so"),
		"EHASM_STATS=1"}, command...)
	said, figures, _ = strings.Cut(out, "ehunwind: taken over")
	return said, figures, err
}

// TestSeccomp: a program that forbids itself system calls has the frames that it has without
// the preload, and lives.
func TestSeccomp(t *testing.T) {
	k := makePreload(t)
	for _, c := range []struct{ what, figures string }{
		{"readv-errno", "backtrace 5/0, _Unwind_Backtrace 4/0"},
		{"readv-kill", "backtrace 5/0, _Unwind_Backtrace 4/0"},
		{"readv-errno thread", "backtrace 5/0, _Unwind_Backtrace 4/0"},
		{"readv-kill thread", "backtrace 5/0, _Unwind_Backtrace 4/0"},
		{"strict", ""}, // it may not even print figures
		{"strict thread", ""},
		{"sigprocmask-errno", "backtrace 4/0, _Unwind_Backtrace 3/0"}, // the main thread asks nothing
		{"sigprocmask-nosys thread", "backtrace 4/0, _Unwind_Backtrace 3/0"},
	} {
		args := append([]string{k.path("sandbox")}, strings.Fields(c.what)...)
		want := k.mustRun(t, "", nil, args...)
		if strings.HasPrefix(want, "cannot forbid") {
			t.Skip("needs seccomp")
		}
		require.Contains(t, want, "deeper: 2", "20 and a few frames")
		said, figures, err := underPreload(t, k, args...)
		assert.NoError(t, err, c.what)
		assert.Equal(t, want, said, c.what)
		assert.Contains(t, figures, c.figures, c.what)
	}
}

// TestCircle: a stack that leads in a circle does not fill the array, and a look ahead ends.
func TestCircle(t *testing.T) {
	k := makePreload(t)
	for _, period := range []string{"1", "2", "7"} {
		want := k.mustRun(t, "", nil, k.path("circle"), period)
		said, figures, err := underPreload(t, k, k.path("circle"), period)
		assert.NoError(t, err)
		assert.Equal(t, want, said, "as libgcc has it, period %s", period)
		if period == "1" {
			assert.Equal(t, "bounded callbacks as many as wanted\nend\n", said)
		}
		assert.Contains(t, figures, "backtrace 1/1, _Unwind_Backtrace 0/1")
	}
}

// TestSecond: figures go to the stderr that the program was started with, and into no file
// that has its number since.
func TestSecond(t *testing.T) {
	k := makePreload(t)
	file := filepath.Join(t.TempDir(), "out")
	run := func(script string) string {
		t.Helper()
		script = "export LD_PRELOAD=" + k.path("libehunwind-preload.so") + "; exec " + script
		return k.mustRun(t, k.path("eh-preload"), []string{"EHASM_STATS=1"}, "sh", "-c", script, k.path("second"), file)
	}
	assert.Contains(t, run(`"$0" "$1" as is || true`), "taken over/handed on: backtrace 1/0")
	assert.Empty(t, run(`"$0" "$1" 2>&-`))
	assert.Equal(t, "data\n", string(read(t, file)), "it was closed")
	assert.Empty(t, run(`"$0" "$1" moved`))
	assert.Equal(t, "data\n", string(read(t, file)), "it was replaced")
}

// TestMainStackInValgrind: the main thread's stack is known there, too, where what the kernel
// calls the stack is valgrind's; and what is below it is not taken for mapped.
func TestMainStackInValgrind(t *testing.T) {
	k := makeKit(t)
	testtool.Need(t, "valgrind")
	assert.Equal(t, "here=4 below=1 other stacks=0\n", k.mustRun(t, k.path("eh"), nil, k.path("below")))
	assert.Equal(t, "here=4 below=1 other stacks=0\n",
		k.mustRun(t, k.path("eh"), nil, "valgrind", "-q", "--error-exitcode=9", k.path("below")))
}
