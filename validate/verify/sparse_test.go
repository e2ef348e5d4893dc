package verify

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/prove"
)

// sparseTable has groups of ranges with gaps, and ranges, of up to 2^bits bytes between them.
func sparseTable(rng *rand.Rand, groups, bits int) *dwarfcfa.Table {
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for i := range 12 {
		t.Rows = append(t.Rows, rowtest.Row(abi.RSP, 8*int64(i+1)))
	}
	t.Rows = append(t.Rows, rowtest.Row(abi.RBP, 16, abi.RBP), rowtest.Row(abi.RBX, 16))
	pc := dwarfcfa.Addr(rng.Uint64N(5000))
	add := func(size uint64) {
		r := dwarfcfa.Range{Start: pc, End: pc + dwarfcfa.Addr(size), Row: uint32(rng.IntN(len(t.Rows)))}
		if n := len(t.Ranges); n > 0 && t.Ranges[n-1].End == pc && t.Ranges[n-1].Row == r.Row {
			r.Row = (r.Row + 1) % uint32(len(t.Rows))
		}
		t.Ranges = append(t.Ranges, r)
		pc = r.End
	}
	far := func() uint64 { return 1 + rng.Uint64N(1<<rng.IntN(bits+1)) }
	for range groups {
		switch rng.IntN(4) {
		case 0:
			add(far())
		case 1:
			pc = (pc + dwarfcfa.Addr(far()) + 0xff) &^ 0xff // the next one begins with a page
		default:
			pc += dwarfcfa.Addr(far())
		}
		for range rng.IntN(60) {
			add(1 + rng.Uint64N(1<<rng.IntN(9)))
		}
	}
	add(1)
	return normalised(t)
}

// normalised puts the rows into the order of their first use.
func normalised(t *dwarfcfa.Table) *dwarfcfa.Table {
	number := map[uint32]uint32{}
	var rows []dwarfcfa.Row
	for i := range t.Ranges {
		r := &t.Ranges[i]
		id, known := number[r.Row]
		if !known {
			id = uint32(len(rows))
			number[r.Row] = id
			rows = append(rows, t.Rows[r.Row])
		}
		r.Row = id
	}
	t.Rows = rows
	return t
}

// TestSparse compares steps at the first and last pc of every range and gap, of objects whose
// page tables are cut into segments.
func TestSparse(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, v := range variants() {
		segments := 0
		for _, c := range []struct{ groups, bits int }{{1, 30}, {2, 28}, {3, 26}, {10, 24}, {60, 18}, {100, 12},
			{200, 20}} {
			for n := range 5 {
				name := fmt.Sprint(v.name, c, n)
				table := sparseTable(rng, c.groups, c.bits)
				require.NoError(t, table.Verify(), name)
				p, err := plan.Build(table, v.plan)
				require.NoError(t, err, name)
				segments += len(p.Segments)
				image := compile(t, table, v)
				_, err = Image(image, table)
				require.NoError(t, err, name)
				_, err = prove.Image(image, table)
				require.NoError(t, err, name)
				if c.bits >= 20 {
					assert.Less(t, len(image), 8192+16*len(table.Ranges)+600*c.groups, name)
				}
			}
		}
		assert.Greater(t, segments, 400, v.name)
	}
}

// TestOneRange: a single range of many pages needs no table at all.
func TestOneRange(t *testing.T) {
	table := &dwarfcfa.Table{
		Exprs: make([]dwarfcfa.Expr, 1), Rows: []dwarfcfa.Row{rowtest.Row(abi.RSP, 8)},
		Ranges: []dwarfcfa.Range{{Start: 0x1234, End: 0x40001235, Row: 0}},
	}
	for _, v := range variants() {
		image := compile(t, table, v)
		require.Less(t, len(image), 8192, v.name)
		_, err := Image(image, table)
		require.NoError(t, err, v.name)
		_, err = prove.Image(image, table)
		require.NoError(t, err, v.name)
	}
}
