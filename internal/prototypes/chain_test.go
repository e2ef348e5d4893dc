package prototypes

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// chain is BTF of a function whose type is behind many pointers.
func chain(count uint32) []byte {
	const kindPointer, kindProto, kindFunc = 2, 13, 12
	le := binary.LittleEndian
	word := func(b []byte, list ...uint32) []byte {
		for _, x := range list {
			b = le.AppendUint32(b, x)
		}
		return b
	}
	b := word(nil, magicBTF|1<<16, 24, 0, 12*count+24, 12*count+24, 3)
	for i := range count {
		b = word(b, 0, kindPointer<<24, i+2)
	}
	b = word(b, 0, kindProto<<24, 1)
	b = word(b, 1, kindFunc<<24, count+1)
	return append(b, "\x00f\x00"...)
}

// TestDeep has chains of pointers as long as what is read may have, and longer.
func TestDeep(t *testing.T) {
	table, err := openBTF(nil, chain(maxFileTypes-2))
	require.NoError(t, err)
	assert.Equal(t, "(void)", table.Parameters("f"))
	for _, n := range []uint32{maxFileTypes, 3 << 20} {
		_, err = openBTF(nil, chain(n))
		assert.ErrorContains(t, err, "more than 32768 types")
	}
	_, err = openTypes(chain(3<<20), maxKernelTypes)
	assert.ErrorContains(t, err, "more than 200000 types")
}
