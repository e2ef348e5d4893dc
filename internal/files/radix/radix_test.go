package radix

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSort compares with a stable sort of the standard library.
func TestSort(t *testing.T) {
	type element struct {
		key   uint64
		index int
	}
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, width := range []int{0, 1, 8, 11, 12, 22, 33, 63, 64} {
		for _, n := range []int{0, 1, 2, 10, 3000} {
			list := make([]element, n)
			for i := range list {
				list[i] = element{rnd.Uint64(), i}
				if width < 64 {
					list[i].key = 1<<40 + list[i].key%(1<<width)
				}
			}
			got := slices.Clone(list)
			Sort(got, func(e *element) uint64 { return e.key })
			slices.SortStableFunc(list, func(a, b element) int { return cmp.Compare(a.key, b.key) })
			require.Equal(t, list, got, "%d bits", width)
		}
	}
}
