//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measured begins programs whose samples are compared with perf's text. Those in the thread's name "measured"
// are in functions of the program itself, wherever the timer hits: system calls are made without entries of
// linkage tables and without the loader, which perf names in other ways (docs/perf-tools.md).
const measured = `#include <csignal>
static volatile unsigned long sink;
static char pages[64 << 12];
__attribute__((noinline)) static long call(long n, long a, long b, long c) {
	long r; __asm__ volatile("syscall" : "=a"(r) : "0"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory"); return r; }
static void begin(void) { call(157, 15, (long)"measured", 0); } // PR_SET_NAME
static void end(void) { call(231, 0, 0, 0); }
static int more(void) { // for 0.3 s of processor time
	long t[2]; call(228, 2, (long)t, 0); return t[0] == 0 && t[1] < 300000000; }
__attribute__((noinline)) static void work(void) { for (int i = 0; i < 20000; i++) sink += i; }
__attribute__((noinline)) static void touch(void) { // MADV_DONTNEED: each page faults again
	char *p = (char *)(((unsigned long)pages + 4095) & ~4095ul); call(28, (long)p, 62 << 12, 4); for (int i = 0; i < 62; i++) p[i << 12] = 1; }
`

// deepProgram works in functions that call each other and in the handler of a signal, which it sends itself.
var deepProgram = strings.Replace(measured, "csignal", "signal.h", 1) + `
__attribute__((noinline)) static void deep(int n) { char b[48]; b[0] = n; if (n) deep(n - 1); else work(); sink += b[0]; }
static void handler(int s) { deep(s & 3); }
int main(void) {
	signal(SIGUSR1, handler);
	begin();
	for (int i = 0; more(); i++) {
		deep(i % 20);
		if (i % 4 == 0) call(62, call(39, 0, 0, 0), SIGUSR1, 0); // kill(getpid(), SIGUSR1)
		if (i % 16 == 0) touch();
	}
	end();
}
`

// perfIn runs perf in a folder, which is also its home.
func perfIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("perf", args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), "HOME="+dir), &out, &errs
	require.NoError(t, cmd.Run(), "%q: %s", args, errs.String())
	return out.String()
}

// framesOf returns the fields ip and sym of the stacks in the text of perf script, whichever fields it has. perf
// names entries of procedure linkage tables that have no symbol, and script functions that have none.
func framesOf(text string) (stacks []string) {
	rest := regexp.MustCompile(`(\+0x[0-9a-f]+)? \([^()]*( \(deleted\))?\)$`)
	made := regexp.MustCompile(`^(\t *[0-9a-f]+) ([^ ]+)\+0x[0-9a-f]+\+0x[0-9a-f]+ \(([^()]*)\)$`)
	stack := ""
	for line := range strings.Lines(text + "\n") {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] == '\t' {
			if m := made.FindStringSubmatch(line); m != nil && m[2] == filepath.Base(m[3]) {
				line = m[1] + " [unknown]"
			}
			frame := rest.ReplaceAllString(line, "")
			if slot, unnamed := strings.CutSuffix(frame, " @plt"); unnamed {
				frame = slot + " [unknown]"
			}
			stack += frame + "\n"
		} else if stack != "" {
			stacks = append(stacks, stack)
			stack = ""
		}
	}
	return stacks
}

