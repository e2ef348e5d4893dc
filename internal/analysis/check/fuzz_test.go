package check_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/analysis/check"
)

const throws = switches + `
struct A { int n; ~A() { h(); } };
int catches(int n) {
	A a; a.n = n;
	try { g(n); if (n > 3) throw n; return f(n, n); } catch (int e) { return e + g(e); } catch (...) { h(); }
	return drap(n);
}
`

// FuzzCheck changes bytes anywhere in a file, code, tables and LSDAs among them: an error or a
// report, no panic, no hang.
func FuzzCheck(f *testing.F) {
	whole, err := os.ReadFile(assemble(f, "f.cc", throws, "-O2", "-fpermissive", "-w"))
	require.NoError(f, err)
	for _, seed := range []struct {
		offset uint32
		bytes  string
	}{{0, "\x7f"}, {0x40, "\xff\xff"}, {0x60, "\xe9\xfb\xff\xff\xff"}, {0x100, "\x0f\x0b"}, {0x400, "\x80\x80\x80"},
		{0x600, "\xff\xff\xff\xff"}} {
		f.Add(seed.offset, []byte(seed.bytes), uint32(0), []byte{})
	}
	f.Fuzz(func(t *testing.T, off uint32, patch []byte, off2 uint32, patch2 []byte) {
		data := bytes.Clone(whole)
		copy(data[int(off)%len(data):], patch)
		copy(data[int(off2)%len(data):], patch2)
		s, err := check.Open("fuzzed", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			require.Nil(t, s)
			return
		}
		r := s.Run(check.Options{Workers: 1})
		require.LessOrEqual(t, r.Judged, r.Instructions)
		require.LessOrEqual(t, r.Agree, r.Judged)
		n := r.Judged
		for _, k := range r.NotJudged {
			n += k
		}
		require.Equal(t, r.Instructions, n, "%v", r.NotJudged)
	})
}
