//go:build linux && amd64

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hang bounds waits for what happens at once on an idle machine.
const hang = time.Minute

// startStacks starts testdata/stacks.c with more threads, and waits until each is blocked where it stays.
func startStacks(t *testing.T, more int, flags ...string) (program string, pid int) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "stacks")
	out, err := exec.Command("gcc",
		append([]string{"-O1", "-pthread", "-o", program, filepath.Join("testdata", "stacks.c")},
			flags...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	pid = startTarget(t, program, strconv.Itoa(more))
	testtool.WaitBlocked(t, pid, 6+more)
	return program, pid
}

// startTarget starts a program, waits for the line that says that it is ready, and ends it with the test.
func startTarget(t *testing.T, program string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(program, args...)
	from, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(from).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return cmd.Process.Pid
}

// pcsOf reads the pcs of all threads from the text of ehasm stack or eu-stack.
func pcsOf(text string) map[string][]string {
	threads := make(map[string][]string)
	begin, frame := regexp.MustCompile(`^(?:thread|TID) (\d+)`), regexp.MustCompile(`^#\d+ +(0x[0-9a-f]+) `)
	fold := regexp.MustCompile(`^ +\.\.\. (?:this frame|these (\d+) frames) again, (\d+) times`)
	tid := ""
	for line := range strings.Lines(text) {
		if m := fold.FindStringSubmatch(line); m != nil {
			period, _ := strconv.Atoi(cmp.Or(m[1], "1"))
			times, _ := strconv.Atoi(m[2])
			list := threads[tid]
			threads[tid] = append(list, slices.Repeat(list[len(list)-period:], times)...)
		}
		if m := begin.FindStringSubmatch(line); m != nil {
			tid = m[1]
		}
		if m := frame.FindStringSubmatch(line); m != nil && !strings.HasSuffix(line, "(inlined)\n") {
			threads[tid] = append(threads[tid], m[1])
		}
	}
	return threads
}

// shallow leaves out the recursion, which would fill the message of a failed test.
func shallow(r result) result {
	r.stdout = regexp.MustCompile(`(?m)^#(?:[3-9]|\d\d|[12]\d\d) .* deep\+.*\n`).ReplaceAllString(r.stdout, "")
	return r
}

func euStack(t *testing.T, args ...string) map[string][]string {
	t.Helper()
	out, err := exec.Command("eu-stack", append([]string{"-n", "0"}, args...)...).Output()
	if len(out) == 0 {
		require.NoError(t, err)
	}
	return pcsOf(string(out))
}

// TestStackEuStack compares with elfutils: a deep stack, one in a handler on an alternate stack, and others.
func TestStackEuStack(t *testing.T) {
	program, pid := startStacks(t, 0, "-g")
	want := euStack(t, "-p", strconv.Itoa(pid))
	require.Len(t, want, 6)
	for _, flags := range [][]string{{"--merge=false"}, {"--merge=false", "--no-lines"}, {"--consistent"}} {
		r := stackOfBlocked(t, pid, want, append([]string{strconv.Itoa(pid)}, flags...)...)
		assert.Zero(t, r.code, r.stderr)
		assert.Equal(t, want, pcsOf(r.stdout), "%q", flags)
		assert.NotContains(t, r.stdout, "incomplete")
		assert.NotContains(t, r.stdout, "guessed")
	}
	testtool.WaitBlocked(t, pid, 6)
	r := shallow(ehasm(t, "stack", "-p", strconv.Itoa(pid)))
	for _, text := range []string{
		fmt.Sprintf("process %d (stacks)\n", pid), "(stacks), blocked in pause:\n", "(reader), blocked in read(",
		" pipe:[", "(locker), blocked in futex(0x",
		`(a;\x1b[1mb), blocked`, " deep+0x", " inner at ", "stacks.c:72 (inlined)\n", " __restore_rt+0x0 ",
		" interrupted+0x",
	} {
		assert.Contains(t, r.stdout, text)
	}
	assert.NotContains(t, r.stdout, "\x1b")

	testtool.WaitBlocked(t, pid, 6)
	core := filepath.Join(t.TempDir(), "core")
	out, err := exec.Command("gcore", "-o", core, strconv.Itoa(pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	core += fmt.Sprintf(".%d", pid)
	assert.Equal(t, want, euStack(t, "--core", core, "-e", program))
	for _, args := range [][]string{{core}, {core, program}} {
		r = ehasm(t, append([]string{"stack", "--merge=false"}, args...)...)
		assert.Zero(t, r.code, r.stderr)
		assert.Equal(t, want, pcsOf(r.stdout))
		r = shallow(r)
		assert.Contains(t, r.stdout, fmt.Sprintf("core of process %d (stacks): ", pid))
		assert.Contains(t, r.stdout, "stacks.c:72 (inlined)\n")
	}
	testPipe(t, core, program, want)
	testReplaced(t, core, program)
}

// testPipe: a core that comes by a pipe has the same stacks.
func testPipe(t *testing.T, core, program string, want map[string][]string) {
	for command, code := range map[string]int{`cat "$1" | "$0" stack --merge=false -`: exitDone,
		`cat "$1" | "$0" stack --merge=false - "$2"`: exitDone,
		`"$0" stack --merge=false - <"$1"`:           exitDone, `head -c 1000 "$1" | "$0" stack -`: exitFailed,
		`"$0" stack - </dev/null`: exitFailed} {
		cmd := exec.Command("bash", "-c", command, goBuild(t), core, program)
		out, err := cmd.Output()
		require.NotNil(t, cmd.ProcessState, "%v", err)
		require.Equal(t, code, cmd.ProcessState.ExitCode(), command)
		if code == exitDone {
			assert.Equal(t, want, pcsOf(string(out)), command)
		} else {
			assert.Empty(t, out)
			assert.Regexp(t, "^ehasm: standard input: .*core.*\n$", string(err.(*exec.ExitError).Stderr))
		}
	}
}

// testReplaced: code of another file than the one that was mapped is not used.
func testReplaced(t *testing.T, core, program string) {
	other := filepath.Join(t.TempDir(), "stacks")
	out, err := exec.Command("gcc", "-O2", "-pthread", "-o", other,
		filepath.Join("testdata", "stacks.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	r := ehasm(t, "stack", core, other)
	assert.Equal(t, exitFailed, r.code)
	assert.Empty(t, r.stdout)
	assert.Contains(t, r.stderr, "EXECUTABLE "+other+": it is not the program of the core: ")
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"))
	require.NoError(t, os.Rename(other, program))
	r = shallow(ehasm(t, "stack", core))
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stderr, program+": the file has another build-id now")
	assert.Contains(t, r.stdout, "    incomplete: object missing\n")
	assert.NotContains(t, r.stdout, "wait_forever")
}

// TestStackMerge: many threads with equal stacks are one group, in all formats.
func TestStackMerge(t *testing.T) {
	_, pid := startStacks(t, 30)
	r := ehasm(t, "stack", strconv.Itoa(pid))
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "\n31 threads, blocked in read; reader; ids ")
	assert.Equal(t, 36, strings.Count(ehasm(t, "stack", "--merge=false", strconv.Itoa(pid)).stdout, "\nthread "))
	folded := ehasm(t, "stack", "--format=folded", strconv.Itoa(pid))
	assert.Regexp(t, `(?m)^reader;.*;in_read;wait_forever;.*read.* 31$`, folded.stdout)
	assert.Equal(t, 36, strings.Count(ehasm(t, "stack", "--format=json", strconv.Itoa(pid)).stdout,
		`"end":"outermost frame"`))
	dir := t.TempDir()
	for name, begin := range map[string]string{"a.svg": "<?xml", "a.pb.gz": "\x1f\x8b", "a.txt": "process "} {
		path := filepath.Join(dir, name)
		r := ehasm(t, "stack", "-o", path, strconv.Itoa(pid))
		assert.Zero(t, r.code, r.stderr)
		assert.Equal(t, name != "a.txt", strings.HasPrefix(r.stderr, "ehasm: "+path+": "), r.stderr)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(b), begin), name)
	}
	// Between two looks the threads must block again, which takes each of them a moment of a CPU.
	r = ehasm(t, "stack", "--watch=300ms", "-n3", strconv.Itoa(pid))
	assert.Contains(t, r.stdout, ", looked at 3 times\n")
	assert.Contains(t, r.stdout, "\n93 times: 31 threads, blocked in read; reader; ids ")
}

// states returns the states of a process's threads: proc_pid_stat(5).
func states(t *testing.T, pid int) (letters string) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	for _, task := range tasks {
		if b, err := os.ReadFile(task); err == nil {
			_, rest, _ := strings.Cut(string(b), ") ")
			letters += rest[:1]
		}
	}
	return letters
}

