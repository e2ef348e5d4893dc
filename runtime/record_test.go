//go:build linux && amd64

package runtime_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// recording is what the tests of libehunwind-record share.
type recording struct {
	*kit
	work string // folder of profiles
	env  []string
}

func newRecording(t *testing.T) *recording {
	t.Helper()
	k := makeKit(t)
	dir := t.TempDir()
	return &recording{k, dir, append(os.Environ(), "XDG_CACHE_HOME="+k.path("cache"),
		"EHASM_RECORD_LIBRARY="+k.path("libehunwind-record.so"))}
}

// compile builds a program of testdata.
func (r *recording) compile(t *testing.T, name string, args ...string) string {
	t.Helper()
	out := filepath.Join(r.work, name)
	cmd := append([]string{"-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-o", out, "testdata/" + name + ".c", "-pthread"},
		args...)
	b, err := exec.Command("gcc", cmd...).CombinedOutput()
	require.NoError(t, err, "%s", b)
	return out
}

// record runs ehasm record, and returns what was said on either output.
func (r *recording) record(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(r.path("ehasm"), append([]string{"heap"}, args...)...)
	var out, errs strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.work, r.env, &out, &errs
	cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (r *recording) profile(t *testing.T, name string) *profile.Profile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.work, name))
	require.NoError(t, err)
	p, err := profile.ParseData(b)
	require.NoError(t, err)
	return p
}

// sums adds up a value by the function that a stack goes through.
func sums(p *profile.Profile, value int, functions ...string) map[string]float64 {
	sum := make(map[string]float64)
	for _, s := range p.Sample {
		for _, l := range s.Location {
			for _, f := range functions {
				if l.Line[0].Function.Name == f {
					sum[f] += float64(s.Value[value])
				}
			}
		}
	}
	return sum
}

// TestRecordAlloc records a program that knows what it allocates and keeps. With a period of 16 KB there are
// some tens of thousands of samples: each figure is within six standard deviations.
func TestRecordAlloc(t *testing.T) {
	r := newRecording(t)
	heap := r.compile(t, "heap")
	const period = 16 << 10
	out, said, status := r.record(t, "--period", "16K", "-o", "heap.pb.gz", heap, "40")
	require.Zero(t, status, said)
	p := r.profile(t, "heap.pb.gz")
	var types []string
	for _, v := range p.SampleType {
		types = append(types, v.Type+"/"+v.Unit)
	}
	assert.Equal(t, []string{"alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"},
		types)
	assert.Equal(t, "inuse_space", p.DefaultSampleType)
	assert.EqualValues(t, period, p.Period)
	assert.Regexp(t, `complete +\d+  100\.0 % of the stacks\n`, said)
	functions := []string{"temporary", "kept", "grown", "aligned"}
	total, live := sums(p, 1, functions...), sums(p, 3, functions...)
	for line := range strings.Lines(out) {
		var name string
		var wantTotal, wantLive float64
		_, err := fmt.Sscan(line, &name, &wantTotal, &wantLive)
		require.NoError(t, err)
		// Of n bytes in small objects n/period are sampled, in large ones more; what is sampled is
		// distributed as Poisson has it.
		near := func(want, got float64) {
			assert.InDelta(t, want, got, 6*math.Sqrt(want*period), "%s", line)
		}
		near(wantTotal, total[name])
		near(wantLive, live[name])
	}
	objects := sums(p, 0, "temporary")["temporary"]
	assert.InEpsilon(t, 2*40*(4*200+2), objects, 0.34) // of 24 bytes few are sampled, and those count for many
}

// TestRecordAllocLeft: an allocation that a handler leaves by siglongjmp, at whatever instruction, does not end the
// count of its thread.
func TestRecordAllocLeft(t *testing.T) {
	r := newRecording(t)
	leave := r.compile(t, "leave", "-fno-builtin", "-Wl,-z,now")
	const period = 16 << 10
	out, said, status := r.record(t, "--period", "16K", "-o", "leave.pb.gz", leave)
	require.Zero(t, status, said)
	var steps int
	var want float64
	_, err := fmt.Sscan(out, &steps, &want)
	require.NoError(t, err)
	require.Greater(t, steps, 100) // the count, the allocation and the sample were left
	got := sums(r.profile(t, "leave.pb.gz"), 1, "after")["after"]
	assert.InDelta(t, want, got, 6*math.Sqrt(want*period))
}

