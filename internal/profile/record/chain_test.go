//go:build linux && amd64

package record

import (
	"testing"

	"github.com/ehasm/ehasm/perfdata"

	"github.com/stretchr/testify/assert"
)

// TestAfter: of frames that recurse, the one with as many before it counts.
func TestAfter(t *testing.T) {
	chain := []uint64{1, 2, 2, 2, 3, 4}
	for _, c := range []struct{ pcs, want []uint64 }{
		{[]uint64{1, 2, 2}, []uint64{2, 3, 4}},
		{[]uint64{1, 2, 2, 2}, []uint64{3, 4}},
		{[]uint64{1, 9, 2, 2, 2, 3}, []uint64{4}}, // the chain lacks the leaf's caller
		{[]uint64{1, 3}, []uint64{4}},
		{[]uint64{1, 2, 2, 2, 3, 4}, []uint64{}},
		{[]uint64{1, 5}, nil},
	} {
		assert.Equal(t, c.want, after(chain, c.pcs), "%v", c.pcs)
	}
	assert.Empty(t, after(nil, []uint64{1, 2}))
}

// TestChainPart: the kernel's part of a call chain comes first.
func TestChainPart(t *testing.T) {
	kernel := []uint64{perfdata.ContextKernel, 1 << 63}
	both := &perfdata.Sample{Callchain: append(kernel, perfdata.ContextUser, 7, 8)}
	assert.Equal(t, []uint64{7, 8}, chainPart(nil, both, perfdata.ModeUser))
	assert.Equal(t, []uint64{1 << 63}, chainPart(nil, both, perfdata.ModeKernel))
	assert.Empty(t, chainPart(nil, &perfdata.Sample{Callchain: kernel}, perfdata.ModeUser))
	// Words of user memory that frame pointers led to.
	forged := &perfdata.Sample{Callchain: []uint64{perfdata.ContextUser, 7, perfdata.ContextKernel, 8}}
	assert.Empty(t, chainPart(nil, forged, perfdata.ModeKernel))
	assert.Equal(t, []uint64{7, perfdata.ContextKernel, 8}, chainPart(nil, forged, perfdata.ModeUser))
}
