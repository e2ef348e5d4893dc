package dwarfcfa_test

import (
	"debug/elf"
	"fmt"
	"log"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// The row of the first instruction of a program: the outermost frame, as its C library's start-up code says.
func Example() {
	const path = "/bin/sh"
	object, err := dwarfcfa.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	table, report, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Source, report.Entries.Lost, "FDEs lost")

	file, err := elf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if r, ok := table.Lookup(dwarfcfa.Addr(file.Entry)); ok {
		fmt.Println(table.RowText(r.Row))
	}
	// Output:
	// .eh_frame 0 FDEs lost
	// end of stack
}
