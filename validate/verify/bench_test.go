package verify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// BenchmarkStages times each stage of a build alone, on files of this machine.
// bytes/s is over the unwind section.
func BenchmarkStages(b *testing.B) {
	for _, path := range []string{"/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/gdb"} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		for _, d := range []plan.Dispatch{plan.DispatchTree, plan.DispatchPacked} {
			benchmarkFile(b, path, d)
		}
	}
}

func benchmarkFile(b *testing.B, path string, d plan.Dispatch) {
	object, err := dwarfcfa.Open(path)
	require.NoError(b, err)
	defer object.Close()
	table, report, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{})
	require.NoError(b, err)
	layout, err := plan.Build(table, plan.Options{Dispatch: d})
	require.NoError(b, err)
	code, err := asmgen.Assemble(layout, asmgen.Options{})
	require.NoError(b, err)
	image, err := elfout.New(code, elfout.Source{Name: filepath.Base(path)})
	require.NoError(b, err)
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{"table", func() error { _, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{}); return err }},
		{"plan", func() error { _, err := plan.Build(table, plan.Options{Dispatch: d}); return err }},
		{"assemble", func() error { _, err := asmgen.Assemble(layout, asmgen.Options{}); return err }},
		{"image", func() error { _, err := elfout.New(code, elfout.Source{Name: "bench"}); return err }},
		{"verify", func() error { _, err := Image(image.Bytes(), table); return err }},
	} {
		b.Run("stage="+stage.name+"/file="+filepath.Base(path)+"/dispatch="+d.String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(report.SectionSize)
			for b.Loop() {
				if err := stage.run(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(table.Ranges)), "ns/range")
		})
	}
}
