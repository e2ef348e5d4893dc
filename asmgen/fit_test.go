package asmgen

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/rowtest"
)

// TestFit: a limit is kept to where it can be, and a lower one never makes a file larger.
func TestFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for i := range 40 {
		table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(i+1), []int{abi.RBX, abi.R12, abi.R13, abi.R14}[:i%5]...))
	}
	at := dwarfcfa.Addr(0x1000)
	for i := range 3000 {
		size := dwarfcfa.Addr(1 + rng.IntN(1<<rng.IntN(7)))
		table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: at, End: at + size, Row: uint32((i + rng.IntN(7)) % 40)})
		if n := len(table.Ranges); n > 1 && table.Ranges[n-1].Row == table.Ranges[n-2].Row {
			table.Ranges[n-1].Row = (table.Ranges[n-1].Row + 1) % 40
		}
		at += size
	}
	bytes := func(c *Code) int { return len(c.Text) + len(c.Data) }
	size := func(limit int) int {
		c, err := Fit(table, plan.Options{DenseKeys: 24}, Options{}, limit, bytes)
		require.NoError(t, err)
		return bytes(c)
	}
	whole := size(0)
	last := whole
	assert.Equal(t, whole, size(whole))
	for percent := 95; percent >= 75; percent -= 5 {
		limit := whole * percent / 100
		got := size(limit)
		assert.LessOrEqual(t, got, limit)
		assert.LessOrEqual(t, got, last+last/10)
		last = got
	}
	assert.Less(t, size(1), whole*3/4) // as small as it gets
	packed, err := Fit(table, plan.Options{Dispatch: plan.DispatchPacked}, Options{}, 1, bytes)
	require.NoError(t, err)
	assert.True(t, packed.Packed)
}

// TestFarHeads: where the text is larger than what chose distances of 2 bytes took it for, they have 4, or heads lie in slots.
func TestFarHeads(t *testing.T) {
	opt := Options{Compact: true, OneLookup: true}
	for _, far := range []bool{false, true} {
		if far {
			opt.reach = 0x400
		}
		for _, shared := range []bool{false, true} {
			opt.SharedHead = shared
			for _, d := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
				p, err := plan.Build(sample(), plan.Options{Dispatch: d, DenseKeys: 3})
				require.NoError(t, err)
				_, err = attempt(p, opt, false)
				if far {
					require.ErrorIs(t, err, errFarHead)
				} else {
					require.NoError(t, err)
				}
				want, err := attempt(p, opt, far)
				require.NoError(t, err)
				c, err := Assemble(p, opt)
				require.NoError(t, err)
				assert.Equal(t, want.Text, c.Text)
				assert.Equal(t, want.Data, c.Data)
			}
		}
		c, err := Fit(sample(), plan.Options{}, Options{reach: opt.reach}, 1, func(c *Code) int { return len(c.Text) + len(c.Data) })
		require.NoError(t, err)
		assert.True(t, c.Packed)
	}
}

// TestManyRows: more rows than ids of two bytes are for. Trees lead to them, whatever the limit.
func TestManyRows(t *testing.T) {
	const rows = 1<<16 + 1
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for i := range rows {
		at := dwarfcfa.Addr(0x1000 + 4*i)
		table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(i+1)))
		table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: at, End: at + 4, Row: uint32(i)})
	}
	_, err := Fit(table, plan.Options{Dispatch: plan.DispatchPacked}, Options{}, 0, nil)
	require.ErrorIs(t, err, ErrTooLarge)
	c, err := Fit(table, plan.Options{}, Options{}, 1<<20, func(c *Code) int { return len(c.Text) + len(c.Data) })
	require.NoError(t, err)
	assert.False(t, c.Packed)
}
