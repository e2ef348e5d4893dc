package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCompareFrames(t *testing.T) {
	ours := [][]uint64{{1, 2, 3}, {1, 2}, {1, 2}, {1, 2, 3}, {1}, {0}}
	theirs := [][]uint64{{1, 2, 3, 0}, {1, 2, 3}, {1}, {1, 3, 3}}
	a := compareFrames(ours, theirs)
	assert.Equal(t, agreement{Same: 1, Longer: 1, Shorter: 3, Other: 1,
		First: "sample 1: [0x1 0x2 0x3], ours [0x1 0x2]"}, a)
}
