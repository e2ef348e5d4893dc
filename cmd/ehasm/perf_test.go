//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// cppProgram works in functions with names as C++ has them.
const cppProgram = measured + `
namespace shop { template <class T> struct basket { virtual ~basket() = default;
	__attribute__((noinline)) virtual T fill(T n, bool (*odd)(T)) { work(); return odd(n) ? n : n - 1; } }; }
__attribute__((noinline)) static bool odd(long n) { return n & 1; }
template <int N> __attribute__((noinline)) long deep(shop::basket<long> &b) { return deep<N - 1>(b) + N; }
template <> __attribute__((noinline)) long deep<0>(shop::basket<long> &b) { return b.fill(3, odd); }
int main() {
	shop::basket<long> b;
	begin();
	for (int i = 0; more(); i++) { sink += deep<12>(b); if (i % 16 == 0) touch(); }
	end();
}
`

// standIn is the program under the name of perf.
type standIn struct{ path string }

func newStandIn(t *testing.T) standIn {
	t.Helper()
	s := standIn{filepath.Join(t.TempDir(), "perf")}
	require.NoError(t, os.Symlink(goBuild(t), s.path))
	return s
}

// run runs it where PATH has its folder first, then others.
func (s standIn) run(dir, others string, args ...string) result {
	cmd := exec.Command(s.path, args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errs
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+dir, "PATH="+filepath.Dir(s.path)+":"+others)
	cmd.Run()
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestPerfScript: under the name of perf the program writes what perf script writes, byte for byte. perf reads a
// copy of the recording that has call chains: its own unwinder cuts some stacks. The samples are those of the part
// named "measured"; bench/perf-text.sh compares all samples of other programs.
func TestPerfScript(t *testing.T) {
	testtool.Need(t, "perf", "gcc", "g++")
	s := newStandIn(t)
	dir := t.TempDir()
	for _, c := range []struct{ name, compiler, source, record string }{
		{"c.data", "gcc", deepProgram, "-e cpu-clock:u,page-faults:u --call-graph dwarf"},
		{"cpp.data", "g++", cppProgram, "-e cpu-clock:u --call-graph dwarf --sample-cpu"},
		{"fp.data", "gcc", deepProgram, "-e cpu-clock:u -g"},
		{"flat.data", "g++", cppProgram, "-e cpu-clock:u"},
	} {
		source := filepath.Join(dir, c.name+map[string]string{"gcc": ".c", "g++": ".cc"}[c.compiler])
		require.NoError(t, os.WriteFile(source, []byte(c.source), 0o666))
		out, err := exec.Command(c.compiler, "-O1", "-fno-omit-frame-pointer", "-o",
			filepath.Join(dir, c.name+".prog"), source).CombinedOutput()
		require.NoError(t, err, "%s", out)
		perfIn(t, dir, append(append([]string{"record", "-q", "-F", "499", "-o", c.name},
			strings.Fields(c.record)...), "./"+c.name+".prog")...)
		require.Equal(t, exitDone, ehasm(t, "script", "-q", "--cache=false", "-i", filepath.Join(dir, c.name), "-o",
			filepath.Join(dir, "chains.perf.data")).code)
		for n, flags := range []string{
			"", "-G", "--header", "--force --max-stack 7", "-F comm,pid,tid,time,event,ip,sym,dso,trace", "-F +pid",
			"-F -period",
			"-F ip,sym", "-F comm,tid,ip,sym,symoff", "-F ip,dso", "-F pid,time,period", "-F tid,event -f",
			"--comms measured,other",
			"--comm other", "--pid 1,2", "--time 0,1", "-G -F comm,ip,sym",
		} {
			if !strings.Contains(flags, "--comm") {
				flags += " --comms measured"
			}
			args := append([]string{"script", "--no-inline", "-i", c.name}, strings.Fields(flags)...)
			got := s.run(dir, os.Getenv("PATH"), args...)
			assert.Zero(t, got.code, "%s", got.stderr)
			want := ""
			if args[4] == "--header" {
				want = perfIn(t, dir, "script", "--header-only", "-i", c.name)
				args = slices.Delete(args, 4, 5)
			}
			args[3] = "chains.perf.data"
			want += perfIn(t, dir, args...)
			number, line, other := firstDifference(want, got.stdout)
			assert.Equal(t, line, other, "%s: %s, line %d", c.name, flags, number)
			if n == 0 {
				assert.Contains(t, got.stdout, "measured ")
			}
		}
	}
	perfIn(t, dir, "record", "-q", "-F", "499", "-o", "group.data", "-e", "{cpu-clock:u,task-clock:u}:S", "-g",
		"./c.data.prog")
	perfIn(t, dir, "record", "-q", "-c", "3", "-o", "count.data", "-e", "page-faults:u", "./c.data.prog")
	// perf itself does or refuses it
	for _, flags := range []string{"flat.data -F comm,cpu", "flat.data -F ip,brstack", "flat.data -D", "group.data",
		"count.data -F comm,event,period,ip"} {
		args := append([]string{"script", "-i"}, strings.Fields(flags)...)
		cmd := exec.Command("perf", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir) // whose .debug has the vDSO
		want, _ := cmd.Output()
		got := s.run(dir, os.Getenv("PATH"), args...)
		assert.Equal(t, string(want), got.stdout)
		assert.Equal(t, cmd.ProcessState.ExitCode(), got.code, flags)
	}
}

// firstDifference returns the first line in which two texts differ, and its number.
func firstDifference(a, b string) (n int, lineA, lineB string) {
	linesA, linesB := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(linesA), len(linesB)) {
		switch {
		case i == len(linesA):
			return i, "the end", linesB[i]
		case i == len(linesB):
			return i, linesA[i], "the end"
		case linesA[i] != linesB[i]:
			return i, linesA[i], linesB[i]
		}
	}
	return 0, "", ""
}

