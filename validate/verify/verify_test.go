package verify

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/prove"
)

// variant is a way to compile a table.
type variant struct {
	name string
	plan plan.Options
	asm  asmgen.Options
}

func variants() []variant {
	return []variant{
		{name: "tree"},
		{name: "packed", plan: plan.Options{Dispatch: plan.DispatchPacked}},
		{name: "no-deref", asm: asmgen.Options{NoDeref: true}},
		{name: "short pages", plan: plan.Options{Dispatch: plan.DispatchPacked, PageBits: plan.PageBits - 1},
			asm: asmgen.Options{NoDeref: true}},
	}
}

func compile(t testing.TB, table *dwarfcfa.Table, v variant) []byte {
	t.Helper()
	p, err := plan.Build(table, v.plan)
	require.NoError(t, err)
	code, err := asmgen.Assemble(p, v.asm)
	require.NoError(t, err)
	image, err := elfout.New(code, elfout.Source{Name: "test"})
	require.NoError(t, err)
	return image.Bytes()
}

// TestRandomTables compiles tables with every kind of rule and operation.
func TestRandomTables(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			for range 100 {
				data := make([]byte, 1+rng.IntN(6000))
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				table := rowtest.Table(data, 250)
				image := compile(t, table, v)
				_, err := Image(image, table)
				require.NoError(t, err)
				_, err = prove.Image(image, table)
				require.NoError(t, err)
			}
		})
	}
}

// TestPages compiles pages of many borders and rows: records of all forms and sizes, in groups of all sizes, some of
// them again where the first is out of reach; and trees of as many borders as a page has.
func TestPages(t *testing.T) {
	for _, c := range []struct{ pages, borders, rows int }{{40, 255, 300}, {200, 238, 400}, {2200, 10, 300},
		{1500, 30, 300}, {70, 1, 2}} {
		table := rowtest.Pages(c.pages, c.borders, c.rows)
		require.NoError(t, table.Verify())
		for _, v := range variants() {
			if v.plan.Dispatch == plan.DispatchPacked || c.pages < 50 {
				image := compile(t, table, v)
				_, err := Image(image, table)
				require.NoError(t, err, "%+v %s", c, v.name)
				_, err = prove.Image(image, table)
				require.NoError(t, err, "%+v %s", c, v.name)
			}
		}
	}
}

// FuzzNoDiff lets the fuzzer choose the table. The code runs between guard
// pages: a read outside the window ends the process.
func FuzzNoDiff(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0x10, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{64, 512, 4096} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 8192 {
			return
		}
		table := rowtest.Table(data, 250)
		for _, v := range variants() {
			image := compile(t, table, v)
			if _, err := Image(image, table); err != nil {
				t.Fatal(v.name, err)
			}
			if _, err := prove.Image(image, table); err != nil {
				t.Fatal(v.name, err)
			}
		}
	})
}

// TestSaveSlots saves registers in every order, side by side, apart, in one slot and
// in the return address's column: some share a place in the code.
func TestSaveSlots(t *testing.T) {
	slots := []int64{0, -8, -16, -24, -32} // 0: not saved
	table := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	add := func(saves map[int]int64) {
		row := rowtest.Row(abi.RSP, 48)
		for reg, offset := range saves {
			if offset != 0 {
				row.Regs[reg] = rowtest.Saved(offset)
			}
		}
		start := dwarfcfa.Addr(0x1000 + 8*len(table.Rows))
		table.Ranges = append(table.Ranges, dwarfcfa.Range{Start: start, End: start + 8, Row: uint32(len(table.Rows))})
		table.Rows = append(table.Rows, row)
	}
	for _, regs := range [][3]int{{abi.R12, abi.R13, abi.R14}, {abi.R13, abi.R14, abi.R15},
		{abi.RBX, abi.RBP, abi.R12}} {
		for _, a := range slots {
			for _, b := range slots {
				for _, c := range slots {
					add(map[int]int64{regs[0]: a, regs[1]: b, regs[2]: c})
				}
			}
		}
	}
	for _, v := range variants() {
		image := compile(t, table, v)
		_, err := Image(image, table)
		require.NoError(t, err, v.name)
		_, err = prove.Image(image, table)
		require.NoError(t, err, v.name)
	}
}

