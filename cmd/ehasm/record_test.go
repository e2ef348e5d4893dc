//go:build linux && amd64

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/google/pprof/profile"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// busy is some 0.1 s of a shell's time.
const busy = `i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; `

// recordIn runs the built command's record in a folder, where nothing is cached.
func recordIn(t *testing.T, dir string, args ...string) result {
	t.Helper()
	return outputOf(recordCommand(t, dir, args...))
}

// outputOf runs a command.
func outputOf(cmd *exec.Cmd) result {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Run()
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// agentIn is recordIn for the verb agent.
func agentIn(t *testing.T, dir string, args ...string) result {
	t.Helper()
	return outputOf(verbCommand(t, dir, "agent", args...))
}

func recordCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	return verbCommand(t, dir, "record", args...)
}

// verbCommand runs a verb in a folder, with a cache there.
func verbCommand(t *testing.T, dir, verb string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(goBuild(t), append([]string{verb}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+dir, "HOME="+dir)
	return cmd
}

// TestRecordForms writes each form of output, and the command's own output passes.
func TestRecordForms(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"profile.pb.gz", "p.svg", "p.folded", "p.json", "p.perf.txt"} {
		r := recordIn(t, dir, "-o", name, "--stats", "stats.json", "sh", "-c", busy+"echo done; exit 3")
		assert.Equal(t, 3, r.code, r.stderr)
		assert.Equal(t, "done\n", r.stdout)
		assert.Contains(t, r.stderr, " samples in ")
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		if name == "profile.pb.gz" {
			assert.Contains(t, r.stderr, "go tool pprof -http=: profile.pb.gz")
			p, err := profile.ParseData(b)
			require.NoError(t, err)
			require.NoError(t, p.CheckValid())
			assert.Equal(t, "cpu", p.SampleType[1].Type)
			continue
		}
		assert.Contains(t, string(b), "__libc_start_main", name)
	}
	b, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	require.NoError(t, err)
	assert.Contains(t, string(b), `"lost": 0`)
}

// TestRecordStatus: the exit status is the command's, also if there is none.
func TestRecordStatus(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("exit 5\n"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "foreign"), patched(t, 18, byte(elf.EM_AARCH64)), 0o755))
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{0, "", []string{"true"}},
		{128 + 9, "", []string{"sh", "-c", "kill -9 $$"}},
		{128 + 11, "", []string{"sh", "-c", "kill -SEGV $$"}},
		{5, "", []string{"./plain"}},
		{126, "ehasm: ./foreign: for another machine, or damaged: not executable", []string{"./foreign"}},
		{126, "text: ", []string{"./text"}},
		{127, "no-such-command: ", []string{"no-such-command"}},
		{2, "nothing to record", nil},
		{2, "-a records everything, without a command", []string{"-a", "true"}},
		{2, "unknown suffix: want .pb.gz", []string{"-o", "x.txt", "true"}},
		{2, "the format perf.data goes with neither --raw", []string{"-o", "x.perf.data", "--off-cpu", "true"}},
		{2, "the format perf.data goes with neither --raw", []string{"-o", "x.perf.data", "--raw", "y.data", "true"}},
		{2, "cannot be written to a pipe", []string{"-o", "-", "--format", "perf.data", "true"}},
		{2, "has no effect in the format perf.data", []string{"-o", "x.perf.data", "--inline", "true"}},
		{2, "--unwind: \"x\"", []string{"--unwind", "x", "true"}},
		{2, "want a power of two", []string{"--ring", "5", "true"}},
		{2, "--cgroup goes with -a", []string{"--cgroup", "/", "true"}},
		{2, "want a multiple of 8", []string{"--stack-copy", "13", "true"}},
		{2, "unknown event", []string{"--event", "x", "true"}},
		{2, "p.svg is named for two outputs", []string{"-o", "p.svg", "--raw", "./p.svg", "true"}},
		{1, "kernel.perf_event_max_sample_rate", []string{"-F", "100000000", "true"}},
		{1, "no such process", []string{"-p", "1073741824"}},
		{1, "no such file", []string{"-o", "none/p.svg", "touch", "ran"}},
	} {
		r := recordIn(t, dir, c.args...)
		assert.Equal(t, c.code, r.code, "%q: %s", c.args, r.stderr)
		assert.Contains(t, r.stderr, c.text)
		assert.NotContains(t, r.stderr, "goroutine")
	}
	assert.NoFileExists(t, filepath.Join(dir, "ran"), "what cannot be written is told before the command runs")
}

