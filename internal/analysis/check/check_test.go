package check_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

func run(t *testing.T, path string) *check.Report { return runWith(t, path, check.Options{}) }

func runWith(t *testing.T, path string, opt check.Options) *check.Report {
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	require.NoError(t, err)
	s, err := check.Open(path, f, info.Size())
	require.NoError(t, err)
	return s.Run(opt)
}

// TestLibstdcxx: compiled code of GCC's with landing pads; its table is right throughout.
func TestLibstdcxx(t *testing.T) {
	r := run(t, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
	assert.Greater(t, r.Instructions, 100_000)
	assert.GreaterOrEqual(t, float64(r.Judged), 0.999*float64(r.Instructions))
	for _, f := range r.Findings {
		assert.Equal(t, check.SeverityNote, f.Severity, "%+v", f)
	}
}

func errorsIn(r *check.Report) (out []check.Finding) {
	for _, f := range r.Findings {
		if f.Severity != check.SeverityNote {
			out = append(out, f)
		}
	}
	return out
}

func replace(s, from, to string) string { return strings.ReplaceAll(s, from, to) }

// TestLibc: the two functions of glibc 2.36 that push without rows, ____longjmp_chk, which changes rbx, and
// swapcontext, which keeps r12 in its argument; other releases have none.
func TestLibc(t *testing.T) {
	r := run(t, "/lib/x86_64-linux-gnu/libc.so.6")
	assert.GreaterOrEqual(t, float64(r.Judged), 0.999*float64(r.Instructions))
	for _, f := range r.Findings {
		if f.Severity == check.SeverityError && f.Kind == check.KindClobbered {
			assert.Contains(t, []string{"rbx", "r12"}, f.Register, "%+v", f)
		} else if f.Severity == check.SeverityError {
			assert.Equal(t, check.KindCFA, f.Kind, "%+v", f)
			assert.Equal(t, "rsp+16", f.Actual, "%+v", f)
			assert.Equal(t, "rsp+8", f.Claimed, "%+v", f)
			assert.Equal(t, f.Start+1, f.PC, "%+v", f) // after the first push
		}
	}
}
