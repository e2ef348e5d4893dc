package elfout_test

import (
	"fmt"
	"log"
	"path/filepath"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/validate/verify"
)

// From an ELF file to a file of its table alone, stage by stage. Package compile takes the whole
// way, as ehasm build does: it also makes the tables for exceptions, chooses the layout, and proves
// the file.
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
	pages, err := plan.Build(table, plan.Options{Dispatch: plan.DispatchPacked})
	if err != nil {
		log.Fatal(err)
	}
	code, err := asmgen.Assemble(pages, asmgen.Options{})
	if err != nil {
		log.Fatal(err)
	}
	image, err := elfout.New(code, elfout.Source{
		Name: filepath.Base(path), BuildID: object.BuildID(), FileSize: object.FileSize(),
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := verify.Image(image.Bytes(), table); err != nil { // runs the code
		log.Fatal(err)
	}
	// Then image.WriteFile(path + abi.Suffix), or ehelf.FromBytes(image.Bytes()) to walk with it.
	fmt.Println(report.Entries.Lost, "FDEs lost")
	// Output: 0 FDEs lost
}
