package plan_test

import (
	"fmt"
	"log"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// Two rows of a function of two pages become two blocks, both on the fast path.
func Example() {
	table := &dwarfcfa.Table{
		Rows:   []dwarfcfa.Row{rowtest.Row(abi.RSP, 8), rowtest.Row(abi.RSP, 16, abi.RBP)},
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
	// Output: 2 rows on the fast path, 2 tails
}
