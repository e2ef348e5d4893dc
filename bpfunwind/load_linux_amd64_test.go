package bpfunwind

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
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
			t.Logf("kind %d, kernel's frames %v: %v, %d instructions verified, %d bytes of machine code", kind, kernel, took, verified, size)
			require.NoError(t, p.Close())
		}
	}
}
