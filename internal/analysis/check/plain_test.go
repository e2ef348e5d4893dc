package check

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// TestReadsKept: whether a rule reads only what calls keep does not follow from the order of kinds.
func TestReadsKept(t *testing.T) {
	for kind, want := range map[dwarfcfa.RuleKind]bool{dwarfcfa.RuleUnspecified: true, dwarfcfa.RuleUndefined: true,
		dwarfcfa.RuleSameValue: true, dwarfcfa.RuleOffset: true, dwarfcfa.RuleValOffset: true, dwarfcfa.RuleRegister: false,
		dwarfcfa.RuleValExpression + 1: false} {
		assert.Equal(t, want, readsKept(nil, &dwarfcfa.RegRule{Kind: kind}), kind)
	}
}
