package dwarfcfa

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// requireLazy compares a table with what answers on demand, around each border and
// in no order, since the order of the questions must not matter.
func requireLazy(t testing.TB, table *Table, lazy rowSource) {
	t.Helper()
	pcs := make([]Addr, 0, 4*len(table.Ranges)+2)
	for _, r := range table.Ranges {
		pcs = append(pcs, r.Start-1, r.Start, r.End-1, r.End)
	}
	pcs = append(pcs, 0, ^Addr(0))
	rnd := rand.New(rand.NewPCG(1, uint64(len(pcs))))
	rnd.Shuffle(len(pcs), func(i, j int) { pcs[i], pcs[j] = pcs[j], pcs[i] })
	for _, pc := range pcs {
		want, wantExprs := table.rowAt(pc)
		got, exprs := lazy.rowAt(pc)
		if !sameRow(want, wantExprs, got, exprs) {
			require.Fail(t, "another row", "pc %#x: %+v in the table, %+v on demand", uint64(pc), want, got)
		}
	}
}

// sameRow compares the meaning of rows of two pools.
func sameRow(a *Row, aExprs []Expr, b *Row, bExprs []Expr) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, y := *a, *b
	same := func(i, j *ExprID) bool {
		if (*i == 0) != (*j == 0) {
			return false
		}
		e, f := aExprs[*i], bExprs[*j]
		*i, *j = 0, 0
		return e.Pushed == f.Pushed && slices.Equal(e.Ops, f.Ops)
	}
	for r := range x.Regs {
		if !same(&x.Regs[r].Expr, &y.Regs[r].Expr) {
			return false
		}
	}
	return same(&x.CFA.Expr, &y.CFA.Expr) && x == y
}

func TestLazyTable(t *testing.T) {
	testtool.Need(t, "gcc", "python3")
	paths := map[string]string{
		"libc": "/lib/x86_64-linux-gnu/libc.so.6", "libstdc++": "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		"python": "/usr/bin/python3", "the loader": "/lib64/ld-linux-x86-64.so.2",
	}
	dir := t.TempDir()
	build := func(name string, cmd *exec.Cmd) {
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		paths[name] = cmd.Args[slices.Index(cmd.Args, "-o")+1]
	}
	if !testing.Short() {
		cgo := exec.Command("go", "build", "-ldflags=-linkmode=external", "-o", filepath.Join(dir, "cgo"), "./testdata/cgo")
		cgo.Env = append(cgo.Environ(), "CGO_ENABLED=1")
		build("both sections", cgo)
		build("gofmt, .debug_frame alone", exec.Command("go", "build", "-o", filepath.Join(dir, "gofmt"), "cmd/gofmt"))
	}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			if name != "the loader" {
				testtool.Long(t)
			}
			o, err := Open(path)
			require.NoError(t, err)
			defer o.Close()
			for _, src := range []Source{SourceAuto, SourceEHFrame, SourceDebugFrame} {
				table, rep, err := BuildTable(o, BuildOptions{Source: src})
				lazy, lazyErr := NewLazyTable(o, src)
				require.Equal(t, err, lazyErr)
				if err != nil {
					continue
				}
				requireLazy(t, table, lazy)
				requireLazy(t, table, lazy) // now that all is interpreted
				assert.False(t, rep.Bounded)
				assert.InEpsilon(t, rep.Rows.Ranges, lazy.EstimatedRows(), 1)
			}
		})
	}
}

// TestLazySteps asks from several goroutines at once.
func TestLazySteps(t *testing.T) {
	o, err := Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	defer o.Close()
	table, _, err := BuildTable(o, BuildOptions{})
	require.NoError(t, err)
	lazy, err := NewLazyTable(o, SourceAuto)
	require.NoError(t, err)
	var all sync.WaitGroup
	for seed := range uint64(4) {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, 2))
			for range 20000 {
				r := table.Ranges[rnd.IntN(min(len(table.Ranges), 2000))]
				regs := randomRegs(rnd, r.Start+Addr(rnd.Uint64N(uint64(r.End-r.Start))))
				mem := randomMemory{rnd.Uint64()}
				want := regs
				table.Step(&want, mem, 0)
				lazy.Step(&regs, mem, 0)
				if want != regs {
					assert.Equal(t, want, regs)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestLazyBound has more than a table's bound allows: the table leaves FDEs out, on
// demand none is.
func TestLazyBound(t *testing.T) {
	var s sectionBuilder
	const cies = maxInitialStates/MaxRememberDepth + 1
	for i := range uint64(cies) {
		s.fde(s.cie(usualCIE(), bytes.Repeat(inst(CFARememberState), MaxRememberDepth)), testCode+i, 1, def(i+1))
	}
	_, rep := buildOn(t, s.section(), testImage(nil))
	assert.Equal(t, 1, rep.Entries.Lost)
	assert.True(t, rep.Bounded)
	lazy := newLazySection(newCFISource(s.section()), testImage(nil))
	for range 2 {
		for i := range Addr(cies) {
			row, _ := lazy.rowAt(testCode + i)
			require.NotNil(t, row)
			assert.Equal(t, int64(i+1), row.CFA.Offset)
		}
		assert.NotContains(t, lazy.fdes, 1, "forgotten when there were too many")
	}
}

// TestMadeInsideAlone: rows are made from code for a pc of the object without a row, not for one that a walk has
// left the object with.
func TestMadeInsideAlone(t *testing.T) {
	o, err := Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	defer o.Close()
	times := 0
	lazy, err := NewLazyTableMade(o, SourceAuto, func() *Section { times++; return nil })
	require.NoError(t, err)
	require.NotEmpty(t, o.code)
	ask := func(pc Addr) { lazy.rowAt(pc); lazy.rowAt(pc) }
	ask(0)
	ask(^Addr(0))
	for i, s := range o.code {
		if i == 0 || o.code[i-1].end < s.start {
			ask(s.start - 1)
		}
	}
	ask(o.code[len(o.code)-1].end)
	assert.Zero(t, times)
	for pc := o.code[0].start; pc < o.code[0].end; pc++ {
		if row, _ := lazy.section.rowAt(pc); row == nil {
			ask(pc)
			break
		}
	}
	assert.Equal(t, 1, times)
}
