package prove_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/prove"
)

// A file is proven against its table, and refused for another: nothing of it runs.
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
	file, err := elfout.New(code, elfout.Source{Name: "lib.so"})
	if err != nil {
		log.Fatal(err)
	}
	result, err := prove.Image(file.Bytes(), table)
	fmt.Println(err, "for", result.Rows, "heads of rows")

	table.Rows[0] = rowtest.Row(abi.RSP, 16)
	_, err = prove.Image(file.Bytes(), table)
	fmt.Println(errors.Is(err, prove.ErrNotProven))
	// Output:
	// <nil> for 2 heads of rows
	// true
}
