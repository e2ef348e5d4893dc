package compile_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
)

// From an ELF file to its eh_elf, with the bytes that ehasm build writes.
func Example() {
	object, err := dwarfcfa.Open("/bin/sh")
	if err != nil {
		log.Fatal(err)
	}
	defer object.Close()
	made, err := compile.Object(context.Background(), object, compile.Options{}, compile.Target{})
	if err != nil {
		log.Fatal(err) // it could not be read, or not be proven
	}
	// Then made.Image.WriteFile("/bin/sh" + abi.Suffix), or load it:
	loaded, err := ehelf.FromBytes(made.Image.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	defer loaded.Close()
	fmt.Println("proven:", made.Stats.Verified)
	// Output: proven: true
}
