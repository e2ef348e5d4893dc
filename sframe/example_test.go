package sframe_test

import (
	"fmt"
	"log"

	"github.com/ehasm/ehasm/sframe"
)

// A function that pushes rbp at offset 1, written and read again.
func Example() {
	const rsp = 7 // DWARF number
	ra := sframe.Rule{Base: sframe.OnCFA, Offset: -8, Deref: true}
	section, err := sframe.Encode(sframe.Options{Version: 2, Addr: 0x2000}, []sframe.Entry{{
		Start: 0x1000, Size: 64, Rows: []sframe.Row{
			{Start: 0, CFA: sframe.Rule{Base: sframe.OnReg, Reg: rsp, Offset: 8}, RA: ra},
			{Start: 1, CFA: sframe.Rule{Base: sframe.OnReg, Reg: rsp, Offset: 16}, RA: ra,
				FP: sframe.Rule{Base: sframe.OnCFA, Offset: -16, Deref: true}},
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	read, err := sframe.Parse(0x2000, section)
	if err != nil {
		log.Fatal(err)
	}
	row, ok, err := read.Find(0x1010)
	fmt.Println(ok, err, "CFA = rsp +", row.CFA.Offset, "and rbp is saved at CFA", row.FP.Offset)
	// Output: true <nil> CFA = rsp + 16 and rbp is saved at CFA -16
}
