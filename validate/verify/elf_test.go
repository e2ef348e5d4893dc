package verify

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// FuzzELF takes the bytes of an ELF file all the way to an image: whatever they
// are, there is an error, or code that does what the table says.
func FuzzELF(f *testing.F) {
	// An eh_elf is itself a small ELF file with an .eh_frame.
	seed := compile(f, &dwarfcfa.Table{
		Exprs:  make([]dwarfcfa.Expr, 1),
		Rows:   []dwarfcfa.Row{pushed()},
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1100}},
	}, variant{})
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Fuzz(func(t *testing.T, data []byte) {
		object, err := dwarfcfa.NewFile("fuzz", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, source := range []dwarfcfa.Source{dwarfcfa.SourceAuto, dwarfcfa.SourceDebugFrame} {
			table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: source})
			if err != nil {
				continue
			}
			for _, d := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
				p, err := plan.Build(table, plan.Options{Dispatch: d})
				if err != nil {
					require.ErrorIs(t, err, plan.ErrSpan)
					continue
				}
				code, err := asmgen.Assemble(p, asmgen.Options{})
				require.NoError(t, err)
				image, err := elfout.New(code, elfout.Source{Name: "fuzz", BuildID: object.BuildID(),
					FileSize: object.FileSize()})
				require.NoError(t, err)
				_, err = Image(image.Bytes(), table)
				require.NoError(t, err)
			}
		}
	})
}

// TestSelf compiles the unwind information of an eh_elf.
func TestSelf(t *testing.T) {
	table := &dwarfcfa.Table{
		Exprs: make([]dwarfcfa.Expr, 1), Rows: []dwarfcfa.Row{pushed()},
		Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x1100}},
	}
	image := compile(t, table, variant{})
	object, err := dwarfcfa.NewFile("self", bytes.NewReader(image), int64(len(image)))
	require.NoError(t, err)
	own, report, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Strict: true})
	require.NoError(t, err)
	require.Greater(t, report.Rows.Ranges, 10)
	_, err = Image(compile(t, own, variant{}), own)
	require.NoError(t, err)
}
