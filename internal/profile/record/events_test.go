//go:build linux && amd64

package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestEventsAsPerf: each name means what perf means by it.
func TestEventsAsPerf(t *testing.T) {
	testtool.Need(t, "perf")
	names := []string{"r1c2", "rc0", "cycles:u", "cycles:k", "cycles:uk", "instructions:upp", "page-faults:u"}
	for _, e := range Events() {
		if e.Name != "off-cpu" {
			names = append(names, e.Name)
		}
	}
	attr := regexp.MustCompile(`(?m)^  (type|config|exclude_user|exclude_kernel|precise_ip) +(?:0x)?([0-9a-f]+)`)
	for _, name := range names {
		out, _ := exec.Command("perf", "stat", "-vv", "-e", name, "--", "true").CombinedOutput() // it fails without a PMU
		_, text, found := strings.Cut(string(out), "perf_event_attr:\n")
		require.True(t, found, "%s: %s", name, out)
		text, _, _ = strings.Cut(text, "-----")
		want := map[string]string{"type": "0", "config": "0", "exclude_user": "0", "exclude_kernel": "0", "precise_ip": "0"}
		for _, m := range attr.FindAllStringSubmatch(text, -1) {
			want[m[1]] = m[2]
		}
		e, err := EventByName(name)
		require.NoError(t, err)
		bit := func(mask uint64) string { return fmt.Sprint(min(e.bits&mask, 1)) }
		assert.Equal(t, want, map[string]string{"type": fmt.Sprint(e.typ), "config": fmt.Sprintf("%x", e.config),
			"exclude_user":   bit(unix.PerfBitExcludeUser),
			"exclude_kernel": bit(unix.PerfBitExcludeKernel), "precise_ip": fmt.Sprint(e.bits / unix.PerfBitPreciseIPBit1)},
			name)
	}
}

// TestEventPeriods: formats get the period of samples, where all have the same.
func TestEventPeriods(t *testing.T) {
	for name, want := range map[string]uint64{"cpu-clock": 10_000_000, "task-clock": 10_000_000, "cycles": 0,
		"page-faults": 1, "off-cpu": 0, "r1c2": 0} {
		e, err := EventByName(name)
		require.NoError(t, err)
		assert.Equal(t, want, e.stackfmt(100).Every, name)
		if e.SetPeriod(4096); name != "off-cpu" {
			assert.Equal(t, uint64(4096), e.stackfmt(100).Every, name)
		}
	}
}

