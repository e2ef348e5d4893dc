package tally

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAll compares tallies, each with some, all or none of its counts in runs, with a map.
func TestAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for most, count := range map[int]int{0: 20000, 1: 300, 500: 3000, 20000: 20000} {
		want := make(map[string]Sum)
		list := []*Tally{{most: most}, {most: most}, {}}
		for i := range count {
			key := make([]byte, rnd.IntN(8))
			for j := range key {
				key[j] = "\x00\x01\xff"[rnd.IntN(3)]
			}
			n := Sum{rnd.Uint64() >> rnd.IntN(64), uint64(i)}
			list[i%2].Add(key, n)
			sum := want[string(key)]
			want[string(key)] = Sum{sum[0] + n[0], sum[1] + n[1]}
		}
		assert.Equal(t, most > 0, len(list[0].runs) > 0)
		assert.Less(t, len(list[0].runs), mostRuns)
		for range 2 { // it can be read again
			got := make(map[string]Sum)
			var last []byte
			for key, n := range All(list...) {
				require.True(t, len(got) == 0 || bytes.Compare(last, key) < 0)
				last = append(last[:0], key...)
				got[string(key)] = n
			}
			require.True(t, maps.Equal(want, got))
		}
		for range All(list...) {
			break
		}
	}
	for range All() {
		t.Fatal("a key of nothing")
	}
}

// TestMemory counts 200,000 keys of 100 bytes that have much in common, as stacks do.
func TestMemory(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const count = 200000
	var tally Tally
	key := make([]byte, 100)
	for i := range uint32(count) {
		binary.BigEndian.PutUint32(key[60:], i/3)
		binary.BigEndian.PutUint32(key[80:], i*2654435761>>16) // some bits of no order
		binary.BigEndian.PutUint32(key[96:], i)
		tally.Add(key, Sum{1, 2})
	}
	assert.Less(t, heap()-before, uint64(10<<20)) // of which 4 MB are held
	n := 0
	for _, sum := range All(&tally) {
		require.Equal(t, Sum{1, 2}, sum)
		n++
	}
	assert.Equal(t, count, n)
}
