package check

import (
	"testing"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/codeflow"

	"github.com/stretchr/testify/assert"
)

// TestFarOffset: an offset of more than 32 bits is not the one of its low half.
func TestFarOffset(t *testing.T) {
	var s codeflow.State
	for i := range s.Regs {
		s.Regs[i] = codeflow.Value{Kind: codeflow.Base, Reg: 4, Off: 8}
	}
	at := func(offset int64) word {
		return evaluate(dwarfcfa.Expr{Ops: []dwarfcfa.ExprOp{{Code: dwarfcfa.OpReg, Reg: 7, Arg: offset}}}, &s, 0, false)
	}
	assert.Equal(t, int32(24), at(16).v.Off)
	for _, far := range []int64{1<<32 + 16, 1<<31 - 8, -1<<31 - 9, -1 << 63, 1<<63 - 1} {
		assert.False(t, at(far).known(), far)
	}
}
