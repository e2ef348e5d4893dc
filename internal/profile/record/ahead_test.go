//go:build linux && amd64

package record

import (
	"encoding/binary"
	"testing"

	"github.com/ehasm/ehasm/ehelf"

	"github.com/stretchr/testify/assert"
)

// TestAhead: return addresses are found in a copy, and fetched of a record whose stack has their places.
func TestAhead(t *testing.T) {
	const low, copied = 0x7ffd00001000, 512
	le := binary.LittleEndian
	mem := ehelf.Memory{Lo: low, Bytes: make([]byte, copied)}
	pcs := []uint64{0x401000, 0x401100, 0x401200, 0x401100, 0x401300}
	for i, offset := range []int{40, 120, 200, 480} {
		le.PutUint64(mem.Bytes[offset:], pcs[i+1])
	}
	record := make([]byte, 100+18*word+word+copied+word)
	size := len(record)
	stack := size - word - copied
	le.PutUint64(record[stack-word:], copied)
	le.PutUint64(record[stack-10*word-word:], low)

	var a ahead
	assert.False(t, a.fetch(record, size, copied), "nothing is known")
	a.learn(&mem, copied, pcs)
	assert.Equal(t, []uint64{low + 40, low + 120, low + 200, low + 480}, a.places)
	assert.False(t, a.fetch(record, size, copied), "nor what stays")
	a.until = 1
	le.PutUint64(mem.Bytes[40:], 0)
	le.PutUint64(mem.Bytes[48:], pcs[1])
	a.learn(&mem, copied, pcs)
	assert.Equal(t, []uint64{low + 48, low + 120, low + 200, low + 480}, a.places)
	assert.True(t, a.fetch(record, size, copied), "three of four are where they were")
	assert.False(t, a.fetch(record[:size-1], size, copied), "the rest is at the ring's begin")
	assert.False(t, a.fetch(record, size, copied*2), "another size of copies")

	le.PutUint64(record[stack-10*word-word:], low+100)
	assert.True(t, a.fetch(record, size, copied), "the inner places are outside")
	le.PutUint64(record[stack-10*word-word:], low+8192)
	assert.False(t, a.fetch(record, size, copied), "another thread's")

	a.until = 1
	a.learn(&mem, 200, pcs)
	assert.Equal(t, []uint64{low + 48, low + 120}, a.places, "the stack ends")
	a.until = 1
	a.learn(&mem, copied, pcs[:1])
	assert.False(t, a.fetch(record, size, copied), "no caller")
}
