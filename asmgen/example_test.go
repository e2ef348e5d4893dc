package asmgen_test

import (
	"fmt"
	"log"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// The machine code of a table with one row. Package elfout makes a file of it.
func Example() {
	table := &dwarfcfa.Table{
		Rows:   []dwarfcfa.Row{entryRow(8)},
		Exprs:  make([]dwarfcfa.Expr, 1),
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1200, Row: 0}},
	}
	p, err := plan.Build(table, plan.Options{})
	if err != nil {
		log.Fatal(err)
	}
	code, err := asmgen.Assemble(p, asmgen.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range code.Symbols {
		if s.Exported {
			fmt.Println(s.Name)
		}
	}
	// Output:
	// _eh_elf
	// _eh_elf_chain_1
	// _eh_elf_walk
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
