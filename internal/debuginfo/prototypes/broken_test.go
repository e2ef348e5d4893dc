package prototypes

import (
	"bytes"
	"debug/elf"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/testing/cdecltest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mutations of the section; docs/validation/signatures.md has a run with 20,000.
var mutations = flag.Int("mutations", 500, "try `N` mutations of the section")

// section is the .BTF of a program.
func section(t testing.TB) []byte {
	t.Helper()
	p := cdecltest.Build(t, cdecltest.Source(t), filepath.Join(t.TempDir(), "prog"), "-gbtf", "-c", "-O2")
	f, err := elf.Open(p)
	require.NoError(t, err)
	defer f.Close()
	sec := f.Section(".BTF")
	require.NotNil(t, sec)
	b, err := sec.Data()
	require.NoError(t, err)
	return b
}

// read reads all prototypes of a section, and reports whether that failed for some.
func read(b []byte) (failed bool) {
	t, err := openBTF(b)
	if err != nil {
		return true
	}
	for p, err := range t.All() {
		failed = failed || err != nil
		_ = t.Parameters(p.Name)
	}
	return failed
}

// TestMutations changes a section at random places: it is read, or refused, in bounded time
// and memory.
func TestMutations(t *testing.T) {
	whole := section(t)
	rnd := rand.New(rand.NewPCG(11, 12))
	require.False(t, read(whole))
	failed := 0
	var slowest time.Duration
	var most uint64
	for range *mutations {
		b := mutate(whole, rnd)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		begin := time.Now()
		if read(b) {
			failed++
		}
		slowest = max(slowest, time.Since(begin))
		runtime.ReadMemStats(&after)
		most = max(most, after.TotalAlloc-before.TotalAlloc)
	}
	t.Logf("%d of %d mutations end in an error, the others say something else; at most %d KB allocated, %v", failed,
		*mutations, most>>10, slowest)
	assert.Less(t, most, uint64(64<<20))
	assert.Greater(t, failed, *mutations/20)
}

// mutate changes some bytes, or the length.
func mutate(whole []byte, rnd *rand.Rand) []byte {
	b := bytes.Clone(whole)
	if rnd.IntN(5) == 0 {
		return b[:rnd.IntN(len(b))]
	}
	for range 1 + rnd.IntN(4) {
		i := rnd.IntN(len(b))
		switch rnd.IntN(3) {
		case 0:
			b[i] = byte(rnd.Uint32())
		case 1:
			b[i] ^= 1 << rnd.IntN(8)
		default:
			copy(b[i:], whole[rnd.IntN(len(whole)-4):][:4])
		}
	}
	return b
}

// FuzzBTF has broken sections: nothing may panic but what is another's.
func FuzzBTF(f *testing.F) {
	f.Add(section(f))
	f.Fuzz(func(_ *testing.T, b []byte) { read(b) })
}
