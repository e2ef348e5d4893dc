//go:build linux && amd64

package record

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/internal/profile/script"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// work is a program that takes some 0.2 s of processor time, in itself and in others.
const work = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; for f in 1 2 3 4 5 6; do /bin/ls -R /usr/share/doc/base-files >/dev/null; done`

func options(t *testing.T) Options {
	return Options{Event: named("cpu-clock"), Settings: Settings{Frequency: 2999, Copy: 16 << 10, MaxStack: 200,
		Ring: 8 << 20, Refill: true},
		Objects: unwind.NewObjects(unwind.Options{DebugDirs: unwind.DefaultDebugDirs(), Compile: unwindtest.Compile})}
}

// recordCommand records a shell command.
func recordCommand(t *testing.T, opt Options, text string) *Profile {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := Open(opt)
	require.NoError(t, err)
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	require.NoError(t, s.Start())
	done := make(chan struct{})
	result := make(chan error)
	go func() { result <- s.Run(done, nil) }()
	require.NoError(t, cmd.Wait())
	close(done)
	require.NoError(t, <-result)
	t.Cleanup(s.Close)
	return s.Take()
}

func namer() *symbolize.Namer { return symbolize.New(symbolize.Options{Kallsyms: "/proc/kallsyms"}) }

// text returns a profile in a format.
func text(t *testing.T, p *Profile, format string) string {
	spec, err := stackfmt.ByName(format)
	require.NoError(t, err)
	var b strings.Builder
	names := namer()
	require.NoError(t, p.Write(&b, spec.New(stackfmt.Options{}), p.Samples != nil, names))
	names.Close()
	return b.String()
}

// TestAsScript writes the samples of a recording to a perf.data file, too: script makes
// the same text of it, stack for stack, also if the file has call chains.
func TestAsScript(t *testing.T) {
	for name, chains := range map[string]bool{"copies": false, "chains": true} {
		t.Run(name, func(t *testing.T) { assertAsScript(t, chains) })
	}
}

func assertAsScript(t *testing.T, chains bool) {
	path := filepath.Join(t.TempDir(), "perf.data")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	opt := options(t)
	opt.Settings.Refill, opt.Samples, opt.Raw = chains, true, NewRawWriter(file, []string{"sh", "-c", work})
	opt.Raw.Chains = chains
	p := recordCommand(t, opt, work)
	require.NoError(t, opt.Raw.Finish())
	require.Greater(t, p.Counts.Samples, uint64(50))
	assert.EqualValues(t, len(p.Samples), p.Counts.Samples)
	assert.Zero(t, p.Counts.Bad)

	r, err := perfdata.Open(path, perfdata.Options{})
	require.NoError(t, err)
	defer r.Close()
	spec, err := stackfmt.ByName("perf")
	require.NoError(t, err)
	var b strings.Builder
	summary, err := script.Run(context.Background(), r, &b, script.Options{Format: spec.New(stackfmt.Options{}),
		Workers: 1, MaxStack: opt.Settings.MaxStack,
		Names:   symbolize.Options{Kallsyms: "/proc/kallsyms"},
		Objects: unwind.Options{DebugDirs: unwind.DefaultDebugDirs(), Compile: unwindtest.Compile}})
	require.NoError(t, err)
	assert.Equal(t, p.Counts.Samples, summary.Samples)
	assert.Empty(t, summary.Warnings)
	assert.Equal(t, []string{"cpu-clock", "dummy"}, summary.Events)
	require.True(t, b.String() == text(t, p, "perf"), "the texts differ")
	for _, e := range r.Events() {
		assert.Equal(t, !chains && e.Name != "dummy", e.SampleType&perfdata.SampleStackUser != 0)
	}
	assert.Contains(t, b.String(), "/libc.so.6)")
}

// TestCounts: what distinct stacks count adds up to the samples, each one's frames lead
// to the start of its program, and one thread's time is the sum of its periods.
func TestCounts(t *testing.T) {
	p := recordCommand(t, options(t), work)
	c := &p.Counts
	samples, period := uint64(0), uint64(0)
	for _, s := range p.Table.Stacks {
		samples += s.Count
		period += s.Period
	}
	assert.Equal(t, c.Samples, samples)
	assert.Equal(t, c.Samples, c.Unwound+c.NoCopy+c.Kernel+c.Compat)
	assert.Less(t, len(p.Table.Stacks), int(c.Samples)+1)
	const perSecond = 1_000_000_000
	assert.Equal(t, c.Samples*(perSecond/2999), period)
	assert.GreaterOrEqual(t, float64(c.Ends[unwind.Outermost]), 0.98*float64(c.Unwound), "%v", c.Ends)
	folded := text(t, p, "folded")
	for _, want := range []string{"\nsh;", "\nls;", ";__libc_start_main"} {
		assert.True(t, strings.Contains("\n"+folded, want), "%q is not in the profile", want)
	}
}

// TestDuration: a profile that is taken later is of the time until the recording ended.
func TestDuration(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := Open(options(t))
	require.NoError(t, err)
	defer s.Close()
	began := time.Now()
	require.NoError(t, s.Start())
	done := make(chan struct{})
	close(done)
	require.NoError(t, s.Run(done, nil))
	ended := time.Now()
	time.Sleep(time.Millisecond)
	assert.LessOrEqual(t, s.Take().Duration, ended.Sub(began))
}

// TestOffCPU: the time blocked below a function that sleeps is at least what it has asked
// for, and at most what it has measured. The time of a child that waits is its own.
func TestOffCPU(t *testing.T) {
	testtool.NeedRoot(t, "to record what happens in the kernel")
	dir := t.TempDir()
	src, bin, told := filepath.Join(dir, "sleep.c"), filepath.Join(dir, "sleep"), filepath.Join(dir, "told")
	require.NoError(t, os.WriteFile(src, []byte(sleeper), 0o666))
	out, err := exec.Command("gcc", "-O0", "-o", bin, src).CombinedOutput()
	require.NoError(t, err, "%s", out)
	opt := options(t)
	opt.Event, err = EventByName("off-cpu")
	require.NoError(t, err)
	p := recordCommand(t, opt, bin+" > "+told)
	b, err := os.ReadFile(told)
	require.NoError(t, err)
	var nap, wait int
	_, err = fmt.Sscan(string(b), &nap, &wait)
	require.NoError(t, err)
	got := map[string]int{}
	for stack, n := range testtool.Folded(t, text(t, p, "folded")) {
		for _, name := range []string{"nap", "hold"} {
			if strings.Contains(stack, ";"+name+";") {
				got[name] += n
			}
		}
	}
	const asked = 10 * 5000 // us
	assert.GreaterOrEqual(t, got["nap"], asked-10)
	assert.LessOrEqual(t, got["nap"], nap)
	assert.GreaterOrEqual(t, got["hold"], asked-10)
	assert.LessOrEqual(t, got["hold"], wait)
}

const sleeper = `
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/wait.h>
static long now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000 + t.tv_nsec / 1000; }
static void rest(void) { struct timespec t = {0, 5000000}; nanosleep(&t, 0); }
void nap(void) { for (int i = 0; i < 10; i++) rest(); }
static void blocked(void) { /* waits until the parent waits */
	char name[32], stat[256] = ""; snprintf(name, sizeof name, "/proc/%d/stat", getppid());
	do { int fd = open(name, O_RDONLY); read(fd, stat, sizeof stat - 1); close(fd); } while (!strstr(stat, ") S "));
}
void hold(int fd) { char c; while (read(fd, &c, 1) == 1); }
int main(void) {
	long a = now(); nap(); long b = now();
	int p[2]; if (pipe(p)) return 1;
	long c = now();
	if (fork() == 0) { for (int i = 0; i < 10; i++) { blocked(); rest(); write(p[1], "x", 1); } _exit(0); }
	close(p[1]); hold(p[0]); long d = now();
	wait(0); printf("%ld %ld\n", b - a + 1, d - c + 1);
}
`

// TestNothing: a recording of nothing is an empty profile.
func TestNothing(t *testing.T) {
	opt := options(t)
	opt.Settings.Frequency = 1
	p := recordCommand(t, opt, ":")
	assert.Empty(t, text(t, p, "folded"))
	var b strings.Builder
	p.Text(&b)
	assert.Contains(t, b.String(), "0 samples")
}

func TestCheck(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Settings.Copy = 12 }, func(o *Options) { o.Settings.Copy = 65536 }, func(o *Options) { o.Settings.Copy = -8 },
		func(o *Options) { o.Settings.Ring = 100000 }, func(o *Options) { o.Settings.Ring = 4096 }, func(o *Options) { o.Settings.MaxStack = 0 },
	} {
		opt := options(t)
		change(&opt)
		_, err := Open(opt)
		assert.Error(t, err)
	}
	opt := options(t)
	opt.Target.PIDs = []int{1 << 30}
	_, err := Open(opt)
	assert.ErrorContains(t, err, "no such process")
}

// TestRawFails: a file that cannot be written ends the recording with an error.
func TestRawFails(t *testing.T) {
	opt := options(t)
	opt.Raw = NewRawWriter(failing{}, nil)
	assert.Error(t, func() error {
		s, err := Open(opt)
		if err != nil {
			return err
		}
		defer s.Close()
		return opt.Raw.Finish()
	}())
}

type failing struct{}

func (failing) Write([]byte) (int, error)      { return 0, io.ErrShortWrite }
func (failing) Seek(int64, int) (int64, error) { return 0, nil }

// TestGrow: where frames are so large that little of a stack fits its copy, longer copies
// are made; the samples before and after are read by the same rings, and written to the same
// file.
func TestGrow(t *testing.T) {
	program := filepath.Join(t.TempDir(), "large")
	compile := exec.Command("gcc", "-O0", "-x", "c", "-o", program, "-")
	compile.Stdin = strings.NewReader(`#include <time.h>
