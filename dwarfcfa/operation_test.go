package dwarfcfa

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// TestOperations checks that no operation lacks an entry: each has its own name, an
// encoding that decodes to it, and is evaluated with the effect that its entry says.
func TestOperations(t *testing.T) {
	encoded := map[ExprCode]bool{}
	for op, e := range encodings {
		if e.compiled && op != dwOpNop {
			encoded[e.op.Code] = true
		}
		assert.Equal(t, e.compiled, e.operands != operandUnknown, "%#x", op)
	}
	names := map[string]bool{}
	for code := range NumExprCodes {
		name := code.String()
		assert.NotEmpty(t, name, "operation %d", uint8(code))
		assert.False(t, names[name], name)
		names[name] = true
		assert.True(t, encoded[code], name)

		// 1, 2, ... are on the stack; what is left of them is counted.
		op := ExprOp{Code: code}
		switch code {
		case OpReg:
			op.Reg = abi.RSP
		case OpDeref:
			op.Arg = 8
		}
		const depth = 5
		pops, pushes := op.Effect()
		left := depth - pops + pushes
		var ops []ExprOp
		for i := range depth {
			ops = append(ops, ExprOp{Code: OpConst, Arg: int64(1 + i)})
		}
		op.Jump = len(ops) + 1
		ops = append(ops, op)
		for range left - 1 {
			ops = append(ops, ExprOp{Code: OpDrop})
		}
		x := Expr{Ops: ops}
		require.NoError(t, x.verify(), name)
		e := evaluator{exprs: []Expr{{}, x}, regs: &abi.Regs{Valid: abi.AllRegs}, mem: anyWord{}}
		v, status := e.expr(1)
		require.Equal(t, abi.StatusOK, status, name)
		if pops < depth && left > 1 {
			assert.EqualValues(t, 1, v, "%s: the lowest entry stays", name)
		}
	}
	assert.Equal(t, "operation 200", ExprCode(200).String())
}

// anyWord is memory that has a word everywhere.
type anyWord struct{}

func (anyWord) ReadWord(uint64) (uint64, bool) { return 7, true }
