// Command gen makes package x86's tables from legacy.txt and vector.txt. With -harvest it first makes vector.txt, by
// showing every encoding of the vector maps to objdump.
package main

import (
	"flag"
	"fmt"
	"os"
)

// output is the file that generate makes.
const output = "../ztables.go"

func main() {
	h := flag.Bool("harvest", false, "make vector.txt with objdump first")
	flag.Parse()
	if *h {
		if err := harvest(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	source, err := generate()
	if err == nil {
		err = os.WriteFile(output, source, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