// fakeKernel returns folders as sysfs and tracefs have them.
func fakeKernel(t *testing.T) *perfevent.Sources {
	dir := t.TempDir()
	for path, text := range map[string]string{"events/sched/sched_switch/id": "316\n",
		"events/sched/sched_switch/format": "field:int prev_prio;\n",
		"events/probe_libc/malloc/id":      "1700\n", "events/probe_libc/malloc/format": "field:unsigned long __probe_ip;\n",
		"kprobe/type": "8\n", "uprobe/type": "9\n",
		"kprobe/format/retprobe": "config:0\n", "uprobe/format/retprobe": "config:0\n"} {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return &perfevent.Sources{Devices: dir, Tracing: []string{dir}}
}

// TestEventNames: tracepoints and probes get the attributes that perf_event_open(2) wants.
func TestEventNames(t *testing.T) {
	testtool.Need(t, "gcc")
	from, dir := fakeKernel(t), t.TempDir()
	source, program := filepath.Join(dir, "p.c"), filepath.Join(dir, "p")
	require.NoError(t, os.WriteFile(source, []byte(`
static __attribute__((noinline, section(".text.one"))) int twice(int n) { return 2 * n; }
int _ZN2ns4calcEi(int n) { return twice(n); }
int _ZN2ns4overEi(int n) { return n; }
int _ZN2ns4overEl(int n) { return n + 1; }
__asm__(".globl chosen\n.type chosen, @gnu_indirect_function\nchosen: ret");
int main(void) { return _ZN2ns4calcEi(2); }
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)

	e, err := eventByName(from, "sched:sched_switch")
	require.NoError(t, err)
	assert.Equal(t, &Event{Name: "sched:sched_switch", typ: unix.PERF_TYPE_TRACEPOINT, config: 316, every: 1, kernel: true,
		raw: "sched_switch"}, e)
	require.NoError(t, e.SetFilter("prev_pid == 1"))
	e, err = eventByName(from, "probe_libc:malloc")
	require.NoError(t, err)
	assert.Equal(t, []any{uint64(1700), true}, []any{e.config, e.wide})
	e, err = eventByName(from, "kretprobe:do_sys_openat2")
	require.NoError(t, err)
	assert.Equal(t, &Event{Name: "kretprobe:do_sys_openat2", typ: 8, config: 1, every: 1, kernel: true,
		probe: &probe{[]byte("do_sys_openat2\x00"), 0}, wide: true}, e)
	assert.Error(t, e.SetFilter("1"))
	e, err = eventByName(from, "kprobe:vfs_read+0x8")
	require.NoError(t, err)
	assert.Equal(t, &probe{[]byte("vfs_read\x00"), 8}, e.probe)

	named, err := eventByName(from, "uprobe:"+program+":twice")
	require.NoError(t, err)
	assert.Equal(t, []any{uint32(9), uint64(0), false, program + "\x00"}, []any{named.typ, named.config, named.kernel,
		string(named.probe.name)})
	nm, err := exec.Command("nm", program).Output()
	require.NoError(t, err)
	address := regexp.MustCompile(`(?m)^0*([0-9a-f]+) t twice$`).FindSubmatch(nm)
	require.NotNil(t, address, "%s", nm)
	for _, place := range []string{"0x" + string(address[1]), "twice+0"} {
		same, err := eventByName(from, "uretprobe:"+program+":"+place)
		require.NoError(t, err)
		assert.Equal(t, []any{named.probe, uint64(1)}, []any{same.probe, same.config})
	}
	_, err = eventByName(from, "uprobe:"+program+":ns::calc")
	assert.NoError(t, err)

	for name, text := range map[string]string{
		"sched:sched_swich":               "sched:sched_swich: there is no such tracepoint; did you mean sched:sched_switch?",
		"cyclse":                          `unknown event "cyclse"; did you mean cycles?`,
		"nothing":                         "uprobe:FILE:FUNCTION",
		"cycles:x":                        "want the modifiers",
		"cycles:":                         "want the modifiers",
		"off-cpu:u":                       "want the modifiers",
		"sched:*":                         "'perf record --call-graph dwarf -e sched:*'",
		"cpu/event=1/":                    "'perf record",
		"cpu/event=1/pp":                  "'perf record",
		"msr/tsc/:u":                      "'perf record",
		"mem:0x1234:w":                    "'perf record",
		"kprobe:":                         "want kprobe:FUNCTION",
		"kprobe:f+x":                      "want kprobe:FUNCTION",
		"uprobe:" + program:               "want uprobe:FILE:FUNCTION",
		"uprobe:/no/such/file:f":          "no such file",
		"uprobe:" + source + ":main":      "not an ELF file",
		"uprobe:" + dir + ":main":         dir,
		"uprobe:" + program + ":no":       "no function no",
		"uprobe:" + program + ":ns::over": "2 functions ns::over: want an address, such as 0x",
		"uprobe:" + program + ":chosen":   "IFUNC",
		"uprobe:" + program + ":0":        "no code at 0x0",
	} {
		_, err := eventByName(from, name)
		assert.ErrorContains(t, err, text, name)
	}
}

// TestProbeAttributes: a probe is not inherited, and counts before the command begins.
func TestProbeAttributes(t *testing.T) {
	opt := options(t)
	e := &Event{typ: 9, every: 1, probe: &probe{[]byte("/lib/libc.so\x00"), 0x1234}, wide: true}
	const inherited = unix.PerfBitInherit | unix.PerfBitEnableOnExec
	a := opt.sampleAttr(e, false, 1<<16)
	assert.Zero(t, a.Bits&(inherited|unix.PerfBitDisabled))
	assert.Equal(t, uint64(0x1234), a.Ext2)
	assert.NotZero(t, a.Ext1)
	assert.Equal(t, uint64(unix.PerfBitDisabled), opt.longAttr(a).Bits&(inherited|unix.PerfBitDisabled))
	opt.Target.PIDs = []int{1}
	assert.Equal(t, uint64(unix.PerfBitDisabled), opt.sampleAttr(e, false, 1<<16).Bits&(inherited|unix.PerfBitDisabled))
	assert.ErrorContains(t, (&Event{Name: "uprobe:f:g", probe: e.probe}).explain(unix.EACCES),
		"uprobe:f:g: permission denied: a probe needs root")
	assert.ErrorContains(t, (&Event{Name: "kprobe:f", kernel: true, probe: e.probe}).explain(unix.ENOENT),
		"no such function")
}