// TestStackKilled: whenever ehasm is killed, no thread stays stopped.
func TestStackKilled(t *testing.T) {
	_, pid := startStacks(t, 20)
	prog := goBuild(t)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 40 {
		cmd := exec.Command(prog, "stack", "--no-lines", fmt.Sprintf("--consistent=%v", round%2 == 0),
			"--watch=100us", strconv.Itoa(pid))
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(random.IntN(int(60 * time.Millisecond)))) // any moment will do
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
		require.Eventually(t, func() bool { return states(t, pid) == strings.Repeat("S", 26) }, hang,
			time.Millisecond, "round %d", round)
	}
}

// TestStackSignals: signals that arrive while threads are looked at are delivered, each once, and a stopped process
// stays stopped.
func TestStackSignals(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(source, []byte(`#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile sig_atomic_t count;
static void handler(int s) { count++; }
int main(int argc, char **argv) {
	signal(SIGRTMIN, handler);
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (count == 3000)
			close(open(argv[1], O_CREAT | O_WRONLY, 0600)), count++;
	}
}
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	done := filepath.Join(dir, "done")
	pid := startTarget(t, program, done)
	ctx, stop := context.WithCancel(t.Context())
	looked := make(chan result)
	go func() { looked <- ehasmContext(t, ctx, "stack", "--no-lines", "--watch=100us", strconv.Itoa(pid)) }()
	require.Eventually(t, func() bool { return states(t, pid) == "t" }, hang, time.Millisecond, "no look begins")
	const rtmin = syscall.Signal(34) // glibc keeps two for itself
	for range 3000 {
		// the queue has a bound
		require.Eventually(t, func() bool { return syscall.Kill(pid, rtmin) == nil }, hang, time.Millisecond)
		runtime.Gosched()
	}
	waitForFile(t, done)
	stop()
	r := <-looked
	assert.Contains(t, r.stdout, "running")

	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool { return states(t, pid) == "T" }, hang, time.Millisecond)
	r = ehasm(t, "stack", strconv.Itoa(pid))
	assert.Regexp(t, `, stopped by a signal:\n(#    in the kernel .*\n)*#0 `, r.stdout)
	require.Eventually(t, func() bool { return states(t, pid) == "T" }, hang, time.Millisecond,
		"it is woken to stop again")
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.Eventually(t, func() bool { return states(t, pid) == "R" }, hang, time.Millisecond)
}

// TestStackRefused: what may not be looked at is named, with what helps.
func TestStackRefused(t *testing.T) {
	_, pid := startStacks(t, 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.PtraceSeize(pid))
	r := ehasm(t, "stack", strconv.Itoa(pid))
	assert.Equal(t, exitFailed, r.code)
	assert.Empty(t, r.stdout)
	assert.Regexp(t, fmt.Sprintf(`^ehasm: process %d: ptrace: operation not permitted: process %d \(.*\) traces it; end that debugger`, pid, os.Getpid()), r.stderr)
	assert.Equal(t, 1, strings.Count(r.stderr, "\n"))
	require.NoError(t, unix.PtraceInterrupt(pid))
	_, err := unix.Wait4(pid, nil, unix.WALL, nil)
	require.NoError(t, err)
	require.NoError(t, unix.PtraceDetach(pid))

	other := 1 // of root
	cmd := exec.Command(goBuild(t), "stack", strconv.Itoa(other))
	if os.Getuid() == 0 {
		open := filepath.Join(os.TempDir(), fmt.Sprintf("ehasm-stack-test-%d", os.Getpid()))
		b, err := os.ReadFile(cmd.Path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(open, b, 0o755))
		defer os.Remove(open)
		cmd.Path = open
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), "process 1: ptrace: ")
	assert.Contains(t, string(out), "the process belongs to user 0; be root")
	assert.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
}

// TestStackWrong: wrong arguments and files are one line.
func TestStackWrong(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no core"), 0o666))
	self, err := os.Executable()
	require.NoError(t, err)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "want a PID or a core"},
		{"0", exitUsage, "PID 0: want a number from 1"},
		{"99999999999", exitUsage, "PID \"99999999999\": want a number below 2^31"},
		{"1 core", exitUsage, "want processes or a core"},
		{"a b c", exitUsage, "want CORE and EXECUTABLE only"},
		{"-n 2 1", exitUsage, "--rounds has no effect without --watch"},
		{"--watch=-1s 1", exitUsage, "want a time above 0"},
		{"--watch=1s 1 2", exitUsage, "--watch: want one PID"},
		{"-a 1", exitUsage, "--all has all processes: want no other"},
		{"-a --name x", exitUsage, "--all has all processes: want no other"},
		{"-a core", exitUsage, "want processes, not a core"},
		{"--children", exitUsage, "--children: want a PID or --name"},
		{"--children --watch=1s 1", exitUsage, "--watch: want one PID"},
		{"--name=a[", exitUsage, "--name: error parsing regexp"},
		{"--name=^no/such$", exitFailed, "none has a name that matches \"^no/such$\""},
		{"--core-pattern 1", exitUsage, "want PID and TID"},
		{"--core-pattern 1 0", exitUsage, "PID 0: want a number from 1"},
		{"--core-pattern 1 1 --", exitUsage, "want a HANDLER after --"},
		{"--core-pattern --no-lines 1 1", exitUsage, "--no-lines has no effect with --core-pattern"},
		{"--core-pattern --format=svg 1 1", exitUsage, "are text or json"},
		{"--consistent core", exitUsage, "need a process"},
		{"--format=x 1", exitUsage, "unknown format \"x\""},
		{"--merge --format=json 1", exitUsage, "--merge has no effect in the format json"},
		{"2147483647", exitFailed, "process 2147483647: there is no such process"},
		{dir, exitFailed, "it is no regular file"},
		{text, exitFailed, "not a core file of an x86-64 program: it has 7 bytes"},
		{self, exitFailed, "not a core file of an x86-64 program: its type is ET_"},
		{filepath.Join(dir, "absent"), exitFailed, "no such file"},
	} {
		r := ehasm(t, append([]string{"stack"}, strings.Fields(c.args)...)...)
		assert.Equal(t, c.code, r.code, c.args)
		assert.Empty(t, r.stdout, c.args)
		assert.Contains(t, r.stderr, c.want, c.args)
	}
	out := filepath.Join(dir, "out.svg")
	assert.Equal(t, exitFailed, ehasm(t, "stack", "-o", out, text).code)
	assert.NoFileExists(t, out)
}

