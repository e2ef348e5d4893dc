//go:build linux && amd64

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/atomicfile"
)

// TestRecordRawFull: a file that --raw cannot write whole keeps what it had; and one that it
// can is replaced, with its folder as it was.
func TestRecordRawFull(t *testing.T) {
	dir := t.TempDir()
	raw := writeFile(t, filepath.Join(dir, "raw"), []byte("keep"))
	sh := func(limit string) (string, int) {
		cmd := recordCommand(t, dir, "-q", "--cache=false", "-o", "p.folded", "--raw", raw, "sh", "-c", busy)
		cmd.Args = append([]string{"sh", "-c", limit + `exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	said, status := sh("ulimit -f 16; ")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, said, "raw: cannot write: file too large")
	b, err := os.ReadFile(raw)
	require.NoError(t, err)
	assert.Equal(t, "keep", string(b))
	assert.Equal(t, []string{"p.folded", "raw"}, files(t, dir))

	said, status = sh("")
	assert.Zero(t, status, said)
	b, err = os.ReadFile(raw)
	require.NoError(t, err)
	assert.Equal(t, "PERFILE2", string(b[:8]))
	assert.Equal(t, []string{"p.folded", "raw"}, files(t, dir))
}

// writingIn has a process of this test's program stand for record while it writes.
const writingIn = "EHASM_TEST_WRITING_IN"

// TestRecordSignalsWhileWriting: the first signal that comes then does not lose the profile;
// the second does, and leaves no temporary file.
func TestRecordSignalsWhileWriting(t *testing.T) {
	if path := os.Getenv(writingIn); path != "" {
		f, err := atomicfile.CreateOutput(path, atomicfile.PermText)
		require.NoError(t, err)
		_, err = f.Write([]byte("some"))
		require.NoError(t, err)
		s := catchWriteSignals(newConsole(os.Stdout, os.Stderr))
		defer s.guard(f)()
		s.writing()
		os.Stderr.WriteString("ready\n")
		io.Copy(io.Discard, os.Stdin)
		require.NoError(t, f.Commit())
		return
	}
	for _, twice := range []bool{false, true} {
		dir := t.TempDir()
		path := writeFile(t, filepath.Join(dir, "p"), []byte("keep"))
		cmd := exec.Command(os.Args[0], "-test.run=^TestRecordSignalsWhileWriting$")
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
			want, status = "keep", exitBySignal+int(syscall.SIGHUP)
			require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
		} else {
			require.NoError(t, stdin.Close())
		}
		cmd.Wait()
		assert.Equal(t, status, cmd.ProcessState.ExitCode())
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(b))
		assert.Equal(t, []string{"p"}, files(t, dir))
	}
}