// TestRecordPIDs: a process that is named twice is recorded once, and a thread is no process.
func TestRecordPIDs(t *testing.T) {
	opt := newRecordOptions(recordVerb(), pflag.NewFlagSet("", pflag.ContinueOnError))
	opt.Target.PIDs, opt.Sampling.Frequency, opt.Output.Path = []int{7, 3, 7}, 1, "p.svg"
	require.NoError(t, opt.parse("", "always", nil))
	assert.Equal(t, []int{3, 7}, opt.Target.PIDs)
	list, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Greater(t, len(list), 1)
	r := recordIn(t, t.TempDir(), "-p", list[len(list)-1].Name(), "--duration", "10ms")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, fmt.Sprintf("a thread of process %d", os.Getpid()))
}

// TestRecordProcesses: the recording of several processes ends with the last of them.
func TestRecordProcesses(t *testing.T) {
	dir := t.TempDir()
	var pids []string
	var targets []*exec.Cmd
	var inputs []io.Closer
	for range 2 {
		target := exec.Command("cat")
		stdin, err := target.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, target.Start())
		targets, inputs, pids = append(targets, target), append(inputs, stdin), append(pids,
			strconv.Itoa(target.Process.Pid))
	}
	cmd := recordCommand(t, dir, "-p", strings.Join(pids, ","), "-o", "p.folded")
	require.NoError(t, cmd.Start())
	waitForRings(t, cmd)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for i := range targets {
		select {
		case <-ended:
			require.Fail(t, "the recording ended before the processes")
		case <-time.After(200 * time.Millisecond):
		}
		inputs[i].Close()
		require.NoError(t, targets[i].Wait())
	}
	select {
	case <-ended: // perhaps without samples, which is a failure
	case <-time.After(time.Minute):
		cmd.Process.Kill()
		assert.Fail(t, "the recording goes on without the processes")
	}
}

// waitForRings waits until a recording has begun: its rings are there.
func waitForRings(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.Eventually(t, func() bool {
		maps, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/maps")
		return strings.Contains(string(maps), "[perf_event]")
	}, time.Minute, 5*time.Millisecond)
	time.Sleep(50 * time.Millisecond) // they are enabled a moment later
}

// TestRecordInterrupt: an interrupt goes to the command, and what it has done up to then is
// written.
func TestRecordInterrupt(t *testing.T) {
	dir := t.TempDir()
	cmd := recordCommand(t, dir, "-o", "p.folded", "sh", "-c", busy+"touch ready; "+`while :; do :; done`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	waitForFile(t, filepath.Join(dir, "ready"))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	cmd.Process.Signal(os.Interrupt) // as timeout(1) does
	cmd.Wait()
	assert.Equal(t, 128+int(syscall.SIGINT), cmd.ProcessState.ExitCode())
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(b), "sh;")
}

func waitForFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, 5*time.Millisecond)
}

// TestRecordProcess records one that is running, all its threads, up to its end.
func TestRecordProcess(t *testing.T) {
	dir := t.TempDir()
	target := exec.Command("sh", "-c", "touch ready; read x; "+busy+busy)
	target.Dir = dir
	stdin, err := target.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, target.Start())
	waitForFile(t, filepath.Join(dir, "ready"))
	cmd := recordCommand(t, dir, "-p", strconv.Itoa(target.Process.Pid), "-o", "p.folded")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	waitForRings(t, cmd)
	stdin.Close()
	require.NoError(t, target.Wait())
	cmd.Wait()
	assert.Zero(t, cmd.ProcessState.ExitCode(), stderr.String())
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(b), ";__libc_start_main")
	assert.Equal(t, len(strings.Split(string(b), "\n")), len(strings.Split("\n"+string(b), "\nsh;")))
}

// TestRecordDuration: the recording ends, the command does not.
func TestRecordDuration(t *testing.T) {
	dir := t.TempDir()
	r := recordIn(t, dir, "--duration", "50ms", "-o", "p.folded", "sh", "-c", busy+busy+busy+"exit 4")
	assert.Equal(t, 4, r.code, r.stderr)
}

