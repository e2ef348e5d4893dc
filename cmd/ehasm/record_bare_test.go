//go:build linux && amd64

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bareProgram has two functions that call a third, which takes the time.
const bareProgram = `#include <time.h>
volatile unsigned long n;
static __attribute__((noinline)) void spin(void) { clock_t end = clock() + CLOCKS_PER_SEC / 8; while (clock() < end) n++; n = 0; }
static __attribute__((noinline)) void left(void) { spin(); n = 1; }
static __attribute__((noinline)) void right(void) { spin(); n = 2; }
int main(void) { left(); right(); return 0; }
`

// TestStrippedNames: their starts tell the functions of a stripped program apart, which nm knows of the
// program with its symbols, and the summary says how to get names.
func TestStrippedNames(t *testing.T) {
	testtool.Need(t, "gcc", "nm", "strip")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "bare")
	require.NoError(t, os.WriteFile(source, []byte(bareProgram), 0o666))
	for _, args := range [][]string{
		{"gcc", "-O1", "-fno-optimize-sibling-calls", "-Wl,--build-id=0xabcdef", "-o", program + ".full", source},
		{"strip", "-o", program, program + ".full"},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	out, err := exec.Command("nm", program+".full").Output()
	require.NoError(t, err)
	name := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			name[f[2]] = "bare+0x" + strings.TrimLeft(f[0], "0")
		}
	}
	leftChain := fmt.Sprintf(";%s;%s;%s;", name["main"], name["left"], name["spin"])
	rightChain := fmt.Sprintf(";%s;%s;%s;", name["main"], name["right"], name["spin"])
	command := goBuild(t) // with the build cache of the tests
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("DEBUGINFOD_URLS", "")
	run := func(args ...string) (stderr string) {
		var b bytes.Buffer
		cmd := exec.Command(command, args...)
		cmd.Dir, cmd.Stderr = dir, &b
		require.NoError(t, cmd.Run(), "%s", &b)
		return b.String()
	}
	read := func(file string) string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		require.NoError(t, err)
		return string(b)
	}
	const hint = "has no names for 100 % of its frames: install its debug symbols (on Debian the package with -dbgsym), " +
		"or set DEBUGINFOD_URLS to a server that knows build-id abcdef\n"
	assert.Contains(t, run("record", "-F", "499", "--raw", "raw.data", "-o", "r.folded", program), program+" "+hint)
	assert.Contains(t, run("script", "-i", "raw.data", "-o", "s.folded"), program+" "+hint)
	for _, file := range []string{"r.folded", "s.folded"} {
		assert.Contains(t, strings.ReplaceAll(read(file), " ", ";"), leftChain, file)
		assert.Contains(t, strings.ReplaceAll(read(file), " ", ";"), rightChain, file)
	}
	for file, spin := range map[string]string{
		"s.svg": name["spin"], "s.json": `"sym":"` + name["spin"] + `","off":`, "s.perf.txt": " " + name["spin"] + "+0x",
	} {
		run("script", "-i", "raw.data", "-o", file)
		assert.Contains(t, read(file), spin, file)
	}
	run("script", "-i", "raw.data", "-o", "s.pb.gz")
	p, err := profile.Parse(strings.NewReader(read("s.pb.gz")))
	require.NoError(t, err)
	var functions []string
	for _, f := range p.Function {
		functions = append(functions, f.Name)
	}
	assert.Subset(t, functions, []string{name["main"], name["left"], name["right"], name["spin"]})
}

// goProgram spends its time in spin.
const goProgram = `package main

import "time"

var n uint

//go:noinline
func spin(end time.Time) {
	for time.Now().Before(end) {
		for range 10000 {
			n++
		}
	}
}

//go:noinline
func work() { spin(time.Now().Add(2 * time.Second)); n++ }

func main() {
	done := make(chan bool)
	go func() { work(); done <- true }()
	<-done
}
`

// buildGo compiles a program of one file as dir/program.
func buildGo(t *testing.T, dir, source, ldflags string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o666))
	build := exec.Command("go", "build", "-ldflags="+ldflags, "-o", "program", "main.go")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestStrippedGo: a stripped Go program has neither tables nor symbols, but its stacks are whole and named.
func TestStrippedGo(t *testing.T) {
	dir := t.TempDir()
	buildGo(t, dir, goProgram, "-s -w")
	cmd := exec.Command(goBuild(t), "record", "--frame-pointers=never", "--stats", "s.json", "-o", "p.folded",
		filepath.Join(dir, "program"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	folded, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	all, named := 0, 0
	for stack, n := range testtool.Folded(t, string(folded)) {
		if strings.Contains(stack, ";main.spin") {
			all += n
			if strings.HasPrefix(stack, "program;runtime.goexit;main.main.func1;main.work;main.spin") {
				named += n
			}
		}
	}
	assert.Greater(t, all, 20, "%s", folded)
	assert.GreaterOrEqual(t, named*100, all*50, // rows are made while it runs
		"%s", folded)
}
