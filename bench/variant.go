package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/compile"
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
		{"tree", plan.DispatchTree}, // what 'ehasm build' makes of most objects
		{"packed", plan.DispatchPacked},
	}
}

// earlierIndex is the driver's number for eh_elfs of an earlier release, after those made from .sframe.
const earlierIndex = 2 * sframeVariants

// earlier returns the 'ehasm' of an earlier release, $BENCH_EARLIER, whose files are measured beside today's; "" for
// none.
func earlier() string { return os.Getenv("BENCH_EARLIER") }

// writeEarlier has it make the eh_elf of an object, and returns its path.
func writeEarlier(object, dir string) (string, error) {
	out, err := exec.Command(earlier(), "build", "-q", "--force", "-o", dir, object).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s build %s: %w: %s", earlier(), object, err, out)
	}
	return filepath.Join(dir, filepath.Base(object)+abi.Suffix), nil
}

// readTable returns the unwind table of an ELF file.
func readTable(path string) (*dwarfcfa.Table, *dwarfcfa.Report, *dwarfcfa.File, error) {
	o, err := dwarfcfa.Open(path)
	if err != nil {
		return nil, nil, nil, err
	}
	t, r, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	return t, r, o, err
}

// compileTable makes the eh_elf of one variant, as 'ehasm build' does.
func compileTable(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.File, v variant, name string) (*elfout.Image,
	*asmgen.Code, error) {
	content, _, err := o.Content(r, func(func(dwarfcfa.Addr) bool) {})
	if err != nil {
		return nil, nil, err
	}
	opt := compile.Layout{Dispatch: v.Dispatch, Tables: r.SectionSize + r.HdrSize, Calls: o.Calls()}
	return opt.Build(t, elfout.Source{Name: name, BuildID: o.BuildID(), FileSize: o.FileSize(), Content: content})
}

// writeEhElf writes the eh_elf of one variant.
func writeEhElf(t *dwarfcfa.Table, r *dwarfcfa.Report, o *dwarfcfa.File, v variant, name, path string) error {
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