int down(int n) { volatile char large[6000]; for (int i = 0; i < 6000; i += 500) large[i] = n; if (n) { int r = down(n - 1); return r + large[0]; }
	for (volatile int i = 0; i < 200000; i++); return 0; }
int main(void) { while (clock() < 2 * CLOCKS_PER_SEC) down(4); }`)
	compile.Stderr = os.Stderr
	require.NoError(t, compile.Run())
	path := filepath.Join(t.TempDir(), "perf.data")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	opt := options(t)
	opt.Settings.Frequency = 499 // a ring holds a third of a second of long copies, if others keep the reader waiting
	opt.Settings.Grow, opt.Raw = 48<<10, NewRawWriter(file, []string{program})
	c := recordCommand(t, opt, program).Counts
	require.NoError(t, opt.Raw.Finish())
	require.Greater(t, c.Samples, uint64(60))
	assert.Greater(t, c.Cut, uint64(1))
	assert.Greater(t, c.Long, uint64(20)) // how many: as soon as this process runs, beside others
	assert.Zero(t, c.Bad)
	if os.Geteuid() == 0 { // others have smaller rings
		assert.Zero(t, c.Lost)
	}

	r, err := perfdata.Open(path, perfdata.Options{})
	require.NoError(t, err)
	defer r.Close()
	sizes := map[uint64]uint64{}
	for r.Next() {
		if s, ok := r.Record().(*perfdata.Sample); ok {
			sizes[s.StackSize]++
		}
	}
	require.NoError(t, r.Err())
	assert.Equal(t, c.Long, sizes[48<<10])
	assert.NotZero(t, sizes[16<<10])
}

// TestPace: rings are read seldom, but where stacks may be longer than their copies soon
// after a sample is due.
func TestPace(t *testing.T) {
	const ms = uint64(time.Millisecond)
	p := newPace(&Options{Event: named("cpu-clock"), Settings: Settings{Frequency: 1000}}, 1<<20)
	assert.Equal(t, calmWait, p.wait(0))
	p.moving = 20 * ms
	assert.Equal(t, leastMap, p.wait(10*ms))
	p.alert = 100 * ms
	assert.Equal(t, cutWait, p.wait(10*ms), "no sample in this round")
	p.note(0, 10*ms)
	p.note(1, 9*ms+ms/2)
	assert.Equal(t, time.Duration(ms)*7/10+settle, p.wait(9*ms+ms*8/10))
	p.note(0, 11*ms)
	assert.Equal(t, leastWait, p.wait(12*ms-1000))
	assert.Zero(t, p.due[1], "it has become idle")
	assert.Equal(t, calmWait, p.wait(200*ms))
}

// TestPaceSlow: a reader may be late where its rings fill in seconds.
func TestPaceSlow(t *testing.T) {
	const ring = 16 << 20
	slow := Options{Event: named("cpu-clock"), Settings: Settings{Frequency: 97, Copy: 16 << 10, Grow: 64000}}
	p := newPace(&slow, ring)
	assert.True(t, p.slow)
	p.moving = 1
	assert.Equal(t, 2*(time.Second/97), p.wait(0))
	assert.False(t, newPace(&slow, 8<<20).slow)
	for _, change := range []func(*Options){
		func(o *Options) { o.Settings.Realtime = true }, func(o *Options) { o.Settings.Frequency = 999 },
		func(o *Options) { o.Event = named("page-faults") },
		func(o *Options) { o.More = []*Event{named("page-faults")} }} {
		o := slow
		change(&o)
		assert.False(t, newPace(&o, ring).slow)
	}
}

// TestNoBuildIDs: no event asks the kernel for build-ids, which would end a perf that records the same process.
func TestNoBuildIDs(t *testing.T) {
	for _, o := range []Options{{Event: named("cpu-clock")}, {Event: Events()[1], Target: Target{All: true}}} {
		for _, a := range []*perfevent.Attr{o.baseAttr(true), o.sideAttr(true)} {
			assert.Zero(t, a.Bits&perfevent.BitBuildID)
		}
	}
}
