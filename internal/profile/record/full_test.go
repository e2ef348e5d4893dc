//go:build linux && amd64

package record

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// fillWindow fills the first window of a region with chunks of a kind, but for those of aRegion.
func fillWindow(t *testing.T, r *region, kind chunkKind, body func(b []byte, i int) []byte) {
	aRegion(t, r)
	_, err := r.file.WriteAt(binary.LittleEndian.AppendUint64(nil, regionChunks), windowStart(0))
	require.NoError(t, err)
	for i := 4; i < regionChunks; i++ {
		b, err := binary.Append(nil, binary.LittleEndian, chunkHeader{Ready: r.token, Kind: kind, PID: uint32(os.Getpid()),
			Generation: uint64(i), Used: regionChunk})
		require.NoError(t, err)
		b = append(body(b, i), make([]byte, regionChunk)...)
		_, err = r.file.WriteAt(b[:regionChunk], windowStart(0)+regionPage+int64(i)*regionChunk)
		require.NoError(t, err)
	}
}

// peakOf returns the most memory, in bytes, that was in use while f ran.
func peakOf(f func()) (peak uint64) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	<-over
	return peak
}

// TestRegionFull: a program that fills its window with distinct stacks, addresses or names of files makes this process
// take a bounded amount of memory, and leaves a profile of the rest.
func TestRegionFull(t *testing.T) {
	stacks := func(frames int) func(token uint64) func(b []byte, i int) []byte {
		return func(token uint64) func(b []byte, i int) []byte {
			return func(b []byte, i int) []byte {
				for len(b)+2*regionLine+frames*word <= regionChunk {
					addr := uint64(i)<<32 + uint64(len(b))<<12
					b, _ = binary.Append(b, binary.LittleEndian, stackHeader{Ready: token, Frames: uint32(frames),
						End: int16(abi.StatusOutermost), Generation: 1, Objects: 1 << 16, Bytes: 1000})
					for k := range frames {
						b = binary.LittleEndian.AppendUint64(b, addr+uint64(k)+1<<20)
					}
					b = append(b, make([]byte, (regionLine-len(b)%regionLine)%regionLine)...)
				}
				return b
			}
		}
	}
	names := func(uint64) func(b []byte, i int) []byte {
		return func(b []byte, i int) []byte {
			for k := 0; len(b) < regionChunk; k++ {
				b = fmt.Appendf(b, "%x000-%x000 r-xp 0 00:00 1 /%x/%d\n", k+1, k+2, i, k)
			}
			return b
		}
	}
	for name, c := range map[string]struct {
		kind chunkKind
		body func(token uint64) func(b []byte, i int) []byte
	}{"short stacks": {chunkStacks, stacks(8)}, "deep stacks": {chunkStacks, stacks(1000)}, "names": {chunkMaps, names}} {
		t.Run(name, func(t *testing.T) {
			in := anInside(t)
			defer in.Close()
			fillWindow(t, in.region, c.kind, c.body(in.region.token))
			began := time.Now()
			var p *Profile
			peak := peakOf(func() {
				var err error
				p, _, err = writeAll(in)
				require.NoError(t, err)
			})
			t.Logf("%v, %d MB, %d stacks", time.Since(began), peak>>20, p.Counts.Unwound)
			assert.Less(t, peak, uint64(1<<30))
			assert.GreaterOrEqual(t, p.Inside.Bytes, 5*3000.0)
		})
	}
}
