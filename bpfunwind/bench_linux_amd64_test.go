package bpfunwind

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// events does something N times below a recursion, once it has read a byte: what, frames, bytes, N.
const events = `
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
static volatile unsigned sink; static long n; static char what; static int in[2], out[2];
__attribute__((noinline)) void probed(long i) { sink += i; __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) static void leaf(void) {
  char c = 0;
  for (long i = 0; i < n; i++)
    switch (what) {
    case 's': sink += syscall(SYS_getppid); break;
    case 'm': free(malloc(i % 500 + 1)); break;
    case 'p': probed(i); break;
    case 'w': sink += write(in[1], &c, 1); sink += read(out[0], &c, 1); break;
    }
}
__attribute__((noinline)) static unsigned small(int f) { volatile char b[64]; b[0] = f; if (!f) { leaf(); return b[0]; } return (small(f - 1) + b[0]) * 3; }
__attribute__((noinline)) static unsigned big(int f) { volatile char b[4000]; b[0] = f; b[3999] = 1; if (!f) { leaf(); return b[0]; } return (big(f - 1) + b[3999]) * 3; }
static void echo(void) { char c; while (read(in[0], &c, 1) == 1) sink += write(out[1], &c, 1); _exit(0); }
int main(int c, char **v) {
  char go; what = v[1][0]; n = atol(v[4]); sink += pipe(in); sink += pipe(out);
  if (what == 'w' && !fork()) { close(in[1]); echo(); }
  sink += read(0, &go, 1);
  sink += atoi(v[3]) < 1000 ? small(atoi(v[2])) : big(atoi(v[2]));
  return 0;
}
`

// workload is a process that waits to begin.
type workload struct {
	s     *session
	cmd   *exec.Cmd
	begin func()
}

func newWorkload(t *testing.T, what string, frames, bytes, n int) *workload {
	w := &workload{s: newSession(t, Options{RingSize: 1 << 24})}
	w.cmd = exec.Command(compileC(t, events, "-O1", "-fomit-frame-pointer"), what, strconv.Itoa(frames),
		strconv.Itoa(bytes), strconv.Itoa(n))
	in, err := w.cmd.StdinPipe()
	require.NoError(t, err)
	w.begin = func() { in.Write([]byte{1}) }
	require.NoError(t, w.cmd.Start())
	time.Sleep(100 * time.Millisecond)
	w.s.wanted[uint32(w.cmd.Process.Pid)] = true
	w.s.refresh(uint32(w.cmd.Process.Pid))
	if children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", w.cmd.Process.Pid)); err == nil {
		var child uint32
		if n, _ := fmt.Sscan(string(children), &child); n == 1 {
			w.s.wanted[child] = true
			w.s.refresh(child)
		}
	}
	return w
}

// run runs it, and returns what a program did meanwhile.
func (w *workload) run(t *testing.T, p *Program) (runs uint64, took time.Duration, stats Stats) {
	on, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	require.NoError(t, err)
	defer on.Close()
	before, err := p.loaded.Stats()
	require.NoError(t, err)
	w.begin()
	ended := make(chan error, 1)
	go func() { ended <- w.cmd.Wait() }()
	for over := false; !over; {
		select {
		case err := <-ended:
			require.NoError(t, err)
			over = true
		default:
		}
		w.s.pump()
	}
	after, err := p.loaded.Stats()
	require.NoError(t, err)
	stats, err = w.s.u.Stats()
	require.NoError(t, err)
	return after.RunCount - before.RunCount, after.Runtime - before.Runtime, stats
}

// measureEnv asks for TestMeasure.
const measureEnv = "BPFUNWIND_MEASURE"

// TestMeasure counts walks of events that follow each other at full speed; with BPFUNWIND_MEASURE it prints what they
// took.
func TestMeasure(t *testing.T) {
	testtool.Long(t)
	long := os.Getenv(measureEnv) != ""
	for _, c := range []struct {
		event               string
		frames, bytes, n    int
		kind                Kind
		tracepoint, program string
	}{
		{"s", 25, 100, 20000, RawTracepoint, "sys_enter", ""},
		{"s", 500, 100, 2000, RawTracepoint, "sys_enter", ""},
		{"s", 500, 4000, 2000, RawTracepoint, "sys_enter", ""},
		{"s", 5000, 100, 200, RawTracepoint, "sys_enter", ""},
		{"s", 1900, 4000, 200, RawTracepoint, "sys_enter", ""},
		{"w", 5, 100, 10000, RawTracepoint, "sched_switch", ""},
		{"m", 8, 100, 10000, Probe, "", "malloc"},
	} {
		if long {
			c.n *= 20
		}
		w := newWorkload(t, c.event, c.frames, c.bytes, c.n)
		walks, frames := 0, 0
		w.s.onSample = func(s *Sample) {
			walks++
			frames += len(s.User)
		}
		p, err := w.s.u.NewProgram(Source{Kind: c.kind})
		require.NoError(t, err)
		if c.tracepoint != "" {
			tracepoint, err := p.AttachTracepoint(c.tracepoint)
			require.NoError(t, err)
			defer tracepoint.Close()
		} else {
			uprobe(t, p, "/lib/x86_64-linux-gnu/libc.so.6", c.program)
		}
		runs, took, stats := w.run(t, p)
		require.NoError(t, p.Close())
		require.Zero(t, stats.Lost+stats.Nested)
		require.GreaterOrEqual(t, walks, c.n)
		t.Logf("%s%s, %d frames of %d bytes: %d runs, %d walks, %.1f frames, %.0f ns a run, %.1f ns a frame; %v",
			c.tracepoint, c.program, c.frames,
			c.bytes, runs, walks, float64(frames)/float64(walks), float64(took)/float64(runs), float64(took)/float64(frames),
			stats)
	}
}

// uprobe has a program run at a function of a library, in all processes.
func uprobe(t *testing.T, p *Program, library, function string) {
	f, err := elf.Open(library)
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		if s.Name != function {
			continue
		}
		for _, load := range f.Progs {
			if load.Type == elf.PT_LOAD && s.Value >= load.Vaddr && s.Value < load.Vaddr+load.Filesz {
				attachUprobe(t, p, library, s.Value-load.Vaddr+load.Off)
				return
			}
		}
	}
	t.Fatalf("%s has no %s", library, function)
}

func attachUprobe(t *testing.T, p *Program, library string, offset uint64) {
	typ, _, err := perfevent.KernelSources().Probes("uprobe")
	require.NoError(t, err)
	name := append([]byte(library), 0)
	attr := perfevent.Attr{Type: typ, Sample: 1, Ext1: uint64(uintptr(unsafe.Pointer(&name[0]))), Ext2: offset}
	event, err := perfevent.Open(&attr, perfevent.AllThreads, 0)
	require.NoError(t, err)
	t.Cleanup(func() { event.Close() })
	require.NoError(t, p.Attach(event.FD()))
}

// BenchmarkMake makes and proves the tables of libc.
func BenchmarkMake(b *testing.B) {
	o, err := dwarfcfa.Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(b, err)
	defer o.Close()
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	require.NoError(b, err)
	for b.Loop() {
		_, err := Make(table)
		require.NoError(b, err)
	}
}
