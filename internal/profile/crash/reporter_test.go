//go:build linux && amd64

package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPlain: a report without names has the addresses, and says so.
func TestPlain(t *testing.T) {
	const pid = 1
	objects := unwind.NewObjects(unwind.Options{})
	defer objects.Close()
	processes := unwind.NewProcesses()
	processes.Space(pid).Map(0x1000, 0x1000, 0, objects.Object(procfs.AnonName, nil))
	c := &crashed{target: &stack.Target{PID: pid, Maps: processes.Space(pid).Maps(),
		Threads: []stack.Thread{{TID: pid, PCs: []uint64{0x1234}}}}}
	for _, json := range []bool{false, true} {
		var out bytes.Buffer
		require.NoError(t, c.plain().write(&out, json, symbolize.Options{Addresses: true}))
		text, err := out.ReadString(reportEnd)
		require.NoError(t, err)
		assert.Contains(t, text, "1234", "json: %v", json)
		assert.Contains(t, text, "names of functions are left out: they take longer than 5s or more than 512 MB")
	}
	assert.Empty(t, c.target.Notes)
}

// TestAsk has reporters that end early, or not at all.
func TestAsk(t *testing.T) {
	for script, want := range map[string]string{
		`printf 'plain\0named\0'`:                                   "named",
		`printf 'plain\0nam'`:                                       "plain",
		`printf 'plain\0'; kill -9 $$`:                              "plain",
		`printf 'plain\0'; exec >&-; exec sleep 5`:                  "plain",
		`printf 'plain\0'; head -c 2000000 /dev/zero | tr '\0' 'x'`: "plain",
		`tr a-z A-Z; printf '\0'; env | grep CRASH; printf '\0'`:    "EHASM_CRASH_USER=1000\n",
	} {
		opt := Options{Reporter: []string{"/bin/sh", "-c", script}}
		text, err := opt.ask(1000, []byte("core"))
		require.NoError(t, err, script)
		assert.Equal(t, want, string(text), script)
	}
	for script, want := range map[string]string{
		`exit 3`:                         "no report: exit status 3",
		`echo plain`:                     "no report: ",
		`echo a >&2; echo b >&2; exit 1`: "no report: a",
		`kill -9 $$`:                     "no report: signal: killed",
	} {
		opt := Options{Reporter: []string{"/bin/sh", "-c", script}}
		_, err := opt.ask(1000, nil)
		assert.ErrorContains(t, err, want, script)
	}
	opt := Options{Reporter: []string{"/absent"}}
	_, err := opt.ask(1000, nil)
	assert.ErrorContains(t, err, "reporter: ")
	_, err = opt.ask(-1, nil)
	assert.ErrorIs(t, err, stack.ErrNoProcess, "who has ended is not taken for root")
}

// TestReceiveLate: a reporter that writes nothing more is not waited for.
func TestReceiveLate(t *testing.T) {
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer to.Close()
	defer from.Close()
	_, err = to.Write([]byte("plain\x00na"))
	require.NoError(t, err)
	text, err := receive(from, []time.Duration{time.Hour, time.Millisecond})
	require.NoError(t, err)
	assert.Equal(t, "plain", string(text))
	_, err = receive(from, []time.Duration{time.Millisecond, time.Hour})
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestWithin: what does not end is not waited for.
func TestWithin(t *testing.T) {
	stuck := make(chan bool)
	defer close(stuck)
	_, err := within(time.Millisecond, func() (int, error) { <-stuck; return 1, nil })
	assert.ErrorIs(t, err, errLate)
	n, err := within(time.Hour, func() (int, error) { return 1, nil })
	assert.NoError(t, err)
	assert.Equal(t, 1, n)
}

// TestLongNames: names of objects push no thread out of a report.
func TestLongNames(t *testing.T) {
	const pid, n = 1, 150
	objects := unwind.NewObjects(unwind.Options{})
	defer objects.Close()
	processes := unwind.NewProcesses()
	target := &stack.Target{PID: pid}
	for i := range n {
		start := uint64(i+1) << 12
		processes.Space(pid).Map(start, 1<<12, 0, objects.Object(fmt.Sprint("/", strings.Repeat("x", 4000), i), nil))
		target.Threads = append(target.Threads, stack.Thread{TID: int32(i), PCs: []uint64{start, start + 1, start + 2}})
	}
	target.Maps = processes.Space(pid).Maps()
	var out bytes.Buffer
	require.NoError(t, (&crashed{target: target}).write(&out, true, symbolize.Options{Addresses: true}))
	var report jsonReport
	require.NoError(t, json.Unmarshal(bytes.TrimRight(out.Bytes(), "\x00"), &report))
	assert.Len(t, report.Threads, n)
	assert.Zero(t, report.LeftOut)
	assert.NotEmpty(t, report.Objects)
}
