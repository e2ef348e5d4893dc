package asmgen

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// sample has a row of every kind: fast on rsp and rbp, an expression, the end of
// the stack, one that is not compiled, and a hole.
func sample() *dwarfcfa.Table {
	plt := rowtest.Row(abi.RSP, 0)
	plt.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: 1}
	var end dwarfcfa.Row
	end.Regs[abi.RIP].Kind = dwarfcfa.RuleUndefined
	t := &dwarfcfa.Table{
		Exprs: []dwarfcfa.Expr{{}, {Ops: []dwarfcfa.ExprOp{
			{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: 8}, {Code: dwarfcfa.OpReg, Reg: abi.RIP},
			{Code: dwarfcfa.OpConst, Arg: 15}, {Code: dwarfcfa.OpAnd}, {Code: dwarfcfa.OpConst, Arg: 11},
			{Code: dwarfcfa.OpGe}, {Code: dwarfcfa.OpConst, Arg: 3}, {Code: dwarfcfa.OpShl}, {Code: dwarfcfa.OpPlus},
		}}},
		Rows: []dwarfcfa.Row{rowtest.Row(abi.RSP, 8), rowtest.Row(abi.RSP, 16, abi.RBX),
			rowtest.Row(abi.RBP, 16, abi.RBP), plt, end,
			{Flags: dwarfcfa.RowNotCompiled}, rowtest.Row(abi.RSP, 4096, abi.R15, abi.R14, abi.R13, abi.R12, abi.RBP,
				abi.RBX)},
	}
	addr := dwarfcfa.Addr(0x401000)
	for i := range 3000 { // pages of many rows and of one
		length := dwarfcfa.Addr(1 + i*7%40)
		if i%50 == 0 {
			length = 1000
		}
		t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: addr, End: addr + length, Row: uint32(i % len(t.Rows))})
		addr += length
		if i%11 == 0 {
			addr += 20
		}
	}
	return t
}

func assemble(t *testing.T, d plan.Dispatch, opt Options) *Code {
	t.Helper()
	p, err := plan.Build(sample(), plan.Options{Dispatch: d})
	require.NoError(t, err)
	c, err := Assemble(p, opt)
	require.NoError(t, err)
	return c
}

func eachDispatch(t *testing.T, f func(t *testing.T, d plan.Dispatch)) {
	for _, d := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
		t.Run(d.String(), func(t *testing.T) { f(t, d) })
	}
}

func TestDeterministic(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d plan.Dispatch) {
		a, b := assemble(t, d, Options{}), assemble(t, d, Options{})
		assert.True(t, bytes.Equal(a.Text, b.Text) && bytes.Equal(a.Data, b.Data))
		assert.Equal(t, a.Fixups, b.Fixups)
	})
}

// TestStackUse adds up the deepest frames: the interface promises at most 512
// bytes beside what the read callback uses.
func TestStackUse(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d plan.Dispatch) {
		c := assemble(t, d, Options{})
		walk := slices.IndexFunc(c.Symbols, func(s Symbol) bool { return s.Name == abi.SymbolWalk })
		spill := slices.IndexFunc(c.Marks, func(m Mark) bool { return m.Name == "spill" }) // the first subroutine
		// by whether it is the walk itself
		deepest := map[bool]int32{}
		for _, f := range c.Frames {
			for _, r := range f.Rows {
				if r.Off >= c.Symbols[walk].Start {
					own := r.Off < c.Marks[spill].Off
					deepest[own] = max(deepest[own], r.CFAOffset)
				}
			}
		}
		// The walk, an expression (a return address) and readWord in turn.
		total := deepest[true] + 8 + deepest[false] + 8
		assert.Greater(t, total, int32(300), "the frames were found")
		assert.LessOrEqual(t, total, int32(512))
	})
}

// TestFrames checks that unwind information covers the text, in order.
func TestFrames(t *testing.T) {
	eachDispatch(t, func(t *testing.T, d plan.Dispatch) {
		for _, opt := range []Options{{}, {NoDeref: true}} {
			c := assemble(t, d, opt)
			off := uint32(0)
			for _, f := range c.Frames {
				assert.Equal(t, off, f.Start)
				require.NotEmpty(t, f.Rows)
				assert.Equal(t, f.Start, f.Rows[0].Off)
				assert.EqualValues(t, 8, f.Rows[0].CFAOffset)
				assert.True(t, slices.IsSortedFunc(f.Rows, func(a, b FrameRow) int { return int(a.Off) - int(b.Off) }))
				off = f.End
			}
			assert.Equal(t, uint32(len(c.Text)), off)
			assert.Equal(t, off, c.Symbols[len(c.Symbols)-1].End)
		}
	})
}

// TestCodeFields compares what the code says of itself with the table.
func TestCodeFields(t *testing.T) {
	table := sample()
	c := assemble(t, plan.DispatchPacked, Options{NoDeref: true})
	assert.Equal(t, []any{table.Low(), table.High(), len(table.Ranges), len(table.Rows), true, true},
		[]any{c.Low, c.High, c.Ranges, c.Rows, c.NoDeref, c.Packed})
}