// pushed returns the row of a function that has pushed rbx and made a frame.
func pushed() dwarfcfa.Row { return rowtest.Row(abi.RSP, 48, abi.RBX) }

// TestDisagreement compiles one table and verifies another: every difference
// that a step can show must be found.
func TestDisagreement(t *testing.T) {
	table := func() *dwarfcfa.Table {
		other := pushed()
		other.CFA.Offset = 16
		return &dwarfcfa.Table{
			Exprs: []dwarfcfa.Expr{{}, {Ops: []dwarfcfa.ExprOp{{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: 8}}}},
			Rows:  []dwarfcfa.Row{pushed(), other},
			Ranges: []dwarfcfa.Range{
				{Start: 0x1000, End: 0x1010, Row: 0}, {Start: 0x1010, End: 0x1020, Row: 1},
				{Start: 0x1040, End: 0x2000, Row: 0},
			},
		}
	}
	changes := map[string]func(*dwarfcfa.Table){
		"CFA offset":     func(t *dwarfcfa.Table) { t.Rows[0].CFA.Offset += 8 },
		"CFA register":   func(t *dwarfcfa.Table) { t.Rows[0].CFA.Reg = abi.RBP },
		"CFA expression": func(t *dwarfcfa.Table) { t.Rows[0].CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: 1} },
		"save slot":      func(t *dwarfcfa.Table) { t.Rows[0].Regs[abi.RBX].Offset -= 8 },
		"lost save":      func(t *dwarfcfa.Table) { t.Rows[0].Regs[abi.RBX] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleSameValue} },
		"undefined":      func(t *dwarfcfa.Table) { t.Rows[0].Regs[abi.R12].Kind = dwarfcfa.RuleUndefined },
		"caller-saved":   func(t *dwarfcfa.Table) { t.Rows[0].Regs[abi.RAX].Kind = dwarfcfa.RuleSameValue },
		"return address": func(t *dwarfcfa.Table) { t.Rows[0].Regs[abi.RIP].Offset -= 8 },
		"end of stack": func(t *dwarfcfa.Table) {
			t.Rows[0] = dwarfcfa.Row{}
			t.Rows[0].Regs[abi.RIP].Kind = dwarfcfa.RuleUndefined
		},
		"not compiled": func(t *dwarfcfa.Table) { t.Rows[0] = dwarfcfa.Row{Flags: dwarfcfa.RowNotCompiled} },
		"signal frame": func(t *dwarfcfa.Table) { t.Rows[0].Flags = dwarfcfa.RowSignal },
		"start":        func(t *dwarfcfa.Table) { t.Ranges[0].Start-- },
		"end":          func(t *dwarfcfa.Table) { t.Ranges[2].End++ },
		"border":       func(t *dwarfcfa.Table) { t.Ranges[0].End++; t.Ranges[1].Start++ },
		"gap":          func(t *dwarfcfa.Table) { t.Ranges[1].End++ },
	}
	for _, v := range variants() {
		image := compile(t, table(), v)
		_, err := Image(image, table())
		require.NoError(t, err, v.name)
		_, err = prove.Image(image, table())
		require.NoError(t, err, v.name)
		for name, change := range changes {
			changed := table()
			change(changed)
			_, err := Image(image, changed)
			require.ErrorIs(t, err, ErrDisagree, "%s: %s", v.name, name)
			_, err = prove.Image(image, changed)
			require.ErrorIs(t, err, prove.ErrNotProven, "%s: %s", v.name, name)
		}
	}
}

// TestEmptyTable has no pc covered.
func TestEmptyTable(t *testing.T) {
	for _, v := range variants() {
		image := compile(t, &dwarfcfa.Table{}, v)
		_, err := Image(image, &dwarfcfa.Table{})
		require.NoError(t, err, v.name)
		_, err = prove.Image(image, &dwarfcfa.Table{})
		require.NoError(t, err, v.name)
	}
}
