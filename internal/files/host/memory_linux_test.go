package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHeapWithin: half of the addresses that are left, never nothing.
func TestHeapWithin(t *testing.T) {
	assert.EqualValues(t, 512<<20, heapWithin(2<<30, 1<<30))
	assert.EqualValues(t, 32<<20, heapWithin(1<<30, 1<<30))
	assert.EqualValues(t, 32<<20, heapWithin(1<<30, 2<<30))
	assert.Equal(t, int64(math.MaxInt64/2), heapWithin(math.MaxUint64, 0))
}