// TestRecordSystem records everything: this test is in it.
func TestRecordSystem(t *testing.T) {
	testtool.NeedRoot(t, "to record the whole system")
	dir := t.TempDir()
	cmd := recordCommand(t, dir, "--cache=false", "-a", "--duration", "500ms", "-o", "p.folded")
	require.NoError(t, cmd.Start())
	done := make(chan error)
	go func() { done <- cmd.Wait() }()
	for waiting := true; waiting; {
		select {
		case err := <-done:
			require.NoError(t, err)
			waiting = false
		default:
			bytes.Count(make([]byte, 1<<16), []byte("x"))
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.True(t, strings.Contains(string(b), "ehasm.test;"), "this test is not in the profile of the system")
}

// TestRecordUnprivileged: another user may record own programs, and is told why the
// rest is refused.
func TestRecordUnprivileged(t *testing.T) {
	testtool.NeedRoot(t, "to become another user")
	const otherUser = 65534
	dir := t.TempDir()
	for path := dir; path != os.TempDir() && path != "/"; path = filepath.Dir(path) {
		require.NoError(t, os.Chmod(path, 0o777))
	}
	verb := func(verb string, args ...string) result {
		cmd := verbCommand(t, dir, verb, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUser, Gid: otherUser}}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.Run()
		return result{cmd.ProcessState.ExitCode(), "", stderr.String()}
	}
	as := func(args ...string) result { return verb("record", args...) }
	r := verb("agent", "--flight", "1m", "-o", "a.folded", "true")
	assert.Contains(t, r.stderr, "ehasm: agent: time in the kernel is not recorded")
	r = as("-o", "p.folded", "sh", "-c", busy)
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stderr, "ehasm: record: time in the kernel is not recorded")
	if !strings.Contains(r.stderr, "lost by the kernel") {
		assert.NotContains(t, r.stderr, "may be locked")
	}
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(b), "sh;")
	assert.NotContains(t, string(b), "do_syscall_64")
	assertRawAsFolded(t, dir, as)
	r = as("-F", "1", "-o", "q.folded", "true")
	assert.Contains(t, r.stderr, "no samples: true used less processor time outside of the kernel than passes between "+
		"two samples at -F 1: raise -F\n")
	r = as("--off-cpu", "-o", "q.folded", "sleep", "0.01")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.stderr, "off-cpu: occurs in the kernel, which this user may not sample")
	for _, args := range [][]string{{"-a"}, {"-p", "1"}} {
		r = as(append([]string{"-o", "q.folded"}, args...)...)
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.stderr,
			"perf_event_open: permission denied: not allowed to this user (kernel.perf_event_paranoid=")
		assert.Contains(t, r.stderr, "CAP_PERFMON")
		assert.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

// assertRawAsFolded records with --raw, and has script make the same stacks of that file.
func assertRawAsFolded(t *testing.T, dir string, as func(args ...string) result) {
	t.Helper()
	raw, folded := filepath.Join(dir, "raw.data"), filepath.Join(dir, "raw.folded")
	r := as("--raw", raw, "-o", folded, "sh", "-c", busy)
	require.Zero(t, r.code, r.stderr)
	want, err := os.ReadFile(folded)
	require.NoError(t, err)
	assert.Contains(t, string(want), ";__libc_start_call_main;")
	r = ehasm(t, "script", "--cache=false", "--format=folded", "-i", raw)
	assert.Equal(t, string(want), r.stdout, r.stderr)
}

// TestRecordDiskFull: a profile that cannot be written where it is wanted is not lost.
func TestRecordDiskFull(t *testing.T) {
	dir := t.TempDir()
	cmd := recordCommand(t, dir, "-o", "/dev/full", "--format", "folded", "sh", "-c", busy)
	cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	out, _ := cmd.CombinedOutput()
	assert.Equal(t, 1, cmd.ProcessState.ExitCode())
	assert.Contains(t, string(out), "no space left on device")
	assert.Contains(t, string(out), "the profile is here instead")
	found, err := filepath.Glob(filepath.Join(dir, "ehasm-*", "full"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	st, err := os.Stat(filepath.Dir(found[0]))
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|0o700, st.Mode(), "no other user can have put a link at the name")
	b, err := os.ReadFile(found[0])
	require.NoError(t, err)
	assert.Contains(t, string(b), "sh;")
}

// TestRecordGuide: the guide's commands have flags that there are, and its picture is what
// the command draws.
func TestRecordGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/record.md")
	require.NoError(t, err)
	commands := 0
	for line := range strings.Lines(string(guide)) {
		command, ok := strings.CutPrefix(line, "    ehasm record ")
		if !ok {
			continue
		}
		command, _, _ = strings.Cut(command, "   ") // what it does
		command = strings.NewReplacer(" PID", " 1", "GROUP", "g").Replace(command)
		fs, _ := recordVerb().declare()
		assert.NoError(t, fs.Parse(strings.Fields(command)), line)
		commands++
	}
	assert.Greater(t, commands, 8)
	picture, err := os.ReadFile("../../docs/record.svg")
	require.NoError(t, err)
	assert.Contains(t, string(picture), "ehasm record --name ^postgres$ -d 5 -F 399 -o record.svg (cpu-clock)")
	assert.Contains(t, string(picture), "PostgresMain\npostgres (")
}
