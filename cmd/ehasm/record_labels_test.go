//go:build linux && amd64

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecordLabels: samples say which process, program and machine they are of.
func TestRecordLabels(t *testing.T) {
	dir := t.TempDir()
	r := recordIn(t, dir, "-q", "-o", "p.pb.gz", "--labels", "comm,pid,tid,executable,build-id,cgroup,host,cpu", "sh",
		"-c", busy+"sh -c '"+busy+"'; :")
	require.Zero(t, r.code, r.stderr)
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	shell, err = filepath.EvalSymlinks(shell)
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	pids := make(map[string]bool)
	n, seen := 0, make(map[string]int)
	for _, s := range readPprof(t, filepath.Join(dir, "p.pb.gz")).Sample {
		assert.Equal(t, []string{host}, s.Label["host.name"])
		seen[fmt.Sprint(s.Label["process.pid"], s.Label["process.executable.name"], s.Label["end"])]++
		assert.Len(t, s.Label["cpu.logical_number"], 1)
		assert.Equal(t, s.Label["process.pid"], s.Label["thread.id"], "no threads")
		if len(s.Label["process.executable.name"]) == 1 && s.Label["process.executable.name"][0] == filepath.Base(shell) {
			assert.Len(t, s.Label["process.executable.build_id.gnu"], 1)
			pids[s.Label["process.pid"][0]] = true
			n++
		}
	}
	assert.Len(t, pids, 2, "a shell and its child: %v", seen)
	assert.Positive(t, n)

	r = recordIn(t, dir, "-q", "-o", "p.pb.gz", "--labels", "none", "sh", "-c", busy)
	require.Zero(t, r.code, r.stderr)
	for _, s := range readPprof(t, filepath.Join(dir, "p.pb.gz")).Sample {
		for key := range s.Label {
			assert.NotContains(t, "comm process.pid thread.id", key)
		}
	}
	for url, want := range map[string]labels.Set{"": labels.Comm | labels.PID | labels.TID, "http://x": labels.Comm} {
		opt := &recordOptions{}
		opt.Target.All, opt.Push.URL, opt.Output.Format = true, url, stackfmt.ByPath("p.pb.gz")
		require.NoError(t, opt.parseLabels([]string{"comm"}, false))
		assert.Equal(t, want, opt.Output.Labels)
	}
	for text, args := range map[string][]string{
		`--labels: unknown label "x": want none, or a list of comm, pid`: {"--labels", "x", "true"},
		"--labels has no effect in the format svg":                       {"--labels", "pid", "-o", "p.svg", "true"},
	} {
		r := recordIn(t, dir, args...)
		assert.Equal(t, 2, r.code)
		assert.Contains(t, r.stderr, text)
	}
	r = ehasm(t, "script", "--labels", "pid", "-o", "p.folded")
	assert.Contains(t, r.stderr, "--labels has no effect in the format folded")
}

func readPprof(t *testing.T, path string) *profile.Profile {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	p, err := profile.Parse(f)
	require.NoError(t, err)
	return p
}
