package host

import (
	"testing"

	"github.com/ehasm/ehasm/internal/testing/testtool"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestStopTimer: no program begins with a timer that a profiler has set here.
func TestStopTimer(t *testing.T) {
	if !testtool.InChild(t) {
		return
	}
	_, err := unix.Setitimer(unix.ITIMER_PROF, unix.Itimerval{Value: unix.Timeval{Sec: 1000}})
	require.NoError(t, err)
	StopTimer()
	left, err := unix.Getitimer(unix.ITIMER_PROF)
	require.NoError(t, err)
	assert.Zero(t, left)
}
