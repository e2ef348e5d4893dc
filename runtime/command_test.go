//go:build unix

package runtime_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPreloadCommand runs a program that takes its stacks with glibc's backtrace
// under ehasm preload, which finds the library beside itself.
func TestPreloadCommand(t *testing.T) {
	k := makeKit(t)
	args := k.gcc("trace", "../validate/clients/trace.c", "-rdynamic")
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	env := append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir(), "EHASM_STATS=1")
	addresses := regexp.MustCompile(` \[0x[0-9a-f]+\]`)
	run := func(command ...string) (stacks, stats string) {
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
		require.NoError(t, cmd.Run(), "%s", &stderr)
		return addresses.ReplaceAllString(stdout.String(), ""), stderr.String()
	}
	plain, _ := run(k.path("trace"))
	preloaded, stats := run(k.path("ehasm"), "preload", "--", k.path("trace"))
	assert.Contains(t, plain, "qsort_r+")
	assert.True(t, plain == preloaded, "the same stacks")
	assert.Contains(t, stats, "backtrace 15/0, ")
	assert.Contains(t, stats, "ehunwind: 15 walks; 6 of 6 objects have an eh_elf; ")
	assert.Contains(t, stats, "ehasm: exceptions: on, 0 throws taken over, 0 handed over, 0 frames learnt, ")
	_, stats = run(k.path("ehasm"), "preload", "--no-exceptions", "--", k.path("trace"))
	assert.Contains(t, stats, "ehunwind: 15 walks; 5 of 6 objects have an eh_elf; ")
	assert.Contains(t, stats, "callers by frame pointer 0;")
}
