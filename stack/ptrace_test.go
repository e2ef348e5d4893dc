//go:build linux && amd64

package stack

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hang bounds waits for what happens at once on an idle machine.
const hang = time.Minute

// TestReleaseSignal: a signal that stops a thread before the interruption does is delivered.
func TestReleaseSignal(t *testing.T) {
	cmd := exec.Command("bash", "-c", `trap 'echo got; exit' USR1; echo ready; while :; do :; done`)
	from, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	lines := bufio.NewReader(from)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	pid := cmd.Process.Pid
	var h held
	var stopped bool
	onThread(func() {
		if err = unix.PtraceSeize(pid); err != nil {
			return
		}
		if err = unix.Kill(pid, unix.SIGUSR1); err != nil {
			return
		}
		for begin := time.Now(); !stopped && time.Since(begin) < hang; {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			stopped = strings.Contains(string(b), ") t ")
		}
		if err = unix.PtraceInterrupt(pid); err != nil {
			return
		}
		if h, err = await(pid, time.Now().Add(hang)); err != nil {
			return
		}
		h.release()
	})
	require.NoError(t, err)
	assert.True(t, stopped)
	assert.Equal(t, int(unix.SIGUSR1), h.signal)
	line, err = lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "got\n", line)
}

// TestAwaitLate: a thread that does not stop is not waited for, and goes on when the tracer has ended.
func TestAwaitLate(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	pid := cmd.Process.Pid
	var err error
	onThread(func() {
		if err = unix.PtraceSeize(pid); err == nil { // it is not interrupted
			_, err = await(pid, time.Now())
		}
	})
	assert.Equal(t, errLate, err)
	onThread(func() {
		for begin := time.Now(); time.Since(begin) < hang; {
			if err = interrupt(pid); err == nil { // nothing else traces it any more
				return
			}
		}
	})
	assert.NoError(t, err)
}

// TestAwaitRunnable: a thread that waits for a CPU is waited for, up to a bound; one that is blocked is not.
func TestAwaitRunnable(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	pid := cmd.Process.Pid
	const rounds = 3
	for _, c := range []struct {
		hungry time.Duration
		want   error
	}{{hang, nil}, {0, errLate}} {
		var err error
		asked := 0
		onThread(func() {
			for begin := time.Now(); time.Since(begin) < hang; { // the thread before may not have ended
				if err = unix.PtraceSeize(pid); err == nil {
					break
				}
			}
			s := newStops()
			s.left, s.hungry = time.Millisecond, c.hungry
			s.runnable = func(int32) bool {
				if asked++; asked == rounds {
					err = unix.PtraceInterrupt(pid) // it gets its CPU
				}
				return true
			}
			if err == nil {
				_, err = s.await(int32(pid))
			}
			assert.Equal(t, c.want != nil, s.stuck[int32(pid)])
		})
		assert.Equal(t, c.want, err)
		if c.want == nil {
			assert.GreaterOrEqual(t, asked, rounds) // its CPU may come late
		}
	}
	require.Eventually(t, func() bool { return !runnable(int32(pid)) }, hang, time.Millisecond)
	busy := exec.Command("bash", "-c", "while :; do :; done")
	require.NoError(t, busy.Start())
	defer func() {
		busy.Process.Kill()
		busy.Wait()
	}()
	require.Eventually(t, func() bool { return runnable(int32(busy.Process.Pid)) }, hang, time.Millisecond)
	assert.False(t, runnable(1<<31-1))
}
