package bpfunwind

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMemory gives out blocks and takes them back at random: none overlap, and in the end chunks are whole again.
func TestMemory(t *testing.T) {
	m := &loadForTest(t, Options{}).memory
	r := rand.New(rand.NewPCG(1, 1))
	var taken []block
	mark := func(b block, v byte) {
		require.Equal(t, int(b.size), bytes.Count(m.bytes(b), []byte{1 - v}), "another block has some, or none had")
		copy(m.bytes(b), bytes.Repeat([]byte{v}, int(b.size)))
	}
	for range 3000 {
		if len(taken) > 0 && (r.IntN(2) == 0 || len(taken) > 60) {
			i := r.IntN(len(taken))
			mark(taken[i], 0)
			m.release(taken[i])
			taken[i] = taken[len(taken)-1]
			taken = taken[:len(taken)-1]
			continue
		}
		size := r.IntN(1 << r.IntN(19))
		b, err := m.allocate(size)
		require.NoError(t, err)
		require.GreaterOrEqual(t, int(b.size), size)
		mark(b, 1)
		taken = append(taken, b)
	}
	for _, b := range taken {
		m.release(b)
	}
	for i, b := range m.free {
		assert.Equal(t, block{uint32(i), 0, chunkSize}, b)
	}
	assert.Len(t, m.free, len(m.chunks))
	_, err := m.allocate(chunkSize + 1)
	assert.Error(t, err)
}
