package verify

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// TestEvery finds a row that differs at one pc inside of a range, where Image does not
// look, and none in a right file.
func TestEvery(t *testing.T) {
	table := func() *dwarfcfa.Table {
		return &dwarfcfa.Table{
			Exprs: make([]dwarfcfa.Expr, 1), Rows: []dwarfcfa.Row{pushed(), rowtest.Row(abi.RBP, 16, abi.RBP),
				rowtest.Row(abi.RBX, 16)},
			Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1080, Row: 0}, {Start: 0x1080, End: 0x10f0, Row: 1},
				{Start: 0x1100, End: 0x1110, Row: 2}},
		}
	}
	for _, v := range variants() {
		image := compile(t, table(), v)
		result, err := Every(image, table())
		require.NoError(t, err)
		assert.Greater(t, result.PCs, 0x110+512)
		other := table()
		other.Ranges = []dwarfcfa.Range{{Start: 0x1000, End: 0x1040, Row: 0}, {Start: 0x1040, End: 0x1041, Row: 1},
			{Start: 0x1041, End: 0x1080, Row: 0}, {Start: 0x1080, End: 0x10f0, Row: 1},
			{Start: 0x1100, End: 0x1110, Row: 2}}
		_, err = Every(compile(t, other, v), table())
		require.ErrorIs(t, err, ErrDisagree)
	}
}