// TestPerfLoop: a perf in PATH that leads back is called a few times, not for ever.
func TestPerfLoop(t *testing.T) {
	s := newStandIn(t)
	dir, other := t.TempDir(), t.TempDir()
	calls := filepath.Join(dir, "calls")
	for _, start := range []string{"exec ", ""} {
		write(t, []byte("#!/bin/sh\necho call >>"+calls+"\n"+start+s.path+" \"$@\"\n"), filepath.Join(other, "perf"))
		require.NoError(t, os.Chmod(filepath.Join(other, "perf"), 0o755))
		got := s.run(dir, other+":/usr/bin:/bin", "report")
		assert.Equal(t, result{exitFailed, "", "ehasm: perf: " + filepath.Join(other, "perf") +
			" in PATH leads back to ehasm's stand-in for perf: take it out of PATH\n"}, got)
	}
	b, err := os.ReadFile(calls)
	require.NoError(t, err)
	assert.Equal(t, 2*8, strings.Count(string(b), "call"))
}

// TestPerfItself: all that is not perf script with known flags is for the next perf in PATH.
func TestPerfItself(t *testing.T) {
	s := newStandIn(t)
	perf, _ := smallRecording(t)
	dir, other := t.TempDir(), t.TempDir()
	write(t, []byte("#!/bin/sh\necho perf itself: $*\nexit 7\n"), filepath.Join(other, "perf"))
	require.NoError(t, os.Chmod(filepath.Join(other, "perf"), 0o755))
	for _, args := range []string{
		"", "report", "record -g ls", "script -D", "script --itrace", "script -i -", "script -F srcline",
		"script -F sw:ip", "script -F sym",
		"script report syscalls", "script -i /none", "script --time 10%/1", "script --help", "-v",
		"script -F +brstack", "script -C x",
	} {
		got := s.run(dir, other+":/usr/bin:/bin", strings.Fields(args)...)
		assert.Equal(t, result{7, strings.TrimSpace("perf itself: "+args) + "\n", ""}, got)
	}
	got := s.run(dir, "/none", "script", "-i", perf)
	assert.Zero(t, got.code, got.stderr)
	assert.Contains(t, got.stdout, "prog     7     0.000002:          5 cycles: \n")
	got = s.run(dir, "/none", "report")
	assert.Equal(t, result{exitFailed, "",
		"ehasm: perf: not found in PATH, apart from ehasm's stand-in: install perf\n"}, got)
}
