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
	Name     string
	Dispatch plan.Dispatch
}

// variants returns the kinds of eh_elf that are compared: tree is what 'ehasm build' makes by default.
func variants() []variant {
	return []variant{
		{"tree", plan.DispatchTree},
		{"packed", plan.DispatchPacked},
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

// compileTable makes the eh_elf of one variant, as 'ehasm build' does.
func compileTable(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.Object, v variant, name string) (*elfout.Image, *asmgen.Code, error) {
	opt := elfout.Options{Dispatch: v.Dispatch, Tables: r.SectionSize + r.HdrSize, Calls: o.Calls()}
	return elfout.Build(t, opt, elfout.Source{Name: name, BuildID: o.BuildID(), FileSize: o.FileSize()})
}

// writeEhElf writes the eh_elf of one variant.
func writeEhElf(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.Object, v variant, name, path string) error {
	image, _, err := compileTable(t, r, o, v, name)
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
