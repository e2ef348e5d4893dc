// Compile makes the eh_elf of an object, proves it, and writes it beside the object: what ehasm build does.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
)

func run(path string) error {
	object, err := dwarfcfa.Open(path)
	if err != nil {
		return err
	}
	defer object.Close()
	made, err := compile.Object(context.Background(), object, compile.Options{}, compile.Target{})
	if err != nil {
		return err // it cannot be read, or not be proven
	}
	fmt.Printf("%d rows, proven: %v\n", made.Stats.Rows, made.Stats.Verified)
	return made.Image.WriteFile(path + abi.Suffix)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compile OBJECT")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "compile:", err)
		os.Exit(1)
	}
}
