//go:build linux && amd64

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/profile/recorder"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/unwind"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordEvery writes profiles while the recording goes on; together they have all
// samples.
func TestRecordEvery(t *testing.T) {
	dir := t.TempDir()
	r := agentIn(t, dir, "--every", "1s", "-o", "out", "--stats", "stats", "sh", "-c", busy+"sleep 1.1; "+busy+"exit 3")
	assert.Equal(t, 3, r.code, r.stderr)
	found, err := filepath.Glob(filepath.Join(dir, "out", "ehasm-*.pb.gz"))
	require.NoError(t, err)
	require.Greater(t, len(found), 1)
	told, got := 0, 0
	for line := range strings.Lines(r.stderr) {
		_, rest, ok := strings.Cut(line, ".pb.gz: ")
		if !ok {
			continue // such as what this user may not record
		}
		n := 0
		_, err := fmt.Sscanf(rest, "%d samples of", &n)
		require.NoError(t, err, line)
		told += n
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		p, err := profile.ParseData(b)
		require.NoError(t, err)
		for _, s := range p.Sample {
			got += int(s.Value[0])
		}
	}
	assert.Equal(t, told, got)
	assert.Greater(t, got, 50)
	var stats struct {
		Samples int
		Seconds float64
		Stacks  int            `json:"distinct_stacks"`
		Ends    map[string]int `json:"stacks_by_end"`
		Writing int            `json:"writing_ns"`
	}
	b, err := os.ReadFile(filepath.Join(dir, "stats"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &stats))
	assert.Equal(t, got, stats.Samples)
	assert.Greater(t, stats.Seconds, 1.1)
	assert.Positive(t, stats.Stacks)
	assert.Positive(t, stats.Ends[unwind.Outermost.String()])
	assert.Positive(t, stats.Writing)
}

// TestRecordInterruptedTwice: a second interrupt ends a recorder that cannot write its profile,
// since no process reads the FIFO.
func TestRecordInterruptedTwice(t *testing.T) {
	for _, command := range []bool{false, true} {
		dir := t.TempDir()
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "p"), 0o600))
		idle := exec.Command("sleep", "1000")
		require.NoError(t, idle.Start())
		defer func() {
			idle.Process.Kill()
			idle.Wait()
		}()
		args := []string{"-p", strconv.Itoa(idle.Process.Pid)}
		if command {
			args = []string{"sh", "-c", "touch ready; while :; do :; done"}
		}
		cmd := recordCommand(t, dir, append([]string{"--format", "folded", "-o", "p"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		require.NoError(t, cmd.Start())
		waitForRings(t, cmd)
		if command {
			waitForFile(t, filepath.Join(dir, "ready"))
		}
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		require.Eventually(t, func() bool { return opens(cmd.Process.Pid) }, time.Minute, 5*time.Millisecond)
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		for wait := time.Minute; ; wait -= host.Repeated {
			if wait <= 0 {
				cmd.Process.Kill()
			}
			select {
			case <-ended:
			case <-time.After(host.Repeated): // one that comes earlier is the first again
				cmd.Process.Signal(os.Interrupt)
				continue
			}
			break
		}
		assert.Equal(t, host.BySignal+int(syscall.SIGINT), cmd.ProcessState.ExitCode())
	}
}

// opens reports whether a thread of a process is in openat(2).
func opens(pid int) bool {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	return slices.ContainsFunc(calls, func(path string) bool {
		b, _ := os.ReadFile(path)
		return bytes.HasPrefix(b, fmt.Appendf(nil, "%d ", syscall.SYS_OPENAT))
	})
}

// TestRecordFlight has what is kept written while the recording goes on, and again at its
// end.
func TestRecordFlight(t *testing.T) {
	dir := t.TempDir()
	cmd := verbCommand(t, dir, "agent", "--flight", "1m", "-o", "f.folded", "sh", "-c",
		busy+"touch ready; until [ -e go ]; do sleep 0.01; done")
	require.NoError(t, cmd.Start())
	waitForFile(t, filepath.Join(dir, "ready"))
	r := ehasm(t, "agent", "--dump", strconv.Itoa(cmd.Process.Pid))
	assert.Equal(t, exitDone, r.code, r.stderr)
	var found []string
	require.Eventually(t, func() bool {
		found, _ = filepath.Glob(filepath.Join(dir, "f-*.folded"))
		return len(found) == 1
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o666))
	require.NoError(t, cmd.Wait())
	for _, path := range append(found, filepath.Join(dir, "f.folded")) {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(b), "sh;")
	}
	r = ehasm(t, "agent", "--dump", strconv.Itoa(os.Getpid()))
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "not an agent with --flight")
}

func TestRecordContinuousMisuse(t *testing.T) {
	for text, args := range map[string][]string{
		"exclude each other":            {"--every", "1s", "--flight", "1s", "-o", "x", "true"},
		"want at least 1s":              {"--every", "1ms", "-o", "x", "true"},
		"name a folder":                 {"--every", "1s", "true"},
		"what becomes of profiles":      {"true"},
		"off-cpu is for record":         {"-e", "off-cpu", "--flight", "1m", "true"},
		"unknown flag: --raw":           {"--raw", "x", "--flight", "1m", "true"},
		"agent writes files":            {"--flight", "1m", "-o", "-", "true"},
		"several events are for record": {"-e", "page-faults,cpu-clock", "--push", "http://h", "true"},
		"--dump and a command exclude":  {"--dump", "1", "true"},
	} {
		r := ehasm(t, append([]string{"agent"}, args...)...)
		assert.Equal(t, exitUsage, r.code, "%q", args)
		assert.Contains(t, r.stderr, text)
	}
	help := ehasm(t, "agent", "--help").stdout
	assert.Contains(t, help, "with --every, the folder")
	assert.NotContains(t, help, "-: text", "it is refused")
}

