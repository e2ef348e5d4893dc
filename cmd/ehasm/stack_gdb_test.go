//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gdbFrames prints the pcs of all threads as ehasm stack does, without inlined functions and those that left by a jump.
const gdbFrames = `
import gdb
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
for thread in gdb.selected_inferior().threads():
    thread.switch()
    print("thread", thread.ptid[1])
    frame = gdb.newest_frame()
    while frame:
        if frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):
            print("#0 0x%016x " % frame.pc())
        frame = frame.older()
`

// gdbStacks returns the pcs that gdb finds. args say of what.
func gdbStacks(t *testing.T, args ...string) map[string][]string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "frames.py")
	require.NoError(t, os.WriteFile(script, []byte(gdbFrames), 0o666))
	out, err := exec.Command("gdb", append([]string{"-q", "-batch", "-iex", "set debuginfod enabled off", "-x", script},
		args...)...).Output()
	require.NoError(t, err, "%s", out)
	stacks := pcsOf(string(out))
	delete(stacks, "") // the frame that it shows first
	return stacks
}

// TestStackGdb compares with gdb: a static program, live and as a core, and a child of vfork.
func TestStackGdb(t *testing.T) {
	program, pid := startStacks(t, 600, "-static")
	core := filepath.Join(t.TempDir(), "core")
	out, err := exec.Command("gcore", "-o", core, strconv.Itoa(pid)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	core += fmt.Sprintf(".%d", pid)
	testtool.WaitBlocked(t, pid, 606)
	want := gdbStacks(t, "-p", strconv.Itoa(pid))
	require.Len(t, want, 606)
	for _, args := range [][]string{{strconv.Itoa(pid)}, {core}, {"--consistent", strconv.Itoa(pid)}} {
		r := stackOfBlocked(t, pid, want, append([]string{"--merge=false", "--no-lines"}, args...)...)
		assert.Zero(t, r.code, r.stderr)
		assert.Equal(t, want, pcsOf(r.stdout), "%q", args)
	}
	assert.Equal(t, want, gdbStacks(t, program, core))
	testVfork(t)
}

// stackOfBlocked is ehasm stack of the program of startStacks, while its threads are blocked. It stops a thread with a
// deep stack twice, and may find it on the way back to its system call: then it looks again.
func stackOfBlocked(t *testing.T, pid int, want map[string][]string, args ...string) (r result) {
	t.Helper()
	for range 10 {
		testtool.WaitBlocked(t, pid, len(want))
		r = ehasm(t, append([]string{"stack"}, args...)...)
		if reflect.DeepEqual(want, pcsOf(r.stdout)) {
			break
		}
	}
	return r
}

// testVfork: a child of vfork runs on its parent's stack, and its parent cannot be stopped.
func testVfork(t *testing.T) {
	program := filepath.Join(t.TempDir(), "vfork")
	source := program + ".c"
	require.NoError(t, os.WriteFile(source, []byte(`#include <unistd.h>
__attribute__((noinline)) static void child(void) {
	write(1, "ready\n", 6);
	for (;;)
		pause();
}
int main(void) {
	if (vfork() == 0)
		child();
	return 0;
}
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	parent := startTarget(t, program)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	require.NoError(t, err)
	child := strings.TrimSpace(string(children))
	t.Cleanup(func() { exec.Command("kill", "-9", child).Run() })
	require.Eventually(t, func() bool {
		b, err := os.ReadFile("/proc/" + child + "/syscall")
		return err == nil && strings.HasPrefix(string(b), "34 ") // pause
	}, hang, time.Millisecond)
	want := gdbStacks(t, "-p", child)
	require.Len(t, want, 1)
	r := ehasm(t, "stack", "--children", strconv.Itoa(parent))
	assert.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, "    no stack: it did not stop in time\n")
	got := pcsOf(r.stdout)
	assert.Equal(t, want[child], got[child])
	assert.Contains(t, r.stdout, " child+0x")
}

// TestStackMusl: code without unwind information, as musl's, has rows made from it, so that stacks are whole; gdb
// and eu-stack end at the first or second frame.
func TestStackMusl(t *testing.T) {
	program := filepath.Join(t.TempDir(), "musl")
	out, err := exec.Command("musl-gcc", "-O1", "-g", "-static", "-o", program,
		filepath.Join("testdata", "stacks.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	pid := startTarget(t, program)
	r := ehasm(t, "stack", "--merge=false", strconv.Itoa(pid))
	assert.Zero(t, r.code, r.stderr)
	r = shallow(r)
	for _, name := range []string{" main at ", " in_read at ", " in_lock at ", " in_handler at ", " in_deep at ",
		" in_inlined at "} {
		assert.Equal(t, 1, strings.Count(r.stdout, strings.Replace(name, " at ", "+", 1)), "%s\n%s", name, r.stdout)
	}
	assert.NotContains(t, r.stdout, "guessed")
}
