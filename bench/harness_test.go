package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"

	"github.com/stretchr/testify/require"
)

// needs skips a test by name where a file is missing.
func needs(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name); err != nil {
		t.Skipf("no %s", name)
	}
}

const libc = "/lib/x86_64-linux-gnu/libc.so.6"

// TestFileFitsItsObject: libehunwind takes no eh_elf that says nothing of its object's content.
func TestFileFitsItsObject(t *testing.T) {
	needs(t, libc)
	table, report, o, err := readTable(libc)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "libc.so.6"+abi.Suffix)
	require.NoError(t, writeEhElf(table, report, o, variants()[0], "libc.so.6", path))
	object, err := os.Open(libc)
	require.NoError(t, err)
	defer object.Close()
	made, err := ehelf.OpenFor(path, object)
	require.NoError(t, err)
	require.NoError(t, made.Close())
}

// synthTable returns the table of libc, if there is one, for stacks with many
// kinds of rows.
func synthTable(t *testing.T) (*dwarfcfa.Table, []candidate) {
	t.Helper()
	needs(t, libc)
	table, _, o, err := readTable(libc)
	require.NoError(t, err)
	sec, err := o.Section(dwarfcfa.SourceAuto)
	require.NoError(t, err)
	rows := candidates(sec, table)
	require.NotEmpty(t, rows)
	return table, rows
}

func TestSyntheticStacksUnwindAsPlanned(t *testing.T) {
	table, rows := synthTable(t)
	for _, byByte := range []bool{false, true} {
		const bias, bottom = 0x7f00_0000_0000, 0x1234
		set, err := synthesize(rows, synthOptions{Stacks: 300, Frames: 40, Base: 1 << 32, Bias: bias, Bottom: bottom,
			ByByte: byByte, Seed: 5})
		require.NoError(t, err)
		for i, st := range set.Stacks {
			regs := st.Regs
			require.Zero(t, regs.Reg[abi.RSP]%16)
			for k, want := range st.Frames {
				require.Equal(t, abi.StatusOK, table.Step(&regs, set, bias), "stack %d frame %d", i, k)
				require.Equal(t, want, frame{regs.Reg[abi.RIP], regs.Reg[abi.RSP]}, "stack %d frame %d", i, k)
			}
			require.EqualValues(t, bottom, regs.Reg[abi.RIP])
			require.Less(t, regs.Reg[abi.RSP], st.Hi)
		}
	}
}

func TestSyntheticStacksAreTheSameEachTime(t *testing.T) {
	_, rows := synthTable(t)
	opt := synthOptions{Stacks: 20, Frames: 10, Base: 1 << 32, Seed: 5}
	a, err := synthesize(rows, opt)
	require.NoError(t, err)
	b, err := synthesize(rows, opt)
	require.NoError(t, err)
	require.Equal(t, a.encode(), b.encode())
}

func TestNoUsableRows(t *testing.T) {
	_, err := synthesize(nil, synthOptions{Stacks: 1, Frames: 1})
	require.ErrorIs(t, err, errNoRows)
}

func TestAgree(t *testing.T) {
	want := []frame{{PC: 1}, {PC: 2}, {PC: 3}}
	require.NoError(t, agree([]uint64{1, 2, 3}, want))
	require.NoError(t, agree([]uint64{1, 2, 3, 0}, want))
	require.NoError(t, agree([]uint64{9, 8, 1, 2, 3}, want))
	require.Error(t, agree([]uint64{2, 3}, want))
	require.Error(t, agree([]uint64{1, 2, 4}, want))
	require.Error(t, agree([]uint64{1, 2, 3, 4}, want))
	require.Error(t, agree(make([]uint64, 20), want))
	require.Error(t, agree(nil, want))
}

func TestLive(t *testing.T) {
	names := func() (all []string) {
		for _, c := range liveContenders() {
			all = append(all, c.Name)
			for _, p := range livePatterns() {
				require.True(t, c.eligible(p), "%s in %s", c.Name, p.Key)
			}
		}
		return all
	}()
	require.Subset(t, names, []string{"ehu-backtrace", "ehu-step", "glibc-backtrace", "unw-backtrace",
		"unw-step-global"})
	require.False(t, contender{Name: "ehu-step", Live: true}.eligible(pattern{Set: "rows2000"}))
}

func TestSpread(t *testing.T) {
	require.Equal(t, spreadOf{1, 1, 2.5, 4}, newSpread([]float64{4, 1, 2, 3}))
	require.Equal(t, spreadOf{1, 1, 2, 3}, newSpread([]float64{3, 1, 2}))
	require.False(t, newSpread(nil).ok())
	require.Equal(t, "-", newSpread(nil).String())
	require.Equal(t, []float64{2, 3}, ratios([]float64{4, 9, 1}, []float64{2, 3}))
	require.InDelta(t, 4, geomean([]float64{2, 8}), 1e-9)
}

func TestVerdict(t *testing.T) {
	faster := target{Limit: 2, AtLeast: true, Tree: spreadOf{Median: 4}}
	require.Equal(t, "met, 2.00x better", faster.verdict())
	faster.Tree.Median = 1
	require.Equal(t, "**missed, 2.00x to go**", faster.verdict())
	smaller := target{Limit: 1, Packed: true, Tree: spreadOf{Median: 9}, Other: spreadOf{Median: 0.5}}
	require.Equal(t, "met, 2.00x better", smaller.verdict())
	require.Equal(t, "not measured", target{Tree: newSpread(nil)}.verdict())
}

func TestChoose(t *testing.T) {
	var all []object
	for i := range 200 {
		all = append(all, object{Path: "/usr/bin/x", EHFrame: int64(1000 * (i + 1))})
	}
	all[52].Path = "/usr/lib/libc.so.6"
	got := choose(all, 5)
	require.Len(t, got, 5)
	require.EqualValues(t, 10000, got[0].EHFrame)
	require.EqualValues(t, 200000, got[4].EHFrame)
	require.Contains(t, got, all[52])
	for i := 1; i < len(got); i++ {
		require.Greater(t, got[i].EHFrame, got[i-1].EHFrame)
	}
	require.Empty(t, choose(nil, 5))
	require.Len(t, choose(all[:3], 5), 3)
}
