package stack

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestShorten: of a long stack both ends are kept, with the places that their frames have.
func TestShorten(t *testing.T) {
	th := Thread{PCs: []uint64{10, 11, 12, 13, 14, 15, 16}, Guessed: []int{0, 3, 4, 5, 6}}
	th.shorten(7)
	assert.Zero(t, th.LeftOut)
	assert.Equal(t, 6, th.FrameNumber(6))
	th.shorten(5)
	assert.Equal(t, 2, th.LeftOut)
	assert.Equal(t, []uint64{10, 11, 12, 15, 16}, th.PCs)
	assert.Equal(t, []int{0, 3, 4}, th.Guessed)
	assert.Equal(t, []int{2, 5, 6}, []int{th.FrameNumber(2), th.FrameNumber(3), th.FrameNumber(4)})
}
