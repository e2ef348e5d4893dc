package verify

import (
	"math/bits"

	"github.com/ehasm/ehasm/internal/testing/thunk"
)

// rng is the SplitMix64 generator. Verification draws about forty numbers per
// step; with the generators of math/rand that takes longer than the step.
type rng struct{ state uint64 }

// word returns 64 random bits.
func (r *rng) word() uint64 {
	r.state += 0x9e3779b97f4a7c15
	return thunk.Mix(r.state)
}

// below returns a number in [0, n); 0 if n is 0.
func (r *rng) below(n uint64) uint64 {
	hi, _ := bits.Mul64(r.word(), n)
	return hi
}

// oneIn returns true once in n times on average; n is a power of two.
func (r *rng) oneIn(n uint64) bool { return r.word()&(n-1) == 0 }
