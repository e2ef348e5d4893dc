// Package tally adds up counts of stacks, given as sequences of numbers, in little memory: beyond
// some size, what was counted becomes a sorted, compressed run, and runs are merged when they are
// read.
//
//	Add --> map --when full, spill--> runs --All, merge--> keys in order, each with its sum
package tally

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/flate"
	"container/heap"
	"encoding/binary"
	"io"
	"iter"
	"maps"
	"slices"
)

// Sum is what is counted of a key.
type Sum [2]uint64

// Limits.
const (
	mostHeld  = 4 << 20 // bytes, about, before they become a run
	entrySize = 64      // bytes that an entry takes besides its key
	mostRuns  = 64      // of a Tally; each takes 64 KB while it is read
)

// runLevel is the compression level of runs. Keys share their beginnings already, so a low level is
// enough.
const runLevel = 3

// Tally adds up counts by key. The zero value is ready to use by one goroutine.
type Tally struct {
	sums map[string]Sum // by key
	held int            // bytes of sums
	runs [][]byte       // see put
	most int            // of held; 0: mostHeld
}

// Add adds to the counts of a key, which it copies. Now and then it takes longer: it compresses what is held, and
// merges runs.
func (t *Tally) Add(key []byte, n Sum) {
	sum, ok := t.sums[string(key)]
	if !ok {
		if t.sums == nil {
			t.sums = make(map[string]Sum)
		}
		t.held += len(key) + entrySize
	}
	t.sums[string(key)] = Sum{sum[0] + n[0], sum[1] + n[1]}
	if t.held > cmp.Or(t.most, mostHeld) {
		t.spill()
	}
}

// spill makes a run of what is held.
func (t *Tally) spill() {
	t.runs = append(t.runs, pack(t.sorted()))
	clear(t.sums)
	t.held = 0
	if len(t.runs) >= mostRuns {
		t.runs = [][]byte{pack(merge(readers(t.runs)))}
	}
}

// sorted yields what is held, in the order of keys.
func (t *Tally) sorted() iter.Seq2[[]byte, Sum] {
	return func(yield func([]byte, Sum) bool) {
		var key []byte
		for _, k := range slices.Sorted(maps.Keys(t.sums)) {
			if key = append(key[:0], k...); !yield(key, t.sums[k]) {
				return
			}
		}
	}
}

// All yields the keys of several tallies in their order, each once with the sum over all of its counts. A key is valid
// until the next one. Nothing may be added meanwhile.
func All(list ...*Tally) iter.Seq2[[]byte, Sum] {
	if len(list) == 1 && len(list[0].runs) == 0 {
		return list[0].sorted()
	}
	return func(yield func([]byte, Sum) bool) {
		var from []source
		for _, t := range list {
			next, stop := iter.Pull2(t.sorted())
			defer stop()
			from = append(from, next)
			from = append(from, readers(t.runs)...)
		}
		merge(from)(yield)
	}
}

// pack makes a run: of each key the length of what it has in common with the one before, the length of the rest, the
// rest and the counts.
func pack(all iter.Seq2[[]byte, Sum]) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, runLevel) // the level is valid, and memory takes all that is written
	var last, out []byte
	for key, n := range all {
		same := 0
		for same < len(last) && same < len(key) && last[same] == key[same] {
			same++
		}
		out = binary.AppendUvarint(out[:0], uint64(same))
		out = binary.AppendUvarint(out, uint64(len(key)-same))
		out = append(out, key[same:]...)
		out = binary.AppendUvarint(out, n[0])
		out = binary.AppendUvarint(out, n[1])
		w.Write(out)
		last = append(last[:same], key[same:]...)
	}
	w.Close()
	return bytes.Clone(b.Bytes())
}

// source returns the next key with its counts, as a function of iter.Pull2 does.
type source func() ([]byte, Sum, bool)

// readers returns the sources of some runs.
func readers(runs [][]byte) (list []source) {
	for _, run := range runs {
		r := bufio.NewReader(flate.NewReader(bytes.NewReader(run)))
		var key []byte
		list = append(list, func() ([]byte, Sum, bool) {
			same, err := binary.ReadUvarint(r)
			if err != nil { // the run's end: errors cannot occur, since this process wrote it
				return nil, Sum{}, false
			}
			size, _ := binary.ReadUvarint(r)
			key = slices.Grow(key[:same], int(size))[:same+size]
			io.ReadFull(r, key[same:])
			var n Sum
			n[0], _ = binary.ReadUvarint(r)
			n[1], _ = binary.ReadUvarint(r)
			return key, n, true
		})
	}
	return list
}

// head is a source with its next key, which is read already.
type head struct {
	key  []byte
	n    Sum
	next source
}

// heads is a heap of heads, the first key on top. The methods are those of heap.Interface.
type heads []head

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return bytes.Compare(h[i].key, h[j].key) < 0 }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)        { *h = append(*h, x.(head)) }
func (h *heads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// merge yields the keys of all sources in order, each once. It takes log n steps a key for n sources. A key is valid
// until the next one.
func merge(from []source) iter.Seq2[[]byte, Sum] {
	return func(yield func([]byte, Sum) bool) {
		var h heads
		for _, next := range from {
			if key, n, ok := next(); ok {
				h = append(h, head{key, n, next})
			}
		}
		heap.Init(&h)
		var key []byte
		for len(h) > 0 {
			// The key is copied, since the source that it comes from may overwrite it before yield.
			key = append(key[:0], h[0].key...)
			var sum Sum
			for len(h) > 0 && bytes.Equal(h[0].key, key) {
				first := &h[0]
				sum = Sum{sum[0] + first.n[0], sum[1] + first.n[1]}
				var ok bool
				if first.key, first.n, ok = first.next(); ok {
					heap.Fix(&h, 0)
				} else {
					heap.Pop(&h)
				}
			}
			if !yield(key, sum) {
				return
			}
		}
	}
}
