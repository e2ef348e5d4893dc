package dwarfcfa

import (
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestSubtractUnion compares with a lookup in one table and then the other.
func TestSubtractUnion(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	table := func(expr ExprID) *Table {
		t := &Table{Exprs: make([]Expr, 1+expr)}
		addr := Addr(100 + rng.IntN(50))
		for i := range 3 {
			row := endOfStackRow()
			if i > 0 {
				row.CFA = CFARule{Kind: CFARegOffset, Reg: 7, Offset: int64(8 * i)}
				row.Regs[3] = RegRule{Kind: RuleExpression, Expr: expr}
			}
			t.Rows = append(t.Rows, row)
		}
		last := -1
		for range rng.IntN(30) {
			if gap := rng.IntN(3); gap > 0 {
				addr += Addr(rng.IntN(20))
				last = -1
			}
			row := rng.IntN(3)
			if row == last {
				row = (row + 1) % 3
			}
			end := addr + Addr(1+rng.IntN(20))
			t.Ranges = append(t.Ranges, Range{addr, end, uint32(row)})
			addr, last = end, row
		}
		return t
	}
	for range 500 {
		a, b := table(1), table(2)
		u := union(a, b, subtract(b.Ranges, a.Ranges))
		for i, r := range u.Ranges {
			require.Less(t, r.Start, r.End)
			if i > 0 {
				require.LessOrEqual(t, u.Ranges[i-1].End, r.Start)
			}
		}
		for pc := Addr(0); pc < 1000; pc++ {
			want, ok := a.Lookup(pc)
			var row Row
			if ok {
				row = a.Rows[want.Row]
			} else if want, ok = b.Lookup(pc); ok {
				row = b.Rows[want.Row]
				for i := range row.Regs {
					moveExpr(&row.Regs[i].Expr, ExprID(len(a.Exprs)-1))
				}
			}
			got, found := u.Lookup(pc)
			if ok != found || found && row != u.Rows[got.Row] {
				require.Fail(t, "another row", "%#x: %v %+v instead of %v %+v", pc, found, got, ok, row)
			}
		}
	}
}

// TestBothSections reads a Go program linked by the C linker: its C parts have
// .eh_frame, its Go parts .debug_frame.
func TestBothSections(t *testing.T) {
	testtool.Need(t, "gcc")
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-ldflags=-linkmode=external", "-o", program, "./testdata/cgo")
	build.Env = append(build.Environ(), "CGO_ENABLED=1")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	o, err := Open(program)
	require.NoError(t, err)
	defer o.Close()
	eh, ehRep, err := BuildTable(o, BuildOptions{Source: SourceEHFrame})
	require.NoError(t, err)
	debug, debugRep, err := BuildTable(o, BuildOptions{Source: SourceDebugFrame})
	require.NoError(t, err)
	both, rep, err := BuildTable(o, BuildOptions{Strict: true})
	require.NoError(t, err)
	require.NoError(t, both.Verify())
	assert.Equal(t, ".eh_frame+.debug_frame", rep.Source)
	assert.Equal(t, ehRep.Entries.FDEs+debugRep.Entries.FDEs, rep.Entries.FDEs)
	for _, one := range []*Table{eh, debug} {
		for _, r := range one.Ranges {
			_, ok := both.Lookup(r.Start)
			require.True(t, ok, "%#x", r.Start)
		}
	}
	assert.Greater(t, len(both.Ranges), max(len(eh.Ranges), len(debug.Ranges)))
}
