//go:build linux && amd64

package perfevent

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeSources writes files as sysfs and tracefs have them.
func fakeSources(t *testing.T, files map[string]string) *Sources {
	dir := t.TempDir()
	for path, text := range files {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return &Sources{Devices: filepath.Join(dir, "devices"), Tracing: []string{filepath.Join(dir, "none"),
		filepath.Join(dir, "tracing")}}
}

// TestTracepoint: numbers of tracepoints come from their files, and an unknown name gives a near one.
func TestTracepoint(t *testing.T) {
	s := fakeSources(t, map[string]string{"tracing/events/sched/sched_switch/id": "316\n",
		"tracing/events/sched/sched_switch/format": "\tfield:int prev_prio;\n",
		"tracing/events/sched/sched_wakeup/id":     "318\n",
		"tracing/events/bad/bad/id":                "many\n"})
	id, probe, err := s.Tracepoint("sched", "sched_switch")
	require.NoError(t, err)
	assert.Equal(t, []any{uint64(316), false}, []any{id, probe})
	for name, text := range map[string]string{
		"sched_swich": "there is no such tracepoint; did you mean sched:sched_switch?",
		"sched_":      "there is no such tracepoint", // two begin so
		"x":           "there is no such tracepoint",
		"../bad/bad":  "want SYSTEM:NAME",
	} {
		_, _, err = s.Tracepoint("sched", name)
		assert.EqualError(t, err, text)
	}
	_, _, err = s.Tracepoint("bad", "bad")
	assert.ErrorContains(t, err, "invalid syntax")
}

// TestTracefs: the message for a tracefs that is missing, or closed, says what to do.
func TestTracefs(t *testing.T) {
	s := fakeSources(t, nil)
	_, _, err := s.Tracepoint("sched", "sched_switch")
	assert.EqualError(t, err, "tracefs is not mounted; as root: mount -t tracefs none "+s.Tracing[0])
	assert.ErrorContains(t, forbidden(&fs.PathError{Op: "open", Path: "/sys/kernel/tracing/events",
		Err: fs.ErrPermission}), "only root may read tracefs")
}

// TestProbes: the type and the bit of probes at returns come from the PMU's folder.
func TestProbes(t *testing.T) {
	s := fakeSources(t, map[string]string{"devices/uprobe/type": "9\n", "devices/uprobe/format/retprobe": "config:0\n",
		"devices/odd/type": "9\n", "devices/odd/format/retprobe": "config1:0\n"})
	typ, atReturn, err := s.Probes("uprobe")
	require.NoError(t, err)
	assert.Equal(t, []uint64{9, 1}, []uint64{uint64(typ), atReturn})
	_, _, err = s.Probes("kprobe")
	assert.ErrorContains(t, err, "this kernel has no kprobes")
	_, _, err = s.Probes("odd")
	assert.ErrorContains(t, err, "want config:BIT")
}
