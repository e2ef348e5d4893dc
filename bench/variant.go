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
	Speed    bool
}

// variants returns the kinds of eh_elf that are compared. With BENCH_OPTIMIZE=speed they are as
// 'ehasm build --optimize=speed' makes them.
func variants() []variant {
	speed := os.Getenv("BENCH_OPTIMIZE") == "speed"
	return []variant{
		{"tree", plan.DispatchTree, speed},
		{"packed", plan.DispatchPacked, speed},
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

// fit returns how 'ehasm build' makes such a file.
func (v variant) fit(r *dwarfcfa.Report, o *dwarfcfa.Object) elfout.Fit {
	return elfout.Fit{Dispatch: v.Dispatch, Speed: v.Speed, Tables: r.SectionSize + r.HdrSize, Calls: o.Calls()}
}

// compileTable makes the code of one variant, as 'ehasm build' does, and says what file it is for.
func compileTable(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.Object, v variant, name string) (*asmgen.Code, elfout.Source, error) {
	fit := v.fit(r, o)
	src := elfout.Source{Name: name, BuildID: o.BuildID(), FileSize: o.FileSize(), Bare: fit.Bare()}
	code, err := fit.Compile(t, src)
	return code, src, err
}

// imageOf makes the eh_elf of one variant.
func imageOf(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.Object, v variant, name string) (*elfout.Image, error) {
	code, src, err := compileTable(t, r, o, v, name)
	if err != nil {
		return nil, err
	}
	return elfout.New(code, src)
}

// writeEhElf writes the eh_elf of one variant.
func writeEhElf(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.Object, v variant, name, path string) error {
	image, err := imageOf(t, r, o, v, name)
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
