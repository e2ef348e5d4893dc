// Command cmd compares package x86 with objdump over files: go run ./x86/objdumpcmp/cmd FILE...
package main

import (
	"fmt"
	"os"

	"github.com/ehasm/ehasm/x86/objdumpcmp"
)

func main() {
	var all objdumpcmp.Result
	for _, p := range os.Args[1:] {
		r, err := objdumpcmp.File(p, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d instructions, (bad) %d, length %d, unknown %d, mnemonic %d, operands %d\n", p, r.Instructions, r.Bad, r.Length, r.Unknown, r.Mnemonic, r.Operands)
		for _, e := range r.Examples {
			fmt.Println("   ", e)
		}
		all.Add(r)
	}
}
