package inspect

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// TestListing disassembles all code of a table: each byte of the text is part of an instruction.
func TestListing(t *testing.T) {
	table := &dwarfcfa.Table{
		Exprs: []dwarfcfa.Expr{{}, {Ops: []dwarfcfa.ExprOp{
			{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: 8}, {Code: dwarfcfa.OpReg, Reg: abi.RIP},
			{Code: dwarfcfa.OpConst, Arg: 15}, {Code: dwarfcfa.OpAnd}, {Code: dwarfcfa.OpPlus},
		}}},
		Rows: []dwarfcfa.Row{rowtest.Row(abi.RSP, 8), rowtest.Row(abi.RSP, 16, abi.RBX), rowtest.Row(abi.RSP, 0)},
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1010, Row: 0}, {Start: 0x1010, End: 0x1100, Row: 1},
			{Start: 0x1100, End: 0x1200, Row: 2}},
	}
	table.Rows[2].CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: 1}
	for _, dispatch := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
		p, err := plan.Build(table, plan.Options{Dispatch: dispatch})
		require.NoError(t, err)
		code, err := asmgen.Assemble(p, asmgen.Options{})
		require.NoError(t, err)

		var marks []string
		end := uint32(0)
		for l := range listing(code, nil) {
			require.Equal(t, end, l.Off)
			require.NotEqual(t, "(bad)", l.Text, "%#x", l.Off)
			marks = append(marks, l.Marks...)
			end += uint32(len(l.Bytes) / 2)
		}
		assert.Len(t, code.Text, int(end))
		for _, m := range []string{abi.SymbolStep, abi.SymbolWalk, "dispatch", "read_word", "block_1"} {
			assert.Contains(t, marks, m)
		}

		pc := dwarfcfa.Addr(0x1010)
		var out bytes.Buffer
		require.NoError(t, writeListing(&out, code, &pc))
		assert.Regexp(t, `(?m)^block_\d+:\n +[0-9a-f]+:  [0-9a-f]+ +\w`, out.String())
		assert.Regexp(t, ` j[a-z]+ +[a-z_0-9]*[g-z_]`, out.String(), "branches lead to names")
		assert.NotContains(t, out.String(), abi.SymbolWalk+":")
	}
}
