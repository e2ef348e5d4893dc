//go:build linux && amd64

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// muslProgram recurses in main and in a thread.
const muslProgram = `#include <pthread.h>
#include <time.h>
__attribute__((noinline)) int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
static void *work(void *end) { while (clock() < *(clock_t *)end) f(27); return 0; }
int main(void) {
	clock_t end = clock() + CLOCKS_PER_SEC;
	pthread_t t;
	pthread_create(&t, 0, work, &end);
	work(&end);
	return pthread_join(t, 0);
}
`

// stackEnds is how a recording's stacks end, of its summary.
type stackEnds struct {
	Unwound uint64            `json:"stacks_unwound"`
	Ends    map[string]uint64 `json:"stacks_by_end"`
}

func readEnds(t *testing.T, path string) (e stackEnds) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &e))
	return e
}

// TestMusl: musl has no unwind tables, but what calls main, or a thread's function, is the outermost frame.
func TestMusl(t *testing.T) {
	testtool.Need(t, "musl-gcc")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.c"), []byte(muslProgram), 0o666))
	for name, flags := range map[string][]string{"dynamic": nil, "static": {"-static"}, "stripped": {"-static", "-s"}} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dir, name)
			out, err := exec.Command("musl-gcc",
				append(flags, "-O1", "-o", program, filepath.Join(dir, "a.c"))...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			cmd := exec.Command(goBuild(t), "record", "--frame-pointers=never", "--stats", program+".json", "-o",
				program+".folded", program)
			cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
			out, err = cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			stats := readEnds(t, program+".json")
			assert.Greater(t, stats.Unwound, uint64(50))
			assert.GreaterOrEqual(t, stats.Ends["outermost frame"]*100, stats.Unwound*90, "%v", stats.Ends)
			folded, err := os.ReadFile(program + ".folded")
			require.NoError(t, err)
			if name != "stripped" {
				assert.Contains(t, string(folded), ";main;work;f")
				assert.Greater(t, strings.Count(string(folded), ";work;f"), strings.Count(string(folded), ";main;work;f"),
					"the thread's, too")
			}
		})
	}
}

// TestMuslBriefly: a program of 0.2 s that is in libc nearly all the time has whole stacks, since rows are made from
// libc's code at once; with --synth=off there are none.
func TestMuslBriefly(t *testing.T) {
	testtool.Need(t, "musl-gcc")
	dir := t.TempDir()
	const source = `#include <time.h>
volatile int n;
int main(void) { while (clock() < CLOCKS_PER_SEC / 5) n++; return 0; }
`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.c"), []byte(source), 0o666))
	program := filepath.Join(dir, "a")
	out, err := exec.Command("musl-gcc", "-O1", "-o", program, filepath.Join(dir, "a.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	whole := func(verb string, args ...string) (percent float64) {
		cmd := exec.Command(goBuild(t),
			append([]string{verb, "--frame-pointers=never", "--stats", "s.json", "-o", "p.folded"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		stats := readEnds(t, filepath.Join(dir, "s.json"))
		require.Greater(t, stats.Unwound, uint64(20))
		return 100 * float64(stats.Ends["outermost frame"]) / float64(stats.Unwound)
	}
	assert.Greater(t, whole("record", "--raw", "raw.perf.data", program), 80.0)
	assert.Less(t, whole("record", "--synth=off", program), 50.0)
	assert.Greater(t, whole("script", "raw.perf.data"), 80.0)
	assert.Less(t, whole("script", "--synth=off", "raw.perf.data"), 50.0)
	r := recordIn(t, dir, "--synth=all", program)
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.stderr, "want missing or off")
}
