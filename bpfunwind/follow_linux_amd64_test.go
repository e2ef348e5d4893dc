package bpfunwind

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"
)

// copyTo has a program's copies written to rings.
func (s *session) copyTo(p *Program) {
	attr := perfevent.Attr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_BPF_OUTPUT, Sample: 1,
		Sample_type: unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER, Sample_regs_user: perfevent.RegsUser,
		Sample_stack_user: 8192}
	s.samples = s.open(attr, 1<<24)
	for cpu, ring := range s.samples {
		require.NoError(s.t, p.CopyTo(cpu, ring.event.FD()))
	}
}

// TestLaterCPU: copies may be written on a CPU that came online after Load. Where one alone is possible, none can come.
func TestLaterCPU(t *testing.T) {
	s := newSession(t, Options{})
	s.u.maps.cpus = 1
	p, err := s.u.NewProgram(Source{Kind: RawTracepoint, Output: true})
	require.NoError(t, err)
	defer p.Close()
	require.EqualValues(t, ebpf.MustPossibleCPU(), p.output.MaxEntries())
	s.copyTo(p)
}

// TestFollow: of what a thread executes, and of its children, each event comes with a copy, from the exec on; other
// processes have none. What has regions is walked until its next exec.
func TestFollow(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := newSession(t, Options{})
	p, err := s.u.NewProgram(Source{Kind: RawTracepoint, Output: true})
	require.NoError(t, err)
	defer p.Close()
	s.copyTo(p)
	tracepoint, err := p.AttachTracepoint("sys_enter")
	require.NoError(t, err)
	defer tracepoint.Close()
	other := exec.Command("sh", "-c", "while :; do :; sleep 0.01; done") // not followed yet
	require.NoError(t, other.Start())
	defer func() { other.Process.Kill(); other.Wait() }()
	require.NoError(t, s.u.Follow(uint32(unix.Gettid())))

	dir := t.TempDir()
	shell := exec.Command("sh", "-c", "sh -c 'echo $$; read line <in; exec sleep 0.2' & echo $$; wait")
	shell.Dir = dir
	out, in := filepath.Join(dir, "out"), filepath.Join(dir, "in")
	require.NoError(t, unix.Mkfifo(in, 0o600))
	gate, err := os.OpenFile(in, os.O_RDWR, 0)
	require.NoError(t, err)
	defer gate.Close()
	shell.Stdout, err = os.Create(out)
	require.NoError(t, err)
	require.NoError(t, shell.Start())
	var pids []int32
	for len(pids) < 2 {
		time.Sleep(10 * time.Millisecond)
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		pids = nil
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			require.NoError(t, err)
			pids = append(pids, int32(pid))
		}
	}
	walks, copies, stacks := map[int32]int{}, map[int32]int{}, 0
	s.onSample = func(w *Sample) { walks[int32(w.PID)]++ }
	read := func() {
		s.drain(s.samples, func(r perfdata.Record) {
			if r, ok := r.(*perfdata.Sample); ok {
				copies[r.PID]++
				stacks += len(r.Stack) // none where a page of it is not in memory yet
				assert.Equal(t, perfdata.ABI64, r.UserRegs.ABI)
			}
		})
		require.NoError(t, s.u.Read(0, s.onSample))
	}
	read()
	for pid := range copies {
		assert.True(t, pid == pids[0] || pid == pids[1], "process %d, not %v", pid, pids)
	}
	assert.Positive(t, copies[pids[0]])
	assert.Positive(t, copies[pids[1]])
	assert.Empty(t, walks)
	assert.Positive(t, stacks)

	inner := pids[0]
	if inner == int32(shell.Process.Pid) {
		inner = pids[1]
	}
	s.wanted[uint32(inner)] = true
	s.refresh(uint32(inner))
	clear(copies)
	_, err = gate.WriteString("go\n")
	require.NoError(t, err)
	require.NoError(t, shell.Wait())
	read()
	assert.Positive(t, walks[inner], "the end of read in the shell")
	assert.Greater(t, copies[inner], 10, "sleep, after the exec")
	missed, err := p.Missed()
	require.NoError(t, err)
	assert.Zero(t, missed)
}