// TestStackMany: several processes, those of a name, their children and all, by pgrep(1)'s and ps(1)'s answers.
func TestStackMany(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), fmt.Sprintf("nap%d", os.Getpid()))
	require.NoError(t, os.Symlink(sleep, name))
	parent := exec.Command("bash", "-c", `"$0" 1000 & "$0" 1000 & echo ready; wait`, name)
	from, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	t.Cleanup(func() {
		exec.Command("pkill", "-P", fmt.Sprint(parent.Process.Pid)).Run()
		parent.Process.Kill()
		parent.Wait()
	})
	_, err = bufio.NewReader(from).ReadString('\n')
	require.NoError(t, err)
	var naps []string
	require.Eventually(t, func() bool {
		out, _ := exec.Command("pgrep", "^"+filepath.Base(name)+"$").Output()
		naps = strings.Fields(string(out))
		for _, pid := range naps {
			// clock_nanosleep
			if b, err := os.ReadFile("/proc/" + pid + "/syscall"); err != nil || !strings.HasPrefix(string(b), "230 ") {
				return false
			}
		}
		return len(naps) == 2
	}, hang, time.Millisecond)
	self := fmt.Sprint(parent.Process.Pid)
	pids := func(args ...string) []string {
		r := ehasm(t, append([]string{"stack", "--no-lines"}, args...)...)
		assert.Zero(t, r.code, r.stderr)
		var list []string
		for _, m := range regexp.MustCompile(`(?m)^process (\d+) \(`).FindAllStringSubmatch(r.stdout, -1) {
			list = append(list, m[1])
		}
		return list
	}
	assert.Equal(t, naps, pids("--name", "^"+filepath.Base(name)+"$"))
	assert.Equal(t, append([]string{self}, naps...), pids("--children", self))
	assert.Equal(t, []string{naps[1], naps[0]}, pids(naps[1], "-p", naps[1], naps[0]))
	assert.Equal(t, []string{self, naps[0], naps[1]}, pids("--children", "--name", filepath.Base(name), self))
	folded := ehasm(t, "stack", "--format=folded", "--name", filepath.Base(name))
	assert.Regexp(t, `(?m)^nap.*nanosleep.* 2$`, folded.stdout)

	r := ehasm(t, "stack", naps[0], "2147483647")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stdout, "process "+naps[0])
	assert.Equal(t, "ehasm: process 2147483647: there is no such process\n", r.stderr)
}

