package ehelf_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/elfouttest"
)

// place is a stretch of an address space, and the eh_elf there, if any.
type place struct {
	start, end, bias uint64
	object           *ehelf.EhElf
}

// walkPlaces does what Spans.Walk does, a call of EhElf.Walk at a time.
func walkPlaces(places []place, regs *abi.Regs, mem *ehelf.Memory, pcs []uint64) (steps, last int) {
	for {
		pc := regs.Reg[abi.RIP]
		if regs.Exact == 0 {
			pc--
		}
		last = -1
		for i, p := range places {
			if pc >= p.start && pc < p.end {
				last = i
			}
		}
		if last < 0 || places[last].object == nil {
			regs.Status = abi.StatusNoInfo
			return steps, last
		}
		n := places[last].object.Walk(regs, mem, places[last].bias, pcs[steps:])
		steps += n
		if steps == len(pcs) || n == 0 || regs.Status != abi.StatusNoInfo {
			return steps, last
		}
	}
}

// manyPlaces lays the test object out n times; every fifth has no eh_elf.
func manyPlaces(o *ehelf.EhElf, n int, rng *rand.Rand) ([]place, *ehelf.Spans) {
	spans := new(ehelf.Spans)
	var places []place
	addr := uint64(0x10000)
	for i := range n {
		addr += rng.Uint64N(3) * 0x1000
		p := place{start: addr, end: addr + 0x3000 + rng.Uint64N(5)*0x777, bias: addr + 0x1000 - elfouttest.Low}
		addr = p.end
		spans.Add(p.start, p.end)
		if i%5 != 4 {
			p.object = o
			spans.Set(i, o, p.bias)
		}
		places = append(places, p)
	}
	return places, spans
}

// TestSpans walks through objects that lie beside each other, with stacks whose
// pcs are drawn around the ends of the objects, too.
func TestSpans(t *testing.T) {
	o := load(t)
	rng := rand.New(rand.NewPCG(5, 6))
	ends := map[abi.Status]int{}
	crossed := 0
	for _, count := range []int{1, 2, 7, 40, 700, 70000} {
		places, spans := manyPlaces(o, count, rng)
		for range 3 + 60000/(count+100) {
			const lo, depth = 0x7ffc_0000_0000, 40
			window := make([]byte, 16*depth)
			pc := func() uint64 {
				p := places[rng.IntN(len(places))]
				if rng.IntN(16) == 0 {
					return p.start + rng.Uint64N(3) - 1
				}
				if rng.IntN(16) == 0 {
					return p.end + rng.Uint64N(3) - 1
				}
				return p.bias + elfouttest.Low + rng.Uint64N(0x1010)
			}
			for i := range depth {
				binary.LittleEndian.PutUint64(window[16*i:], pc())
			}
			regs := frame(lo)
			regs.Reg[abi.RIP], regs.Exact = pc(), uint16(rng.IntN(2))
			mem := ehelf.Memory{Lo: lo, Bytes: window}
			pcs, wantPCs := make([]uint64, 1+rng.IntN(2*depth)), make([]uint64, 2*depth)
			want := regs
			wantPCs = wantPCs[:len(pcs)]
			n, last := walkPlaces(places, &want, &mem, wantPCs)
			gotN, gotLast := spans.Walk(&regs, &mem, pcs)
			require.Equal(t, n, gotN)
			require.Equal(t, last, gotLast)
			require.Equal(t, wantPCs, pcs)
			require.Equal(t, want, regs)
			ends[want.Status]++
			if n > 3 {
				crossed++
			}
		}
	}
	for _, s := range []abi.Status{abi.StatusOK, abi.StatusOutermost, abi.StatusNoInfo, abi.StatusUnreadable} {
		assert.NotZero(t, ends[s], "%v", s)
	}
	assert.Greater(t, crossed, 100)
}

func TestSpansEmpty(t *testing.T) {
	regs, mem, _ := deepStack(2)
	pcs := make([]uint64, 2)
	n, last := new(ehelf.Spans).Walk(&regs, &mem, pcs)
	assert.Equal(t, [2]int{0, -1}, [2]int{n, last})
	assert.Equal(t, abi.StatusNoInfo, regs.Status)
	spans := new(ehelf.Spans)
	spans.Add(0, 1<<63)
	regs.Status = 0
	n, last = spans.Walk(&regs, &mem, nil)
	assert.Equal(t, [2]int{0, -1}, [2]int{n, last})
	assert.Equal(t, abi.StatusNoInfo, regs.Status)
}

// TestSpansStackMoves is TestStackMoves for Spans.
func TestSpansStackMoves(t *testing.T) {
	o := load(t)
	var wg sync.WaitGroup
	for depth := range 200 {
		wg.Go(func() {
			spans := new(ehelf.Spans)
			spans.Add(bias, bias+elfouttest.High)
			spans.Set(0, o, bias)
			spansAtDepth(t, spans, depth)
		})
	}
	wg.Wait()
}

//go:noinline
func spansAtDepth(t *testing.T, spans *ehelf.Spans, depth int) byte {
	var pad [56]byte
	if depth > 0 {
		return spansAtDepth(t, spans, depth-1) + pad[depth%len(pad)]
	}
	const lo = 0x9000
	var window [64]byte
	for i := range 4 {
		binary.LittleEndian.PutUint64(window[16*i:], bias+elfouttest.Low+uint64(8*i+2))
	}
	var pcs [4]uint64
	regs, mem := frame(lo), ehelf.Memory{Lo: lo, Bytes: window[:]}
	if n, last := spans.Walk(&regs, &mem, pcs[:]); n != 4 || last != 0 || pcs[3] != bias+elfouttest.Low+26 {
		t.Errorf("%d steps, %#x", n, pcs)
	}
	return pad[0]
}

func TestPrefetch(t *testing.T) {
	b := make([]byte, 1000)
	for _, n := range []int{-1, 0, 1, 64, 999, 1000, 1 << 20} {
		ehelf.Prefetch(b, n)
	}
	ehelf.Prefetch(nil, 10)
	ehelf.Prefetch(unsafe.Slice(&b[999], 1), 10)
	assert.Equal(t, make([]byte, 1000), b)
}
