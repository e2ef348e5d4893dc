package symbolize

import (
	"testing"

	"github.com/ehasm/ehasm/perfdata"

	"github.com/stretchr/testify/assert"
)

// TestKernelCodeBounds: pieces of code replace those that they overlap; so many are known.
func TestKernelCodeBounds(t *testing.T) {
	var k KernelCode
	for i := range uint64(2 * mostKernelCode) {
		k.Apply(&perfdata.KSymbol{Addr: 0x1000 + i*16, Len: 16, Name: []byte("a")})
	}
	before := k.Now()
	assert.Len(t, before, mostKernelCode)
	k.Apply(&perfdata.KSymbol{Addr: 0x1008, Len: 32, Name: []byte("b")})
	assert.Equal(t, "b", FindCode(k.Now(), 0x1008).Name)
	assert.Nil(t, FindCode(k.Now(), 0x1007))
	assert.Equal(t, "a", FindCode(before, 0x1008).Name)
	k.Apply(&perfdata.KSymbol{Addr: ^uint64(0), Len: 32})
}
