package dwarfcfa

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSortSpans compares with a stable sort of the standard library.
func TestSortSpans(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, width := range []int{0, 1, 8, 11, 12, 22, 33, 63, 64} {
		for _, n := range []int{1, 2, 10, 3000} {
			spans := make([]span, n)
			for i := range spans {
				spans[i].start = Addr(rnd.Uint64())
				if width < 64 {
					spans[i].start = 1<<40 + spans[i].start%(1<<width)
				}
				spans[i].offset = uint64(i)
			}
			got := slices.Clone(spans)
			sortSpans(got)
			slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
			require.Equal(t, spans, got, "%d bits", width)
		}
	}
}
