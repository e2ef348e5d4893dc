package convert

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/sframe"
)

// TestUnknownRule: a rule of a kind without a case is left out under its own reason.
func TestUnknownRule(t *testing.T) {
	for kind, want := range map[dwarfcfa.RuleKind]string{
		dwarfcfa.RuleUndefined: "a lost rbp", dwarfcfa.RuleValExpression + 1: "a rule of kind 8",
	} {
		row := dwarfcfa.Row{CFA: dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: abi.RSP, Offset: 16}}
		row.Regs[abi.RSP].Kind = dwarfcfa.RuleValOffset
		row.Regs[abi.RIP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -8}
		row.Regs[abi.RBP].Kind = kind
		table := &dwarfcfa.Table{Rows: []dwarfcfa.Row{row}, Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1010}}}
		_, rep := ToSFrame(table, 3, nil)
		assert.Equal(t, map[string]uint64{sframe.ErrCannotSay.Error() + ": " + want: 16}, rep.Left)
	}
}
