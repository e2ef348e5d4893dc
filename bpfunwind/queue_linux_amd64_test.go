package bpfunwind

import (
	"io"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestQueue: samples of all CPUs come once each, with their frames, in the order of their time, however often the rings
// are read.
func TestQueue(t *testing.T) {
	s := newSession(t, Options{RingSize: 1 << 25})
	p, err := s.u.NewProgram(Source{Kind: RawTracepoint})
	require.NoError(t, err)
	defer p.Close()
	const turn = "umask 22; read line </dev/null; "
	var turns []io.WriteCloser // of shells, each for a line
	for range 3 {
		cmd := exec.Command("sh", "-c", "while read line; do "+strings.Repeat(turn, 30)+"done")
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		turns = append(turns, in)
		require.NoError(t, cmd.Start())
		defer func() { cmd.Process.Kill(); cmd.Wait() }()
		time.Sleep(20 * time.Millisecond)
		s.wanted[uint32(cmd.Process.Pid)] = true
		s.refresh(uint32(cmd.Process.Pid))
	}
	tracepoint, err := p.AttachTracepoint("sys_enter")
	require.NoError(t, err)
	q := s.u.NewQueue(1 << NoRegion)
	samples, frames, last := uint64(0), uint64(0), uint64(0)
	take := func(w *Sample) {
		if w.Time < last || !s.wanted[w.PID] || w.Outcome == NoRegion {
			assert.Fail(t, "a sample too late, or of another process", "%d after %d: %+v", w.Time, last, *w)
		}
		last, samples, frames = w.Time, samples+1, frames+uint64(len(w.User))
	}
	for round := range 60 {
		for _, in := range turns { // they go on while the rings are read
			_, err := in.Write([]byte("\n"))
			require.NoError(t, err)
		}
		time.Sleep(time.Millisecond)
		now := monotonic()
		_, err := q.Fill()
		require.NoError(t, err)
		q.Before(now-uint64(round%3)*2e6, take) // what is left comes later
	}
	require.NoError(t, tracepoint.Close())
	for waiting := true; waiting; { // a walk may still be on its way
		waiting, err = q.Fill()
		require.NoError(t, err)
		q.Before(math.MaxUint64, take)
	}
	stats, err := s.u.Stats()
	require.NoError(t, err)
	all := uint64(0)
	for _, n := range stats.Outcomes {
		all += n
	}
	require.Zero(t, stats.Lost)
	assert.Equal(t, all-stats.Outcomes[NoRegion], samples)
	assert.Greater(t, samples, uint64(1000))
	if stats.Outcomes[NoRegion] == 0 {
		assert.Equal(t, stats.Frames, frames)
	}
}