// TestRecordAllocForms: the other forms have one value, by choice; statuses and outputs are the command's.
func TestRecordAllocForms(t *testing.T) {
	r := newRecording(t)
	heap := r.compile(t, "heap")
	for view, want := range map[string]bool{"--total=false": false, "--total": true} {
		_, said, status := r.record(t, view, "-o", "heap.folded", heap, "4")
		require.Zero(t, status, said)
		b, err := os.ReadFile(filepath.Join(r.work, "heap.folded"))
		require.NoError(t, err)
		assert.Contains(t, string(b), ";work;grown ")
		assert.Equal(t, want, strings.Contains(string(b), ";work;temporary "), view)
	}
	_, said, status := r.record(t, "-o", "heap.folded", "/lib64/ld-linux-x86-64.so.2", heap, "4")
	require.Zero(t, status, said)
	b, err := os.ReadFile(filepath.Join(r.work, "heap.folded"))
	require.NoError(t, err)
	assert.Regexp(t, "(?m)^heap;.*;work;grown ", string(b), "by the name of the program that the loader runs")
	_, said, status = r.record(t, "-o", "heap.svg", "sh", "-c", heap+" 4; exit 3")
	assert.Equal(t, 3, status, said)
	b, err = os.ReadFile(filepath.Join(r.work, "heap.svg"))
	require.NoError(t, err)
	assert.Contains(t, string(b), "bytes")
}

// TestRecordAllocConstructor: the stack of a library's constructor ends in the dynamic loader's entry code, which has
// no unwind information; the recorder's own constructor leaves nothing in the profile.
func TestRecordAllocConstructor(t *testing.T) {
	r := newRecording(t)
	// It needs the recorder, whose constructor therefore runs before its own.
	library := r.compile(t, "early", "-shared", "-fPIC", "-DLIBRARY", "-Wl,--no-as-needed",
		r.path("libehunwind-record.so"))
	require.NoError(t, os.Rename(library, library+".so"))
	early := r.compile(t, "early", "-Wl,--no-as-needed", library+".so")
	_, said, status := r.record(t, "--total", "--period", "1", "-o", "early.folded", early)
	require.Zero(t, status, said)
	assert.Regexp(t, `complete +\d+  100\.0 % of the stacks\n`, said)
	b, err := os.ReadFile(filepath.Join(r.work, "early.folded"))
	require.NoError(t, err)
	assert.Regexp(t, `^early;(.+;)?early 5000\n$`, string(b))
}

// TestRecordAllocChild: a child of fork counts what it allocates itself, for itself.
func TestRecordAllocChild(t *testing.T) {
	r := newRecording(t)
	heap := r.compile(t, "heap")
	_, said, status := r.record(t, "--period", "64K", "-o", "heap.pb.gz", "--stats", "stats.json",
		heap, "10", "child")
	require.Zero(t, status, said)
	assert.Contains(t, said, " of 2 processes")
	const all = 2 * 10 * (200*(24+100+512+4000) + 70000 + 1500000)
	assert.InDelta(t, all, sums(r.profile(t, "heap.pb.gz"), 1, "temporary")["temporary"], 6*math.Sqrt(all*(64<<10)))
}

