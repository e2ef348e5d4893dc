package prove

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
)

// variant is a way to compile a table.
type variant struct {
	name string
	plan plan.Options
	asm  asmgen.Options
	src  elfout.Source
}

func variants() []variant {
	return []variant{
		{name: "tree", src: elfout.Source{Name: "test"}},
		{name: "packed", plan: plan.Options{Dispatch: plan.DispatchPacked}, src: elfout.Source{Name: "test"}},
		{name: "no-deref", asm: asmgen.Options{NoDeref: true}, src: elfout.Source{Name: "test"}},
		{name: "relro", src: elfout.Source{Name: "test", Relro: true}},
		{name: "short pages", plan: plan.Options{Dispatch: plan.DispatchPacked, PageBits: plan.PageBits - 1},
			src: elfout.Source{Name: "test"}},
		{name: "bare", src: elfout.Source{Name: "test", Bare: true}},
	}
}

func compile(t testing.TB, table *dwarfcfa.Table, v variant) []byte {
	t.Helper()
	p, err := plan.Build(table, v.plan)
	require.NoError(t, err)
	code, err := asmgen.Assemble(p, v.asm)
	require.NoError(t, err)
	image, err := elfout.New(code, v.src)
	require.NoError(t, err)
	return image.Bytes()
}

func tableOf(t testing.TB, path string) *dwarfcfa.Table {
	t.Helper()
	o, err := dwarfcfa.Open(path)
	require.NoError(t, err)
	defer o.Close()
	table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	require.NoError(t, err)
	return table
}

func TestReal(t *testing.T) {
	path := os.Getenv("PROVE_FILE")
	if path == "" {
		path = "/bin/ls"
	}
	table := tableOf(t, path)
	for _, v := range variants() {
		image := compile(t, table, v)
		r, err := Image(image, table)
		t.Logf("%s: %+v", v.name, r)
		require.NoError(t, err, v.name)
	}
}
