//go:build linux && amd64

package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"
)

// makeOnce has each object's tables made when they are first asked for. When those of a program are asked for again, the
// file ready is made.
func makeOnce(t *testing.T, opt *Options, program, ready string) {
	made, tables := map[string]*bpfunwind.Tables{}, opt.Tables
	opt.Tables = func(o *unwind.Object, _ bool) (ts *bpfunwind.Tables, err error) {
		ts, known := made[o.Name]
		if !known {
			ts, err = tables(o, true)
			made[o.Name] = ts
		} else if o.Name == program {
			assert.NoError(t, os.WriteFile(ready, nil, 0o600))
		}
		return ts, err
	}
}

// TestInKernelHookedDeep: each call of a function that is probed counts, though the stacks of the first ones are longer
// than the longest copy.
func TestInKernelHookedDeep(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	dir := compileC(t, map[string]string{"deep": `
#include <stdio.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) int probed(int i) { sink += i; return i + 1; }
int deep(int n, char **argv) {
	volatile char bytes[100] = {n};
	int hits = 0;
	if (n) return deep(n - 1, argv) + bytes[0] * 0;
	for (; hits < 50; hits++) sink += probed(hits);
	for (int more = 20; more > 0; usleep(10000), hits++) { sink += probed(0); more -= !access(argv[1], F_OK); }
	for (int i = 0; i < 1000; i++, hits++) sink += probed(i);
	return hits;
}
int main(int argc, char **argv) { printf("%d\n", deep(1000, argv)); return 0; }
`})
	program, result, ready := filepath.Join(dir, "deep"), filepath.Join(dir, "result"), filepath.Join(dir, "ready")
	var err error
	opt.Event, err = EventByName("uprobe:" + program + ":probed")
	require.NoError(t, err)
	opt.Settings.Ring, opt.Settings.Grow = 64<<20, 64000
	makeOnce(t, opt, program, ready)
	recordCommand(t, *opt, program+" "+program+" >/dev/null")
	p := recordCommand(t, *opt, "exec "+program+" "+ready+" >"+result)
	b, err := os.ReadFile(result)
	require.NoError(t, err)
	var hits uint64
	_, err = fmt.Sscan(string(b), &hits)
	require.NoError(t, err)
	assert.Greater(t, hits, uint64(1000))
	assert.Equal(t, hits, p.Counts.Samples)
	assert.GreaterOrEqual(t, p.Counts.InKernel, uint64(1000))
}

// TestInKernelHooked: at tracepoints and probes each event has one stack, which the kernel unwinds once it knows the
// program. What other processes do is not recorded.
func TestInKernelHooked(t *testing.T) {
	opt := kernelOptions(t)
	if opt == nil {
		return
	}
	dir := compileC(t, map[string]string{"events": `
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/resource.h>
volatile unsigned long sink;
int in[2], out[2];
__attribute__((noinline)) int probed(int i) { sink += i; return i + 1; }
__attribute__((noinline)) int ping(int i) { char c = 0; sink += probed(i); return write(in[1], &c, 1) + read(out[0], &c, 1); }
static int echo(void) { char c; while (read(in[0], &c, 1) == 1) if (write(out[1], &c, 1) < 0) return 1; return 0; }
int main(int argc, char **argv) {
	if (pipe(in) || pipe(out)) return 1;
	if (!fork()) { close(in[1]); _exit(echo()); }
	int hits = 0;
	for (int more = 20; more > 0; usleep(10000), hits++) { sink += ping(0); more -= !access(argv[1], F_OK); }
	for (int i = 0; i < 5000; i++, hits++) sink += ping(i);
	struct rusage own;
	getrusage(RUSAGE_SELF, &own);
	printf("%ld %d\n", own.ru_nvcsw + own.ru_nivcsw, hits);
	return 0;
}
`})
	program, result, ready := filepath.Join(dir, "events"), filepath.Join(dir, "result"), filepath.Join(dir, "ready")
	other := exec.Command(program, filepath.Join(dir, "never"))
	require.NoError(t, other.Start()) // which is not recorded
	defer other.Wait()
	defer other.Process.Kill()
	probe, err := EventByName("uprobe:" + program + ":probed")
	require.NoError(t, err)
	switches := &Event{Name: "sched:sched_switch", typ: unix.PERF_TYPE_TRACEPOINT, every: 1, kernel: true,
		raw: "sched_switch"}
	opt.Event, opt.More, opt.Settings.Ring = switches, []*Event{probe}, 64<<20 // for all events, should the reader get no CPU
	makeOnce(t, opt, program, ready)
	recordCommand(t, *opt, program+" "+program+" >/dev/null") // which makes the tables; copies do not keep up with it
	p := recordCommand(t, *opt, "exec "+program+" "+ready+" >"+result)
	assert.Zero(t, p.Counts.Lost)
	assert.Greater(t, p.Counts.InKernel, p.Counts.Samples/2)
	b, err := os.ReadFile(result)
	require.NoError(t, err)
	var switched, hits int
	_, err = fmt.Sscan(string(b), &switched, &hits)
	require.NoError(t, err)
	counts := map[string]int{}
	for i := range p.Table.Stacks {
		s := &p.Table.Stacks[i]
		frames := p.Table.Frames(nil, s)
		counts[p.event(s.Event).Name] += int(s.Count)
		if s.Event == 0 {
			require.True(t, frames[0].Kernel)
		}
		assert.Contains(t, []string{"events", "sh"}, p.Comms[s.Comm])
	}
	assert.Greater(t, hits, 5000)
	assert.Equal(t, hits, counts[probe.Name])
	assert.GreaterOrEqual(t, counts[switches.Name], switched, "of the process and its child")
	assert.Less(t, counts[switches.Name], 3*switched)
	for stack := range testtool.Folded(t, text(t, p, "folded")) {
		assert.NotContains(t, stack, "bpf_")
	}
}
