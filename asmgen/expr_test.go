package asmgen

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// TestEveryOperation checks that each operation of expressions is compiled, and that
// compiling and decoding have the same notion of its effect on the stack.
func TestEveryOperation(t *testing.T) {
	for code := range dwarfcfa.NumExprCodes {
		op := dwarfcfa.ExprOp{Code: code, Jump: 6}
		switch code {
		case dwarfcfa.OpReg:
			op.Reg = abi.RSP
		case dwarfcfa.OpDeref:
			op.Arg = 8
		}
		var ops []dwarfcfa.ExprOp
		for i := range 5 {
			ops = append(ops, dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: int64(i)})
		}
		pops, pushes := op.Effect()
		g := &generator{asm: newAssembler(), plan: &plan.Plan{}}
		c := exprCode{g: g, depth: len(ops), labels: map[int]label{}, depths: map[int]int{}}
		require.NoError(t, c.op(op, len(ops)), code)
		require.Equal(t, len(ops)-pops+pushes, c.depth, code)

		row := rowtest.Row(abi.RSP, 0)
		row.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: 1}
		table := &dwarfcfa.Table{
			Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1010}},
			Rows:   []dwarfcfa.Row{row}, Exprs: []dwarfcfa.Expr{{}, {Ops: append(ops, op)}},
		}
		p, err := plan.Build(table, plan.Options{})
		require.NoError(t, err, code)
		_, err = Assemble(p, Options{})
		require.NoError(t, err, code)
	}
}
