//go:build linux && amd64

package record

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMadeKernelCode: samples in BPF programs that lie at one address one after the other have their names.
func TestMadeKernelCode(t *testing.T) {
	const kernel, made = 0xffffffff81000000, 0xffffffffc0001000
	var s Session
	starts := func() []uint64 {
		pcs := []uint64{made + 0x10, kernel}
		s.numberMade(pcs)
		return pcs
	}
	assert.Equal(t, []uint64{made + 0x10, kernel}, starts(), "nothing is known")
	s.kernelCode.Apply(made, made+64, "first", false)
	first := starts()
	s.kernelCode.Apply(made, made+64, "first", true)
	assert.Equal(t, []uint64{made + 0x10, kernel}, starts(), "it is gone")
	s.kernelCode.Apply(made, made+32, "second", false)
	second := starts()
	p := &Profile{Made: s.part.made}
	for name, pcs := range map[string][]uint64{"first": first, "second": second} {
		pc, code := p.madeAt(pcs[0])
		assert.Equal(t, uint64(made+0x10), pc)
		assert.Equal(t, name, code.Name)
		pc, code = p.madeAt(pcs[1])
		assert.Equal(t, uint64(kernel), pc)
		assert.Nil(t, code)
	}
}