// TestRecordAllocNothing: programs of which nothing can be seen say so.
func TestRecordAllocNothing(t *testing.T) {
	r := newRecording(t)
	own := filepath.Join(r.work, "own.c")
	require.NoError(t, os.WriteFile(own, []byte(`#include <stddef.h>
static char pool[1 << 20]; static size_t used;
void *malloc(size_t n) { void *p = pool + used; used += (n + 15) & ~(size_t)15; return p; }
void *calloc(size_t n, size_t m) { return malloc(n * m); }
void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
void free(void *p) { (void)p; }
int main(void) { return malloc(10) == NULL; }
`), 0o644))
	for name, args := range map[string][]string{"own": {"-rdynamic"}, "static": {"-static"}} {
		out, err := exec.Command("gcc", append(args, "-o", filepath.Join(r.work, name), own)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	testtool.Need(t, "musl-gcc")
	out, err := exec.Command("musl-gcc", "-o", filepath.Join(r.work, "musl"), own).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, said, status := r.record(t, "-o", "p.pb.gz", "sh", "-c", "./musl && exit 3")
	assert.Equal(t, 3, status, said)
	_, said, status = r.record(t, "-o", "p.pb.gz", "./own")
	assert.Zero(t, status, said)
	assert.Contains(t, said, "nothing was taken: the program has its own malloc")
	_, said, status = r.record(t, "-o", "p.pb.gz", "./static")
	assert.Equal(t, 1, status)
	assert.Contains(t, said, "statically linked")
}

// TestRecordAllocNoCache: without a place for eh_elfs, nothing runs.
func TestRecordAllocNoCache(t *testing.T) {
	r := newRecording(t)
	if _, err := os.Stat("/usr/lib/ehasm/.build-id"); err == nil {
		t.Skip("needs a system without package ehasm-system")
	}
	file := filepath.Join(r.work, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, cache := range []string{"XDG_CACHE_HOME=" + file + "/cache", "HOME=" + file} {
		r := *r
		r.env = append(slices.DeleteFunc(slices.Clone(r.env),
			func(s string) bool { return strings.HasPrefix(s, "XDG_CACHE_HOME=") }), cache)
		out, said, status := r.record(t, "-o", "p.folded", "echo", "ran")
		assert.Equal(t, 1, status)
		assert.Empty(t, out)
		assert.Contains(t, said, "stacks need eh_elfs, and there is no place for them: ")
		assert.Contains(t, said, "not a directory")
		assert.Equal(t, 1, strings.Count(said, "\n"), said)
		assert.NoFileExists(t, filepath.Join(r.work, "p.folded"))
	}
}

// TestRecordAllocLimits: a program whose limits leave little room runs as it does alone, and is not recorded; a
// recorder whose files may have no room for the memory says so.
func TestRecordAllocLimits(t *testing.T) {
	r := newRecording(t)
	heap := r.compile(t, "heap")
	alone, err := exec.Command(heap, "4").Output()
	require.NoError(t, err)
	for _, limit := range []string{"-v 1000000", "-d 200000"} {
		out, said, status := r.record(t, "-o", "p.folded", "sh", "-c", "ulimit "+limit+"; exec "+heap+" 4")
		assert.Zero(t, status, said)
		assert.Equal(t, string(alone), out)
		assert.Contains(t, said, "programs that were not recorded, as their limits (ulimit -v, -d) leave no room", limit)
	}
	cmd := exec.Command("sh", "-c", `ulimit -f 1000; exec "$@"`, "sh", r.path("ehasm"), "heap", "-o", "p.folded", heap,
		"4")
	cmd.Dir, cmd.Env = r.work, r.env
	said, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(said), "files may have 512000 bytes, want at least")
	assert.Equal(t, 1, strings.Count(string(said), "\n"), "%s", said)
}

// TestRecordAllocOthers: a program that cannot open the shared memory, of another user or container, is named.
func TestRecordAllocOthers(t *testing.T) {
	r := newRecording(t)
	folder, err := os.MkdirTemp("", "") // which others may read
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o755))
	library, err := os.ReadFile(r.path("libehunwind-record.so"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "libehunwind-record.so"), library, 0o755))
	r.env = append(r.env, "EHASM_RECORD_LIBRARY="+filepath.Join(folder, "libehunwind-record.so"))
	script, want := "unshare -Urpf --mount-proc echo ran", "ran in another container"
	if os.Geteuid() == 0 {
		script, want = "setpriv --reuid 65534 --clear-groups echo ran",
			"ran as user 65534, who has no right to the recorder's memory"
	} else if exec.Command("unshare", "-Ur", "true").Run() != nil {
		t.Skip("needs user namespaces, which are forbidden in a chroot and some containers")
	}
	out, said, status := r.record(t, "-q", "-o", "p.folded", "sh", "-c", "echo begins; "+script)
	assert.Zero(t, status, said)
	assert.Equal(t, "begins\nran\n", out)
	assert.Regexp(t, `(?m)^ehasm: echo: process \d+ was not recorded: it `+want, said)
}

