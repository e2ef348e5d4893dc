package compile_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// TestBuild: a file is a tree up to the limit, packed above it, and what was asked for otherwise.
func TestBuild(t *testing.T) {
	table := rowtest.Pages(400, 12, 40)
	build := func(opt compile.Layout, src elfout.Source) (int64, *asmgen.Code) {
		image, code, err := opt.Build(table, src)
		require.NoError(t, err)
		info, err := elfout.ReadInfo(bytes.NewReader(image.Bytes()))
		require.NoError(t, err)
		assert.Equal(t, code.Packed, info.Note.Flags&abi.FlagPacked != 0)
		return int64(len(image.Bytes())), code
	}
	src := elfout.Source{Name: "test"}
	tree, code := build(compile.Layout{Tables: 1 << 20}, src)
	require.False(t, code.Packed)
	packed, code := build(compile.Layout{Tables: 1 << 20, Dispatch: plan.DispatchPacked}, src)
	require.True(t, code.Packed)
	require.Less(t, packed, tree*3/4)
	tables := int64(15<<10 + 1) // from which on files have section headers
	for (compile.Layout{Tables: tables}).Limit() < tree {
		tables++
	}
	got, code := build(compile.Layout{Tables: tables}, src)
	assert.Equal(t, tree, got)
	assert.False(t, code.Packed)
	got, code = build(compile.Layout{Tables: tables - 1}, src)
	assert.Equal(t, packed, got)
	assert.True(t, code.Packed)
	src.HasSites, src.Sites = true, make([]byte, 100) // they count, too
	_, code = build(compile.Layout{Tables: tables}, src)
	assert.True(t, code.Packed)
}

func TestLimit(t *testing.T) {
	for tables, limit := range map[int64]int64{0: 8192, 1000: 9192, 40960: 49152, 40965: 49158, 1000000: 1200000} {
		assert.Equal(t, limit, compile.Layout{Tables: tables}.Limit(), tables)
	}
}

// TestManyRows: more rows than ids of two bytes are for. A tree leads to them, whatever the limit.
func TestManyRows(t *testing.T) {
	const rows = 1<<16 + 1
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for i := range rows {
		start := dwarfcfa.Addr(0x1000 + 4*i)
		table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(i+1)))
		table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: start, End: start + 4, Row: uint32(i)})
	}
	src := elfout.Source{Name: "test"}
	_, _, err := compile.Layout{Dispatch: plan.DispatchPacked}.Build(table, src)
	require.ErrorIs(t, err, asmgen.ErrTooLarge)
	_, code, err := compile.Layout{Tables: 1 << 10}.Build(table, src)
	require.NoError(t, err)
	assert.False(t, code.Packed)
}