// TestScriptChains: perf sees in the result the frames that script shows for the recording, of every sample
// that is chosen.
func TestScriptChains(t *testing.T) {
	testtool.Need(t, "perf", "gcc")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	source := filepath.Join(dir, "deep.c")
	require.NoError(t, os.WriteFile(source, []byte(deepProgram), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", filepath.Join(dir, "deep"), source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, flags := range map[string]string{
		"plain":      "-e cpu-clock:u",
		"two events": "-e cpu-clock:u,page-faults:u",
		"group":      "-e {cpu-clock:u,page-faults:u}",
		"compressed": "-z -e cpu-clock:u",
		"build-ids":  "--buildid-mmap -e cpu-clock:u",
		"fields":     "-k mono -d -W -s -e cpu-clock:u",
		"one of two": "-e cpu-clock/call-graph=dwarf/u -e page-faults/call-graph=no/u",
		"pipe":       "pipe",
		"injected":   "inject",
	} {
		t.Run(name, func(t *testing.T) {
			here := t.TempDir()
			in := filepath.Join(here, "in.data")
			graph := []string{"--call-graph", "dwarf"}
			switch flags {
			case "pipe":
				text := perfIn(t, here, "record", "-q", "-F", "499", "-e", "cpu-clock:u", "--call-graph", "dwarf",
					"-o", "-", "--", filepath.Join(dir, "deep"))
				require.NoError(t, os.WriteFile(in, []byte(text), 0o600))
			case "inject":
				perfIn(t, here, "record", "-q", "-F", "499", "-e", "cpu-clock:u", "--call-graph", "dwarf", "-o",
					"first.data", "--", filepath.Join(dir, "deep"))
				perfIn(t, here, "inject", "-b", "-i", "first.data", "-o", in)
			default:
				if strings.Contains(flags, "call-graph") {
					graph = nil
				}
				args := append([]string{"record", "-q", "-F", "499", "-o", in},
					append(graph, strings.Fields(flags)...)...)
				perfIn(t, here, append(args, "--", filepath.Join(dir, "deep"))...)
			}
			result := filepath.Join(here, "out.perf.data")
			r := ehasm(t, "script", "-q", "--comm", "measured", "-i", in, "-o", result)
			require.Equal(t, exitDone, r.code, r.stderr)
			want := ehasm(t, "script", "-q", "--comm", "measured", "-i", in)
			require.Contains(t, want.stdout, "measured ")
			assert.Equal(t, want.stdout, ehasm(t, "script", "-q", "-i", result).stdout)
			got := perfIn(t, here, "script", "--no-inline", "--max-stack", "1024", "-F", "ip,sym", "-i", result)
			assert.Equal(t, framesOf(want.stdout), framesOf(got))
			assert.Contains(t, perfIn(t, here, "report", "--stdio", "--no-inline", "-i", result), " deep")
			before, err := os.Stat(in)
			require.NoError(t, err)
			after, err := os.Stat(result)
			require.NoError(t, err)
			if name != "compressed" {
				assert.Less(t, 4*after.Size(), before.Size())
			}
			assert.Equal(t, os.FileMode(0o600), after.Mode().Perm())
		})
	}
}

// TestScriptChainsRefusals: what is not a whole recording leaves no file and one line.
func TestScriptChainsRefusals(t *testing.T) {
	perf, symfs := smallRecording(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "x.perf.data")
	whole, err := os.ReadFile(perf)
	require.NoError(t, err)
	cut := filepath.Join(symfs, "cut.data")
	for _, missing := range []int{1, len(whole) / 2} {
		require.NoError(t, os.WriteFile(cut, whole[:len(whole)-missing], 0o666))
		r := ehasm(t, "script", "-i", cut, "--symfs", symfs, "-o", out)
		assert.Equal(t, exitFailed, r.code)
		assert.Regexp(t, `^ehasm: .*cut.data: .*truncated.*\n$`, r.stderr)
		assert.Empty(t, files(t, dir))
	}
	r := ehasm(t, "script", "-q", "-i", perf, "--format=perf.data")
	assert.Equal(t, result{exitFailed, "",
		"ehasm: standard output: only a recording in pipe mode can be written to a pipe: give -o FILE\n"}, r)
	for _, flag := range []string{"--inline", "--signatures", "--no-demangle", "--lines"} {
		r := ehasm(t, "script", "-i", perf, "-o", out, flag)
		assert.Equal(t, exitUsage, r.code)
		assert.Contains(t, r.stderr, flag+" has no effect in the format perf.data")
	}
	r = ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "--pid=7", "-o", out)
	assert.Equal(t, result{}, r)
	got := ehasm(t, "script", "-q", "-i", out, "--symfs", symfs)
	assert.Equal(t, ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs).stdout, got.stdout)
	r = ehasm(t, "script", "-q", "-i", perf, "--symfs", symfs, "--pid=8", "-o", out)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "none of the 1 samples is chosen by --pid 8")
}
