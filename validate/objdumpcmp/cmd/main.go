// Command cmd compares package x86 with objdump over the code that files' FDEs cover:
//
//	go run ./validate/objdumpcmp/cmd FILE...
package main

import (
	"fmt"
	"os"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/validate/objdumpcmp"
)

func main() {
	var all objdumpcmp.Result
	failed := 0
	for _, p := range os.Args[1:] {
		r, err := compare(p)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed++
			continue
		}
		show(p, r)
		for _, e := range r.Examples {
			fmt.Println("   ", e)
		}
		all.Add(r)
	}
	show("total", &all)
	if all.Length+all.Mnemonic+all.Unknown+failed > 0 {
		os.Exit(1)
	}
}

func compare(path string) (*objdumpcmp.Result, error) {
	object, err := dwarfcfa.Open(path)
	if err != nil {
		return nil, err
	}
	defer object.Close()
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	if err != nil {
		return nil, err
	}
	return objdumpcmp.File(path, func(pc uint64) bool {
		_, ok := table.Lookup(dwarfcfa.Addr(pc))
		return ok
	})
}

func show(name string, r *objdumpcmp.Result) {
	fmt.Printf("%s: %d instructions, (bad) %d, other length %d, unknown %d, other mnemonic %d, other operands %d\n",
		name, r.Instructions, r.Bad, r.Length, r.Unknown, r.Mnemonic, r.Operands)
}
