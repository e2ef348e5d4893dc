//go:build linux && amd64

package recorder

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onStderr is a console that writes lines.
type onStderr struct{ talk }

func (*onStderr) Note(name string, err error) { fmt.Fprintf(os.Stderr, "%s: %v\n", name, err) }

// TestNohup: a hangup that was ignored when the recorder began stays so, for the command too, and does not end it.
func TestNohup(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	signal.Ignore(syscall.SIGHUP)
	s := catchWriteSignals(&onStderr{})
	defer s.stop()
	assert.True(t, signal.Ignored(syscall.SIGHUP))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGHUP))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	assert.Equal(t, syscall.SIGTERM, <-s.recording, "the first signal that arrives")
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
	require.NoError(t, err)
	assert.Regexp(t, `SigIgn:\s+[0-9a-f]{15}1\n`, string(out))
}

// writingIn has a process of this test's program stand for record while it writes.
const writingIn = "EHASM_TEST_WRITING_IN"

// TestSignalsWhileWriting: the first signal that comes then does not lose the profile;
// the second does, and leaves no temporary file.
func TestSignalsWhileWriting(t *testing.T) {
	if path := os.Getenv(writingIn); path != "" {
		f, err := output.CreateOutput(path, output.PermText)
		require.NoError(t, err)
		_, err = f.Write([]byte("some"))
		require.NoError(t, err)
		s := catchWriteSignals(&onStderr{})
		defer s.guard(f)()
		s.writing(true)
		os.Stderr.WriteString("ready\n")
		io.Copy(io.Discard, os.Stdin)
		require.NoError(t, f.Commit())
		return
	}
	testtool.CatchIgnored()
	for _, twice := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "p")
		require.NoError(t, os.WriteFile(path, []byte("keep"), 0o666))
		cmd := exec.Command(os.Args[0], "-test.run=^TestSignalsWhileWriting$")
		cmd.Env = append(os.Environ(), writingIn+"="+path)
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		stderr, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		until := func(text string) {
			t.Helper()
			var said []byte
			for b := make([]byte, 1); !bytes.Contains(said, []byte(text)); said = append(said, b...) {
				_, err := stderr.Read(b)
				require.NoError(t, err, "%s", said)
			}
		}
		until("ready\n")
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		until("interrupted: the profile is being written; once more to give up\n")
		want, status := "some", 0
		if twice {
			want, status = "keep", host.BySignal+int(syscall.SIGHUP)
			require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		} else {
			require.NoError(t, stdin.Close())
		}
		cmd.Wait()
		assert.Equal(t, status, cmd.ProcessState.ExitCode())
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(b))
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, left, 1)
	}
}

// TestSignalRepeated: what timeout(1) sends twice is one signal; a later one, and another, are further ones.
func TestSignalRepeated(t *testing.T) {
	begin := time.Now()
	s := &writeSignals{recording: make(chan os.Signal, 8)}
	for _, c := range []struct {
		got   os.Signal
		after time.Duration
		seen  int
	}{
		{syscall.SIGTERM, 0, 1}, {syscall.SIGTERM, time.Millisecond, 1}, {syscall.SIGTERM, host.Repeated - 1, 1},
		{syscall.SIGTERM, host.Repeated, 2}, {syscall.SIGINT, host.Repeated + 1, 3},
	} {
		s.take(c.got, begin.Add(c.after))
		assert.Equal(t, c.seen, s.seen, c)
		assert.Len(t, s.recording, c.seen)
	}
}