// TestRecordAllocAsked: SIGUSR2 has what is live now written, and --duration ends the recording, not the program.
func TestRecordAllocAsked(t *testing.T) {
	r := newRecording(t)
	for _, way := range []struct {
		flags []string
		asked bool
		file  string // there while the program runs
	}{
		{nil, true, "asked-*.pb.gz"},
		{[]string{"--duration", "50ms"}, false, "asked.pb.gz"},
	} {
		args := append([]string{"heap", "--period", "4K", "-o", "asked.pb.gz"}, way.flags...)
		cmd := exec.Command(r.path("ehasm"), append(args, "python3", "-c",
			"import sys\nkept = ['x' * 1000000 for i in range(20)]\nprint('ready', flush=True)\nsys.stdin.readline()\nprint('done')")...)
		var errs strings.Builder
		cmd.Dir, cmd.Env, cmd.Stderr = r.work, r.env, &errs
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewReader(out)
		line, err := lines.ReadString('\n')
		require.NoError(t, err, errs.String())
		assert.Equal(t, "ready\n", line)
		if way.asked {
			require.NoError(t, cmd.Process.Signal(syscall.SIGUSR2))
		}
		var found []string
		require.Eventually(t, func() bool {
			found, _ = filepath.Glob(filepath.Join(r.work, way.file))
			return len(found) == 1
		}, time.Minute, 10*time.Millisecond)
		if way.asked {
			live := int64(0)
			for _, s := range r.profile(t, filepath.Base(found[0])).Sample {
				live += s.Value[3]
			}
			assert.Greater(t, live, int64(19_000_000))
		}
		in.Close()
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "done\n", line)
		require.NoError(t, cmd.Wait(), errs.String())
		require.NoError(t, os.Remove(filepath.Join(r.work, "asked.pb.gz")))
	}
}

func TestRecordNeeds(t *testing.T) {
	r := newRecording(t)
	testtool.Need(t, "sh")
	for want, args := range map[string][]string{
		"give a command":              {"-q"},
		"unknown shorthand flag":      {"-p", "1"},
		"want a number of bytes":      {"--period", "5Q", "sh"},
		"want .pb.gz, .svg or .folde": {"-o", "x.json", "sh"},
	} {
		_, said, status := r.record(t, args...)
		assert.Equal(t, 2, status, args)
		assert.Contains(t, said, want)
	}
}

// TestRecordAllocNameBomb: a name that doubling makes of is cut.
func TestRecordAllocNameBomb(t *testing.T) {
	r := newRecording(t)
	bomb, _ := testtool.NameBombs(40)
	source, program := filepath.Join(r.work, "bomb.c"), filepath.Join(r.work, "bomb")
	require.NoError(t, os.WriteFile(source, fmt.Appendf(nil, `#include <stdlib.h>
char *volatile kept;
__attribute__((noinline)) void bomb(void) asm("%s");
void bomb(void) { kept = malloc(1 << 20); kept[0] = 1; }
int main(void) { bomb(); return 0; }
`, bomb), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, said, status := r.record(t, "--period", "16K", "-o", "bomb.folded", program)
	require.Zero(t, status, said)
	b, err := os.ReadFile(filepath.Join(r.work, "bomb.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(b), ";main;f<a<int, int>, ")
	assert.Contains(t, string(b), "... 1048576\n")
	assert.Less(t, len(b), 200_000)
}

// TestRecordAllocFew: figures that rest on few samples say so.
func TestRecordAllocFew(t *testing.T) {
	r := newRecording(t)
	source, program := filepath.Join(r.work, "few.c"), filepath.Join(r.work, "few")
	require.NoError(t, os.WriteFile(source, []byte(`#include <stdlib.h>
char *volatile kept;
int main(int argc, char **argv) { if (argc > 1) { kept = malloc(100 << 20); kept[0] = 1; } return 0; }
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, said, status := r.record(t, "-o", "few.folded", program, "one")
	require.Zero(t, status, said)
	assert.Contains(t, said, "105 MB allocated in 1 objects")
	assert.Contains(t, said, "these figures rest on few samples (1) and may well be 100 % off; a lower --period takes more")
	_, said, status = r.record(t, "--period", "1G", "-o", "few.folded", program)
	require.Zero(t, status, said)
	assert.Contains(t, said, "no samples: little was allocated")
}
