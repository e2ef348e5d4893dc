package bpfunwind

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// loadForTest makes an Unwinder. Tests need root, or CAP_BPF and CAP_PERFMON.
func loadForTest(t *testing.T, opt Options) *Unwinder {
	t.Helper()
	u, err := Load(opt)
	require.NoError(t, err, "these tests load BPF programs")
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u
}

// TestLoad loads the programs of all kinds.
func TestLoad(t *testing.T) {
	u := loadForTest(t, Options{})
	for kind := PerfEvent; kind <= RawTracepoint; kind++ {
		for _, kernel := range []bool{false, true} {
			start := time.Now()
			p, err := u.NewProgram(Source{Kind: kind, ID: 7, Kernel: kernel})
			var refused *ebpf.VerifierError
			if errors.As(err, &refused) {
				t.Logf("%+v", refused)
			}
			require.NoError(t, err)
			took := time.Since(start)
			info, err := p.loaded.Info()
			require.NoError(t, err)
			verified, _ := info.VerifiedInstructions()
			size, _ := info.JitedSize()
			t.Logf("kind %d, kernel's frames %v: %v, %d instructions verified, %d bytes of machine code", kind, kernel, took,
				verified, size)
			require.NoError(t, p.Close())
		}
	}
}

// TestRights: CAP_BPF and CAP_PERFMON are needed, and are enough.
func TestRights(t *testing.T) {
	const variable = "BPFUNWIND_TEST_RIGHTS"
	switch os.Getenv(variable) {
	case "none":
		_, err := Load(Options{})
		require.ErrorIs(t, err, ErrRights)
		return
	case "both":
		u := loadForTest(t, Options{})
		p, err := u.NewProgram(Source{Kind: RawTracepoint})
		require.NoError(t, err)
		tracepoint, err := p.AttachTracepoint("sys_enter")
		require.NoError(t, err)
		require.NoError(t, tracepoint.Close())
		require.NoError(t, p.Close())
		return
	}
	for rights, capabilities := range map[string][]uintptr{"none": nil, "both": {unix.CAP_BPF, unix.CAP_PERFMON}} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestRights$")
		cmd.Env = append(os.Environ(), variable+"="+rights)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
			AmbientCaps: capabilities}
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, "%s: %s", rights, out)
	}
}

// TestExplain: a refusal names the function that the kernel lacks.
func TestExplain(t *testing.T) {
	err := explain(&ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"204: (85) call unknown#181",
		"invalid func unknown#181"}})
	assert.ErrorIs(t, err, ErrKernel)
	assert.ErrorContains(t, err, "this kernel has no FnLoop")
	assert.NotErrorIs(t, explain(&ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"R1 invalid mem access"}}),
		ErrKernel)
}
