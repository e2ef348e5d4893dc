package asmgen_test

import (
	"fmt"
	"log"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// The machine code of a table with one row. Package elfout makes a file of it.
func Example() {
	table := &dwarfcfa.Table{
		Rows:   []dwarfcfa.Row{rowtest.Row(abi.RSP, 8)},
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
	pc := dwarfcfa.Addr(0x1100)
	for line := range code.All(&pc) {
		fmt.Println(line.Text)
		break // the first instruction of the row
	}
	// Output:
	// _eh_elf
	// _eh_elf_chain_1
	// _eh_elf_walk
	// lea r10, ptr [r9+0x8]
}
