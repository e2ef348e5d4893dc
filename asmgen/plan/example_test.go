package plan_test

import (
	"fmt"
	"log"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Two rows of a function of two pages become two blocks, both on the fast path.
func Example() {
	table := &dwarfcfa.Table{
		Rows:   []dwarfcfa.Row{entryRow(8), entryRow(16)},
		Exprs:  make([]dwarfcfa.Expr, 1),
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1010, Row: 0}, {Start: 0x1010, End: 0x1200, Row: 1}},
	}
	p, err := plan.Build(table, plan.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fast := 0
	for _, b := range p.Blocks {
		if b.Kind == plan.BlockFast {
			fast++
		}
	}
	fmt.Println(fast, "rows on the fast path,", len(p.Tails), "tails")
	// Output: 2 rows on the fast path, 1 tails
}

// entryRow is the row at the start of a function: the CFA is rsp+offset, the return address lies below it, and
// callee-saved registers are the caller's.
func entryRow(offset int64) dwarfcfa.Row {
	row := dwarfcfa.Row{CFA: dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: abi.RSP, Offset: offset}}
	for i := range row.Regs {
		row.Regs[i].Kind = dwarfcfa.RuleUndefined
	}
	for _, reg := range []int{abi.RBX, abi.RBP, abi.R12, abi.R13, abi.R14, abi.R15} {
		row.Regs[reg].Kind = dwarfcfa.RuleSameValue
	}
	row.Regs[abi.RSP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleValOffset}
	row.Regs[abi.RIP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -8}
	return row
}
