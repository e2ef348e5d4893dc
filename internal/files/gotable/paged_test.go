package gotable_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/files/gotable"
)

// TestPaged compares reads with those of the file, at its end as well.
func TestPaged(t *testing.T) {
	file := make([]byte, 3<<20+123)
	random := rand.New(rand.NewPCG(3, 4))
	for i := range file {
		file[i] = byte(random.Uint32())
	}
	from := bytes.NewReader(file)
	paged := gotable.Paged(from)
	for range 5000 {
		off, size := random.Int64N(int64(len(file))+100), random.IntN(40<<10)
		if random.IntN(2) == 0 {
			off = int64(len(file)) - random.Int64N(50<<10)
		}
		want, got := make([]byte, size), make([]byte, size)
		n, err := from.ReadAt(want, off)
		m, err2 := paged.ReadAt(got, off)
		if size > 0 {
			require.Equal(t, err, err2)
		}
		require.Equal(t, n, m)
		assert.True(t, bytes.Equal(want, got))
	}
}
