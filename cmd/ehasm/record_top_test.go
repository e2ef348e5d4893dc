//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// typesQ runs a program on its own terminal, types q when the screen shows a text, and
// prints what has been shown; it exits as the program does.
const typesQ = `
import os, pty, select, sys, time
want, args = sys.argv[1].encode(), sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(args[0], args)
seen, typed, end = b"", False, time.time() + 30
while time.time() < end:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            b = os.read(fd, 65536)
        except OSError:
            break
        if not b:
            break
        seen += b
    if want in seen and not typed:
        os.write(fd, b"q")
        typed = True
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if typed else 99)
`

// TestRecordTop: functions are shown on a terminal; q ends the command and leaves the terminal
// as it was, and what was recorded is written if that is wanted.
func TestRecordTop(t *testing.T) {
	dir := t.TempDir()
	inner := verbCommand(t, dir, "top", "-o", "p.folded", "--", "sh", "-c",
		"trap 'exit 5' TERM; while :; do i=$((i+1)); done")
	cmd := exec.Command("python3", append([]string{"-c", typesQ, "whole"}, inner.Args...)...)
	cmd.Dir, cmd.Env = dir, append(inner.Env, "TERM=xterm", "LINES=30", "COLUMNS=100")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "the command's status is not 0")
	assert.Equal(t, 5, cmd.ProcessState.ExitCode(), string(out))
	assert.Contains(t, string(out), "whole")
	assert.Greater(t, bytes.LastIndex(out, []byte("\x1b[?1049l")), bytes.LastIndex(out, []byte("whole")),
		"the terminal is given back")
	folded, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	assert.Contains(t, string(folded), "sh;")
}

// TestRecordTopNoTerminal: it says what to do instead, and runs nothing.
func TestRecordTopNoTerminal(t *testing.T) {
	dir := t.TempDir()
	cmd := verbCommand(t, dir, "top", "--", "touch", "ran")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, exitFailed, cmd.ProcessState.ExitCode())
	assert.Equal(t, "ehasm: top: there is no terminal here; 'ehasm record -d 10 -o flame.svg' makes a picture instead\n",
		string(out))
	assert.Empty(t, files(t, dir))

	for _, args := range [][]string{{"--every", "1s", "-o", "d"}, {"--flight", "1m"}, {"-e", "off-cpu"},
		{"-e", "page-faults,cpu-clock"}, {"--raw", "x"},
		{"-o", "-"}} {
		r := ehasm(t, append(append([]string{"top"}, args...), "--", "true")...)
		assert.Equal(t, exitUsage, r.code, args)
	}
}
