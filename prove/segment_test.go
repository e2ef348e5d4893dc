package prove

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/rowtest"
)

// TestSegmentBorders: a border that lies a page elsewhere, and a search that takes the other way, are refused.
func TestSegmentBorders(t *testing.T) {
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	at := dwarfcfa.Addr(0x1000)
	for i := range 6 {
		for j := range 9 {
			if i == 0 {
				table.Rows = append(table.Rows, rowtest.Row(abi.RSP, 8*int64(j+1)))
			}
			end := at + 13
			if j == 8 {
				end += 0x100000
			}
			table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: at, End: end, Row: uint32(j)})
			at = end
		}
		at += 0x80000 * dwarfcfa.Addr(i)
	}
	for _, v := range variants()[:2] {
		p, err := plan.Build(table, v.plan)
		require.NoError(t, err)
		require.Greater(t, len(p.Segments), 12, v.name)
		image := compile(t, table, v)
		_, err = Image(image, table)
		require.NoError(t, err, v.name)
		borders := 0
		for i := range p.Segments[1:] {
			border := binary.LittleEndian.AppendUint32([]byte{0x3d}, uint32(p.Segments[i+1].First*plan.PageSize))
			at := bytes.Index(image, border)
			require.GreaterOrEqual(t, at, 0, v.name)
			require.Equal(t, at, bytes.LastIndex(image, border), v.name)
			for _, by := range []int32{-256, 256, -1 << 31} {
				mutant := bytes.Clone(image)
				binary.LittleEndian.PutUint32(mutant[at+1:], binary.LittleEndian.Uint32(mutant[at+1:])+uint32(by))
				_, err := Image(mutant, table)
				assert.ErrorIs(t, err, ErrNotProven, "%s: border %d by %d", v.name, i, by)
			}
			mutant := bytes.Clone(image)
			mutant[at+6] ^= 1 // the jump's condition
			_, err := Image(mutant, table)
			assert.ErrorIs(t, err, ErrNotProven, "%s: border %d", v.name, i)
			borders++
		}
		assert.Equal(t, len(p.Segments)-1, borders)
	}
}
