package symbolize

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestKernelCodeBounds: pieces of code replace those that they overlap; their number is bounded.
func TestKernelCodeBounds(t *testing.T) {
	var k KernelCode
	for i := range uint64(2 * mostKernelCode) {
		k.Apply(0x1000+i*16, 0x1010+i*16, "a", false)
	}
	before := k.Now()
	assert.Len(t, before, mostKernelCode)
	k.Apply(0x1008, 0x1028, "b", false)
	assert.Equal(t, "b", FindCode(k.Now(), 0x1008).Name)
	assert.Nil(t, FindCode(k.Now(), 0x1007))
	assert.Equal(t, "a", FindCode(before, 0x1008).Name)
	k.Apply(^uint64(0), 31, "c", false)
}