// TestStackKernel: for root, stacks begin in the kernel, as /proc says.
func TestStackKernel(t *testing.T) {
	_, pid := startStacks(t, 0)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stack", pid))
	r := ehasm(t, "stack", "--merge=false", "--no-lines", fmt.Sprint(pid))
	assert.Zero(t, r.code, r.stderr)
	if err != nil {
		assert.NotContains(t, r.stdout, "in the kernel  ")
		return
	}
	want := fmt.Sprintf("thread %d (stacks), blocked in pause:\n", pid)
	for line := range strings.Lines(string(b)) {
		want += "#    in the kernel      " + regexp.MustCompile(`\S+\+0x[0-9a-f]+`).FindString(line) + "\n"
	}
	assert.Contains(t, r.stdout, want+"#0   0x")
	folded := ehasm(t, "stack", "--format=folded", fmt.Sprint(pid))
	assert.Regexp(t, `(?m)^stacks;.*;main;.*pause;.*entry_SYSCALL_64_after_hwframe.* 1$`, folded.stdout)
}

// TestStackAll: -a has all processes but itself. It runs in a PID namespace, to look at no other test's.
func TestStackAll(t *testing.T) {
	testtool.NeedRoot(t, "for a PID namespace")
	prog := goBuild(t)
	// Not --mount-proc: that changes the root's propagation, which a chroot that is no mount point does not have.
	out, err := exec.Command("unshare", "--pid", "--fork", "--mount", "--propagation", "unchanged", "--kill-child",
		"bash", "-c",
		`mount --make-private /proc && mount -t proc proc /proc || exit
		sleep 1000 & bash -c 'exec -a other sleep 1000' & until [ "$(pgrep -c '^sleep$')" = 2 ]; do :; done
		pgrep . | tr '\n' ' '; echo; "$0" stack --no-lines -a; echo "status $?"`, prog).Output()
	require.NoError(t, err, "%s", out)
	list, shown, _ := strings.Cut(string(out), "\n")
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^process (\d+) `).FindAllStringSubmatch(shown, -1) {
		got = append(got, m[1])
	}
	assert.Len(t, got, 3)
	for _, pid := range got { // pgrep has also seen the subshell's tr
		assert.Contains(t, strings.Fields(list), pid)
	}
	assert.Contains(t, shown, "process 1 (bash)\n")
	assert.Equal(t, 2, strings.Count(shown, " (sleep), "))
	assert.True(t, strings.HasSuffix(shown, "\nstatus 0\n"), shown)
}

// TestStackNoProc: without /proc the message does not deny that the process is there.
func TestStackNoProc(t *testing.T) {
	testtool.NeedRoot(t, "for chroot")
	root := t.TempDir()
	prog, err := os.ReadFile(goBuild(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "ehasm"), prog, 0o755))
	for args, who := range map[string]string{"stack 1": "process 1", "stack -a": "processes",
		"build --pid 1": "process 1"} {
		cmd := exec.Command("/ehasm", strings.Fields(args)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		cmd.Dir = "/"
		out, _ := cmd.CombinedOutput()
		assert.Equal(t, "ehasm: "+who+": /proc, where the kernel shows processes, is not mounted\n", string(out))
	}
}

// TestHiddenProcess: where /proc hides other users' processes, no message denies that they are there.
func TestHiddenProcess(t *testing.T) {
	testtool.NeedRoot(t, "to mount /proc")
	_, pid := startStacks(t, 0)
	prog := goBuild(t)
	out, err := exec.Command("unshare", "--mount", "--propagation", "unchanged", "bash", "-c",
		`mount --make-private /proc && mount -t proc -o hidepid=2 proc /proc || exit
		cd / # the test's folder may be closed to the other user
		for args in "stack $1" "record -p $1 -d 1 --format=folded -o /dev/null" "build --pid $1"; do
			setpriv --reuid 65534 --regid 65534 --clear-groups "$0" $args 2>&1
		done; exit 0`, prog, fmt.Sprint(pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	hidden := fmt.Sprintf("process %d: /proc hides this process from you (hidepid): "+
		"be root, or in the group that its option gid names\n", pid)
	assert.Equal(t, "ehasm: "+hidden+"ehasm: record: "+hidden+"ehasm: "+hidden, string(out))
}
