package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// variant is a way to make an eh_elf. Its index is the driver's number for it.
type variant struct {
	Name string
	Plan plan.Options
}

// variants returns the kinds of eh_elf that are compared.
func variants() []variant {
	return []variant{
		{"tree", plan.Options{Dispatch: plan.DispatchTree}},
		{"packed", plan.Options{Dispatch: plan.DispatchPacked}},
	}
}

// readTable returns the unwind table of an ELF file.
func readTable(path string) (*dwarfcfa.Table, *dwarfcfa.Report, *dwarfcfa.Object, error) {
	o, err := dwarfcfa.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	t, r, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	return t, r, o, err
}

// compileTable makes the code of one variant.
func compileTable(t *dwarfcfa.Table, v variant) (*asmgen.Code, error) {
	p, err := plan.Build(t, v.Plan)
	if err != nil {
		return nil, err
	}
	return asmgen.Assemble(p, asmgen.Options{})
}

// writeEhElf writes the eh_elf of one variant.
func writeEhElf(t *dwarfcfa.Table, o *dwarfcfa.Object, v variant, name, path string) error {
	code, err := compileTable(t, v)
	if err != nil {
		return err
	}
	image, err := elfout.New(code, elfout.Source{Name: name, BuildID: o.BuildID(), FileSize: o.FileSize()})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(path, image.Bytes(), 0o666); err != nil {
		return fmt.Errorf("%s: %w", v.Name, err)
	}
	return nil
}
