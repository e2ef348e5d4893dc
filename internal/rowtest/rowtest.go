// Package rowtest makes rows for tests.
package rowtest

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Row returns what compilers make: the CFA is base+offset, the return address lies
// below it, and the registers of saves below that, each 8 bytes lower than the one
// before. It is normalised.
func Row(base uint16, offset int64, saves ...int) dwarfcfa.Row {
	var r dwarfcfa.Row
	for i := range r.Regs {
		r.Regs[i].Kind = dwarfcfa.RuleUndefined
		if abi.CalleeSaved&(1<<i) != 0 {
			r.Regs[i].Kind = dwarfcfa.RuleSameValue
		}
	}
	r.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: base, Offset: offset}
	r.Regs[abi.RSP].Kind = dwarfcfa.RuleValOffset
	r.Regs[abi.RIP] = Saved(-8)
	for i, reg := range saves {
		r.Regs[reg] = Saved(-16 - 8*int64(i))
	}
	return r
}

// Saved returns the rule of a register saved at CFA+offset.
func Saved(offset int64) dwarfcfa.RegRule {
	return dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: offset}
}
