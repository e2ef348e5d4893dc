//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordChildren: -p records the children that a process has already, those of its threads, and their children.
func TestRecordChildren(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "a.c"), filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(source, []byte(`#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) void child(void) { for (;;) ; }
__attribute__((noinline)) void grandchild(void) { for (;;) ; }
void *forks(void *none) {
	if (fork() == 0) {
		if (fork() == 0) {
			close(open("ready", O_CREAT | O_WRONLY, 0600));
			grandchild();
		}
		child();
	}
	for (;;) pause();
}
int main(void) {
	pthread_t t;
	pthread_create(&t, 0, forks, 0);
	for (;;) pause();
}
`), 0o666))
	out, err := exec.Command("gcc", "-O1", "-pthread", "-o", program, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	master := exec.Command(program)
	master.Dir, master.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, master.Start())
	defer func() {
		syscall.Kill(-master.Process.Pid, syscall.SIGKILL)
		master.Wait()
	}()
	waitForFile(t, filepath.Join(dir, "ready"))
	r := recordIn(t, dir, "-p", strconv.Itoa(master.Process.Pid), "--duration", "1s", "-o", "p.folded")
	assert.Contains(t, r.stderr, fmt.Sprintf("process %d and children: recording for 1s; ^C ends it\n",
		master.Process.Pid))
	assert.Zero(t, r.code, r.stderr)
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(b), ";child ")
	assert.Contains(t, string(b), ";grandchild ")
}

// TestRecordNothing: a recording without samples says why; it is a failure unless a command's status is passed on.
func TestRecordNothing(t *testing.T) {
	dir := t.TempDir()
	idle := exec.Command("sleep", "1000")
	require.NoError(t, idle.Start())
	defer func() {
		idle.Process.Kill()
		idle.Wait()
	}()
	pid := strconv.Itoa(idle.Process.Pid)
	for _, args := range [][]string{{"record", "-o", "p.folded"}, {"agent", "--every", "1s", "-o", "profiles"},
		{"agent", "--flight", "1s", "-o", "p.folded"}, {"record", "-q", "-o", "p.svg"}} {
		r := outputOf(verbCommand(t, dir, args[0], append(args[1:], "-p", pid, "--duration", "100ms")...))
		assert.Equal(t, exitFailed, r.code, "%q", args)
		assert.Contains(t, r.stderr, "no samples: process "+pid+" and children used no processor time", "%q", args)
		assert.Contains(t, r.stderr, "'ehasm record --off-cpu'", "%q", args)
	}
	r := recordIn(t, dir, "-F", "1", "-o", "p.folded", "sh", "-c", "exit 3")
	assert.Equal(t, 3, r.code)
	assert.Contains(t, r.stderr, "no samples: sh used less processor time")
	r = recordIn(t, dir, "-q", "-F", "1", "-o", "p.folded", "sh", "-c", "exit 0")
	assert.Zero(t, r.code)
	assert.Empty(t, r.stderr)
}
