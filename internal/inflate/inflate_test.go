package inflate

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// deflated compresses with the standard library, which writes stored, fixed and
// dynamic blocks depending on level and data.
func deflated(t testing.TB, data []byte, level int) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// samples are data of several kinds.
func samples(t testing.TB) map[string][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	skewed := make([]byte, 300_000) // codes of all lengths
	for i := range skewed {
		skewed[i] = byte(random.ExpFloat64() * 9)
	}
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	return map[string][]byte{
		"empty": {}, "one": {7}, "zeros": make([]byte, 1_000_000), "noise": noise, "skewed": skewed,
		"text": bytes.Repeat([]byte("abcdefg hij "), 999), "program": self[:min(len(self), 3<<20)],
	}
}

func TestInflate(t *testing.T) {
	var r Reader
	for name, data := range samples(t) {
		for _, level := range []int{flate.NoCompression, flate.BestSpeed, flate.DefaultCompression, flate.HuffmanOnly} {
			z := deflated(t, data, level)
			out := make([]byte, len(data)+Slack)
			r.Reset(z, out)
			require.NoError(t, r.UpTo(len(data)), "%s level %d", name, level)
			assert.Equal(t, len(data), r.Written())
			assert.True(t, bytes.Equal(data, out[:len(data)]), "%s level %d", name, level)
		}
	}
}

// TestSteps asks for more and more, by steps of any length, and looks at what is
// there already.
func TestSteps(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for name, data := range samples(t) {
		for _, level := range []int{flate.NoCompression, flate.DefaultCompression} {
			var r Reader
			out := make([]byte, len(data)+Slack)
			r.Reset(deflated(t, data, level), out)
			for n := 0; n < len(data); {
				n = min(n+1+random.IntN(1+len(data)/20), len(data))
				require.NoError(t, r.UpTo(n), "%s level %d", name, level)
				require.GreaterOrEqual(t, r.Written(), n)
				require.True(t, bytes.Equal(data[:n], out[:n]), "%s level %d up to %d", name, level, n)
			}
		}
	}
}

// TestTruncated cuts streams short.
func TestTruncated(t *testing.T) {
	data := samples(t)["program"][:20_000]
	for _, level := range []int{flate.NoCompression, flate.BestSpeed, flate.DefaultCompression} {
		z := deflated(t, data, level)
		for n := 0; n < len(z)-6; n += 1 + n/50 { // the last bytes may hold no data
			var r Reader
			out := make([]byte, len(data)+Slack)
			r.Reset(z[:n], out)
			require.Error(t, r.UpTo(len(data)), "%d of %d bytes, level %d", n, len(z), level)
		}
	}
}

// TestNoEnd asks for more than there is.
func TestNoEnd(t *testing.T) {
	var r Reader
	out := make([]byte, 1000+Slack)
	r.Reset(deflated(t, []byte("hello"), 6), out)
	require.NoError(t, r.UpTo(1000))
	assert.Equal(t, 5, r.Written())
}

// checkLike compares with the standard library: what that inflates, this does, and
// what it refuses, this refuses, or has no more of.
func checkLike(t *testing.T, z []byte) {
	const most = 1 << 20
	want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(z)), most))
	out := make([]byte, most+Slack)
	var r Reader
	r.Reset(z, out)
	err := r.UpTo(most)
	if wantErr == nil {
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Written(), len(want))
	}
	if err == nil && r.Written() < most {
		require.NoError(t, wantErr)
	}
	n := min(len(want), r.Written())
	require.True(t, bytes.Equal(want[:n], out[:n]))
}

func TestBroken(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for name, data := range samples(t) {
		z := deflated(t, data[:min(len(data), 30_000)], 6)
		for range 300 {
			bad := bytes.Clone(z)
			for range 1 + random.IntN(4) {
				bad[random.IntN(min(len(bad), 200+random.IntN(len(bad))))] ^= 1 << random.IntN(8)
			}
			t.Run(name, func(t *testing.T) { checkLike(t, bad) })
		}
	}
}

func FuzzInflate(f *testing.F) {
	for _, data := range samples(f) {
		for _, level := range []int{0, 1, 6} {
			f.Add(deflated(f, data[:min(len(data), 2000)], level))
		}
	}
	f.Fuzz(func(t *testing.T, z []byte) { checkLike(t, z) })
}

func BenchmarkInflate(b *testing.B) {
	for _, level := range []int{1, 6} {
		data := samples(b)["program"]
		z := deflated(b, data, level)
		out := make([]byte, len(data)+Slack)
		b.Run(fmt.Sprint(level), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				var r Reader
				r.Reset(z, out)
				if err := r.UpTo(len(data)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
