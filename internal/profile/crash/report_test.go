//go:build linux && amd64

package crash

import (
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNamesLate: a report whose names do not come has the addresses, and says so.
func TestNamesLate(t *testing.T) {
	const pid = 1
	objects := unwind.NewObjects(unwind.Options{})
	defer objects.Close()
	processes := unwind.NewProcesses()
	processes.Map(pid, 0x1000, 0x1000, 0, objects.Object(procfs.AnonName, nil))
	c := &crashed{target: &stack.Target{PID: pid, Maps: processes.Process(pid).Maps(), Threads: []stack.Thread{{TID: pid, PCs: []uint64{0x1234}}}}}
	stuck := make(chan bool)
	defer close(stuck)
	names := symbolize.Options{Objects: func() []*unwind.Object { <-stuck; return nil }}
	for _, json := range []bool{false, true} {
		b, err := c.named(json, names, time.Millisecond)
		require.NoError(t, err)
		assert.Contains(t, string(b), "1234", "json: %v", json)
		assert.Contains(t, string(b), "names of functions are left out: they took longer than 1ms")
	}
	assert.Empty(t, c.target.Notes)
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
