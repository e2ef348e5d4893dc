//go:build linux

package stack

import (
	"bytes"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/unwind"
)

// TestCorePipe: a core from a pipe is the same as from a file, at each length.
func TestCorePipe(t *testing.T) {
	b := coreFile()
	for _, n := range []int{len(b), len(b) - 1, len(b) - 0x1000, len(b) - 0x1800, len(b) - 0x2000} {
		want, err := take(t, b[:n])
		require.NoError(t, err)
		c, err := OpenCorePipe(bytes.NewReader(b[:n]))
		require.NoError(t, err)
		got, err := c.Target(t.Context(), Options{Objects: unwind.NewObjects(unwind.Options{})})
		require.NoError(t, err)
		assert.Equal(t, want.Notes, got.Notes)
		for i, th := range want.Threads {
			assert.Equal(t, th.PCs, got.Threads[i].PCs)
		}
		require.NoError(t, c.Close())
	}
	for n := range len(b) - 0x2000 {
		_, err := OpenCorePipe(bytes.NewReader(b[:n]))
		require.Error(t, err, n)
		if n > 0 && n < ehdrSize {
			require.ErrorIs(t, err, ErrNotCore)
		}
	}
}

// TestCorePipeMutants: damaged cores from a pipe give threads or an error.
func TestCorePipeMutants(t *testing.T) {
	b := coreFile()
	random := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		m := bytes.Clone(b)
		for range 1 + random.IntN(6) {
			m[random.IntN(len(b)-0x2000)] = byte(random.Uint32())
		}
		if c, err := OpenCorePipe(bytes.NewReader(m)); err == nil {
			_, err = c.Target(t.Context(), Options{Objects: unwind.NewObjects(unwind.Options{})})
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
	}
}

// TestSpool: of a large segment the head, the stacks and the end are kept, and no page of zeros.
func TestSpool(t *testing.T) {
	const mb = 1 << 20
	memory := bytes.Repeat([]byte{0x55, 0xaa}, 32*mb)
	clear(memory[20*mb : 24*mb])
	const start, off = 0x10_0000_0000, 4096
	im := &image{segments: []segment{{start: start, end: start + 70*mb, off: off, size: 64 * mb}}}
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer file.Close()
	head := coreFile()[:off]
	s := newSpool(bytes.NewReader(memory), head, file)
	c, err := s.core(im, []uint64{start + 21*mb, start + 20*mb + 8})
	require.NoError(t, err)
	assert.Equal(t, uint64(off+64*mb), s.offset)
	addr := uint64(start)
	kept := 0
	for _, p := range c.image.segments {
		require.Equal(t, addr, p.start, "without gaps")
		addr = p.end
		b := make([]byte, p.size)
		require.Equal(t, len(b), c.image.read(b, p.start))
		require.True(t, bytes.Equal(memory[p.start-start:][:len(b)], b))
		kept += len(b)
	}
	assert.Equal(t, uint64(start+70*mb), addr)
	sp := make([]byte, 9*mb)
	assert.Equal(t, len(sp), c.image.read(sp, start+20*mb+8-128))
	assert.InDelta(t, 17*mb, kept, mb)
	st, err := file.Stat()
	require.NoError(t, err)
	assert.InDelta(t, 13*mb, 512*st.Sys().(*syscall.Stat_t).Blocks, mb)
}
