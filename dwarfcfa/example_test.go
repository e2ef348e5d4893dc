package dwarfcfa_test

import (
	"bytes"
	"fmt"
	"log"
	"os"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
)

// The rows of an object. dwarfcfa.Open opens a file; an object made for the example
// takes its place.
func Example() {
	lib := unwindtest.ELF{Off: 0x2000, VAddr: 0x3000, Size: 0x1000, Funcs: []unwindtest.Func{
		{Name: "work", Addr: 0x3000, Size: 0x100},
		{Name: "restore", Addr: 0x3200, Size: 0x10, Kind: unwindtest.Signal},
	}}
	b := lib.Bytes()
	o, err := dwarfcfa.NewObject("lib.so", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		log.Fatal(err)
	}
	table, report, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(table.Ranges), "ranges,", report.Lost, "FDEs lost")
	if r, ok := table.Lookup(0x3010); ok {
		row := table.Rows[r.Row]
		fmt.Printf("[%#x, %#x): CFA = r%d%+d\n", uint64(r.Start), uint64(r.End), row.CFA.Reg, row.CFA.Offset)
	}
	pc := dwarfcfa.Addr(0x3200)
	if err := dwarfcfa.DumpTable(os.Stdout, table, &pc); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 2 ranges, 0 FDEs lost
	// [0x3000, 0x3100): CFA = r7+16
	// 0000000000003200..0000000000003210 1     rsp+16 rbp=c-16 ra=c-8 signal
}
