package dwarfcfa

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
)

// Verify finds what it is there to find.
func TestVerify(t *testing.T) {
	good := func() *Table {
		table, _ := fdeTable(t, advance(1), def(16), save(3, 2), advance(1),
			inst(CFADefCFAExpression, block(0x76, 0x00, 0x06)),
			advance(1), inst(CFAExpression, uleb(3), block(0x76, 0x08)), advance(1), inst(CFAUndefinedReg, uleb(16)),
			advance(1), def(8), inst(CFARegister, uleb(16), uleb(17)))
		return table
	}
	require.NoError(t, good().Verify())
	require.Len(t, good().Rows, 6)
	tests := []struct {
		name, want string
		harm       func(*Table)
	}{
		{"empty range", "is empty", func(t *Table) { t.Ranges[0].End = t.Ranges[0].Start }},
		{"no such row", "row 9 of 6", func(t *Table) { t.Ranges[0].Row = 9 }},
		{"overlap", "inside the one before", func(t *Table) { t.Ranges[0].End++ }},
		{"not merged", "continues the one before", func(t *Table) { t.Ranges[1].Row = 0 }},
		{"order of rows", "is used before", func(t *Table) { t.Ranges[0].Row = 1 }},
		{"unused row", "rows are used", func(t *Table) { t.Rows = append(t.Rows, Row{}) }},
		{"equal rows", "are equal", func(t *Table) { t.Rows[1] = t.Rows[0] }},
		{"unspecified", "rule of kind 0", func(t *Table) { t.Rows[0].Regs[3] = RegRule{} }},
		{"unused field", "rule {Offset:1", func(t *Table) { t.Rows[0].Regs[3].Offset = 1 }},
		{"register", "rule {Offset:0", func(t *Table) { t.Rows[0].Regs[3] = RegRule{Kind: RuleRegister, Reg: 17} }},
		{"CFA kind", "CFA of kind 0", func(t *Table) { t.Rows[0].CFA = CFARule{} }},
		{"CFA register", "CFA {", func(t *Table) { t.Rows[0].CFA.Reg = 17 }},
		{"flags", "unknown flags", func(t *Table) { t.Rows[0].Flags = 4 }},
		{"end of stack", "not canonical", func(t *Table) { t.Rows[0].Regs[abi.RIP] = RegRule{Kind: RuleUndefined} }},
		{"not compiled", "not canonical", func(t *Table) { t.Rows[0].Flags = RowNotCompiled }},
		{"no expression", "CFA: expression 0", func(t *Table) { t.Rows[2].CFA.Expr = 0 }},
		{"no such expression", "expression 7 of 3", func(t *Table) { t.Rows[3].Regs[3].Expr = 7 }},
		{"expression of the other kind", "Pushed is", func(t *Table) { t.Exprs[1].Pushed = true }},
		{"backward jump", "jump to 0", func(t *Table) { t.Exprs[1].Ops[1] = ExprOp{Code: OpSkip} }},
		{"dead operation", "is dead",
			func(t *Table) { t.Exprs[1].Ops = []ExprOp{{Code: OpConst}, {Code: OpSkip, Jump: 3}, {Code: OpNeg}} }},
		{"unequal depths", "reached with stacks of", func(t *Table) {
			t.Exprs[1].Ops = []ExprOp{{Code: OpConst}, {Code: OpDup}, {Code: OpBranch, Jump: 4}, {Code: OpDup},
				{Code: OpNeg}}
		}},
		{"underflow", "stack of 0", func(t *Table) { t.Exprs[1].Ops = []ExprOp{{Code: OpPlus}} }},
		{"no result", "no result", func(t *Table) { t.Exprs[1].Ops = nil }},
		{"register of an expression", "register 17", func(t *Table) { t.Exprs[1].Ops[0].Reg = 17 }},
		{"size of a read", "reads 3 bytes", func(t *Table) { t.Exprs[1].Ops[1].Arg = 3 }},
		{"too long", "257 operations", func(t *Table) { t.Exprs[1].Ops = make([]ExprOp, MaxExprOps+1) }},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			table := good()
			tc.harm(table)
			err := table.Verify()
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.want)
		})
	}
}