// TestRecordPush sends profiles to a server that is not there at first, and keeps what it
// cannot send.
func TestRecordPush(t *testing.T) {
	var mu sync.Mutex
	samples, calls := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		assert.Equal(t, "shop", r.URL.Query().Get("name"))
		assert.Equal(t, "b", r.URL.Query().Get("zone"))
		assert.Equal(t, "Bearer x", r.Header.Get("Authorization"))
		p, err := profile.Parse(r.Body)
		assert.NoError(t, err)
		for _, s := range p.Sample {
			samples += int(s.Value[0])
		}
	}))
	dir := t.TempDir()
	args := []string{"--push", server.URL, "--push-as", "pprof", "--push-name", "shop", "--push-label", "zone=b",
		"--push-header", "Authorization: Bearer x", "--every", "1s"}
	r := agentIn(t, dir, append(args, "sh", "-c", busy+"exit 3")...)
	assert.Equal(t, 3, r.code, r.stderr)
	assert.Regexp(t, `--push: [1-9]\d* profiles sent, 0 not, 1 tries again`, r.stderr)
	assert.Greater(t, samples, 10, "a faster machine takes fewer")
	assert.NoFileExists(t, filepath.Join(dir, "profile.pb.gz"))

	server.Config.Handler = http.NotFoundHandler()
	r = agentIn(t, dir, append(args, "-o", "kept", "sh", "-c", busy)...)
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.stderr, "kept here, not sent: refused: 404")
	found, err := filepath.Glob(filepath.Join(dir, "kept", "*.pb.gz"))
	require.NoError(t, err)
	assert.NotEmpty(t, found)
	server.Close()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secrets"), []byte("A: 1\nS3CRET\n"), 0o600))
	for text, args := range map[string][]string{
		"want http://": {"--push", "host:1", "true"}, "unknown protocol": {"--push", "http://h", "--push-as", "x",
			"true"},
		"want NAME=VALUE": {"--push", "http://h", "--push-label", "x", "true"},
		"--push-header: header 1: want NAME: VALUE": {"--push", "http://h", "--push-header", "x", "true"},
		"secrets: header 2: want NAME: VALUE":       {"--push", "http://h", "--push-header", "@secrets", "true"},
		"open none":                                 {"--push", "http://h", "--push-header", "@none", "true"},
	} {
		r := agentIn(t, dir, args...)
		assert.Equal(t, exitUsage, r.code)
		assert.Contains(t, r.stderr, text)
		assert.NotContains(t, r.stderr, "S3CRET")
	}
}

// TestRecordPushUTF8: whatever bytes a program, a thread and a label are named with, what is sent is UTF-8.
func TestRecordPushUTF8(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		b, _ := io.ReadAll(body)
		bodies = append(bodies, string(b))
	}))
	defer server.Close()
	dir := t.TempDir()
	program := filepath.Join(dir, "sh\xff")
	require.NoError(t, os.Symlink("/bin/sh", program))
	for _, as := range []string{"otlp", "pyroscope"} {
		bodies = nil
		r := agentIn(t, dir, "--push", server.URL, "--push-as", as, "--push-label", "zone=\xfe", "--every", "1s", program,
			"-c", busy)
		require.Equal(t, exitDone, r.code, r.stderr)
		require.NotEmpty(t, bodies)
		for _, b := range bodies {
			assert.Contains(t, b, `sh\xff`, as)
			assert.Contains(t, b, `\xfe`, as)
			assert.NotContains(t, b, "sh\xff", as)
		}
	}
}

// TestRecordPushHeaders: headers come from a file and from a variable, which the command does not get.
func TestRecordPushHeaders(t *testing.T) {
	var mu sync.Mutex
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = r.Header
	}))
	defer server.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secrets"),
		[]byte("Authorization: Bearer x:y\n\nX-Scope-OrgID: 7"), 0o600))
	t.Setenv(recorder.HeaderVariable, "X-Api-Key: key\nX-Other: 1\n")
	r := agentIn(t, dir, "--push", server.URL, "--push-as", "pprof", "--push-header", "@secrets", "--push-header",
		"X-Other: 2", "sh", "-c", busy+"env")
	assert.Zero(t, r.code, r.stderr)
	assert.NotContains(t, r.stdout, recorder.HeaderVariable)
	mu.Lock()
	defer mu.Unlock()
	for name, want := range map[string][]string{"Authorization": {"Bearer x:y"}, "X-Scope-Orgid": {"7"},
		"X-Api-Key": {"key"}, "X-Other": {"1", "2"}} {
		assert.Equal(t, want, got[name], name)
	}
}

// TestRecordOffCPU: the time of a program that sleeps is below what sleeps.
func TestRecordOffCPU(t *testing.T) {
	testtool.NeedRoot(t, "to record what happens in the kernel")
	dir := t.TempDir()
	r := recordIn(t, dir, "--off-cpu", "-o", "p.folded", "sleep", "0.2")
	require.Zero(t, r.code, r.stderr)
	b, err := os.ReadFile(filepath.Join(dir, "p.folded"))
	require.NoError(t, err)
	slept := 0
	for stack, n := range testtool.Folded(t, string(b)) {
		if strings.Contains(stack, "nanosleep") {
			slept += n
		}
	}
	assert.GreaterOrEqual(t, slept, 200_000)
}
