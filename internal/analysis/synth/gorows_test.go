package synth

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// goPrograms are images of the program of dwarfcfa/testdata/cgo, whole and stripped, by the flags of its build.
var goPrograms = map[string][2][]byte{}

// buildGo builds the program, and strips a copy.
func buildGo(t *testing.T, flags ...string) (full, stripped *dwarfcfa.File) {
	t.Helper()
	images, ok := goPrograms[strings.Join(flags, " ")]
	if !ok {
		images = linkGo(t, flags...)
		goPrograms[strings.Join(flags, " ")] = images
	}
	for i, o := range []**dwarfcfa.File{&full, &stripped} {
		var err error
		*o, err = dwarfcfa.NewFile("program", bytes.NewReader(images[i]), int64(len(images[i])))
		require.NoError(t, err)
	}
	return full, stripped
}

func linkGo(t *testing.T, flags ...string) (images [2][]byte) {
	t.Helper()
	testtool.Need(t, "gcc", "strip")
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "full"), filepath.Join(dir, "stripped")}
	build := exec.Command("go", append(append([]string{"build", "-o", paths[0]}, flags...),
		"../../../dwarfcfa/testdata/cgo")...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command("strip", "-o", paths[1], paths[0]).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for i := range images {
		images[i], err = os.ReadFile(paths[i])
		require.NoError(t, err)
	}
	return images
}

// TestGoRows: the rows of a stripped Go program place the CFA where the .debug_frame does that Go's linker writes into
// one that is not stripped.
func TestGoRows(t *testing.T) {
	for name, flags := range map[string][]string{
		"internal linker": {"-ldflags=-linkmode=internal"}, "gcc links": {"-ldflags=-linkmode=external"},
		"pie": {"-buildmode=pie"},
	} {
		if testing.Short() && name != "internal linker" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			full, stripped := buildGo(t, flags...)
			table, _, err := dwarfcfa.BuildTable(full, dwarfcfa.BuildOptions{Source: dwarfcfa.SourceDebugFrame})
			require.NoError(t, err)
			made, err := Of(stripped, Options{Mode: Missing})
			require.NoError(t, err)
			want, same := uint64(0), uint64(0)
			for _, r := range table.Ranges {
				for pc := r.Start; pc < r.End; {
					end, row := made.rowFrom(pc, r.End)
					want += uint64(end - pc)
					theirs := &table.Rows[r.Row]
					if row != nil && !row.Outermost {
						if assert.Equal(t, dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: uint16(row.CFA.Reg),
							Offset: int64(row.CFA.Offset)}, theirs.CFA, "%#x", pc) {
							same += uint64(end - pc)
						}
					}
					pc = end
				}
			}
			assert.Greater(t, float64(same), 0.95*float64(want), "%d of %d bytes", same, want)
		})
	}
}

// rowFrom returns the row of Go's table at pc and where it ends, at most at limit; nil: there is none up to there. The
// functions that are left to the analysis have no names in a stripped program.
func (r *Result) rowFrom(pc, limit dwarfcfa.Addr) (dwarfcfa.Addr, *Row) {
	i := sort.Search(len(r.Functions), func(i int) bool { return r.Functions[i].End() > pc })
	if i == len(r.Functions) || r.Functions[i].Start() > pc {
		if i < len(r.Functions) {
			limit = min(limit, r.Functions[i].Start())
		}
		return limit, nil
	}
	f := &r.Functions[i]
	if f.Name == "" {
		return min(limit, f.End()), nil
	}
	k := sort.Search(len(f.Ranges), func(k int) bool { return f.Ranges[k].End > pc })
	return min(limit, f.Ranges[k].End), &f.Ranges[k].Row
}

// TestGoEnd: the stacks of goroutines end in the function that Go puts there, also where .debug_frame takes it for one
// that is called.
func TestGoEnd(t *testing.T) {
	full, _ := buildGo(t, "-ldflags=-linkmode=internal")
	f, err := elffile.Open(full.File())
	require.NoError(t, err)
	list, err := f.Symbols()
	require.NoError(t, err)
	i := slices.IndexFunc(list, func(s elf.Symbol) bool { return strings.TrimSuffix(s.Name, ".abi0") == outermost })
	require.GreaterOrEqual(t, i, 0)
	row := func(opt dwarfcfa.BuildOptions) dwarfcfa.Row {
		table, _, err := dwarfcfa.BuildTable(full, opt)
		require.NoError(t, err)
		r, ok := table.Lookup(dwarfcfa.Addr(list[i].Value))
		require.True(t, ok)
		return table.Rows[r.Row]
	}
	made, err := Of(full, Options{Mode: Missing})
	require.NoError(t, err)
	assert.NotEqual(t, dwarfcfa.RuleUndefined, row(dwarfcfa.BuildOptions{}).Regs[abi.RIP].Kind)
	assert.Equal(t, dwarfcfa.RuleUndefined, row(dwarfcfa.BuildOptions{Made: made.Made("go")}).Regs[abi.RIP].Kind)
}

// TestGoFramePointers: where the analysis of code, which does not know Go's table, finds rbp saved, the rows find it
// there.
func TestGoFramePointers(t *testing.T) {
	_, stripped := buildGo(t, "-ldflags=-linkmode=internal")
	made, err := Of(stripped, Options{Mode: Missing})
	require.NoError(t, err)
	analysed, err := Of(stripped, Options{Mode: All})
	require.NoError(t, err)
	const rbp = 1 // in Saved
	saved := 0
	for i := range analysed.Functions {
		for _, r := range analysed.Functions[i].Ranges {
			_, row := made.rowFrom(r.Start, r.End)
			if row == nil || row.CFA != r.Row.CFA || r.Row.Regs[rbp].Where != AtCFA || row.Regs[rbp].Where == Unknown {
				continue
			}
			saved++
			assert.Equal(t, r.Row.Regs[rbp], row.Regs[rbp], "%#x", r.Start)
		}
	}
	assert.Greater(t, saved, 3000)
}

// TestGoRowsAt: the rows for some functions at a time are those for all.
func TestGoRowsAt(t *testing.T) {
	_, stripped := buildGo(t, "-ldflags=-linkmode=external")
	made, err := Of(stripped, Options{Mode: Missing})
	require.NoError(t, err)
	programs := func(s *dwarfcfa.Section) map[dwarfcfa.Addr]string {
		list := make(map[dwarfcfa.Addr]string)
		for e, err := range s.Entries() {
			require.NoError(t, err)
			if e.FDE != nil {
				list[e.FDE.Start] = string(e.FDE.Instructions)
			}
		}
		return list
	}
	g := OpenGoRows(stripped)
	require.NotNil(t, g)
	assert.Greater(t, g.EstimatedRows(), len(made.Functions))
	all := programs(made.Section("all"))
	compared := 0
	for i := range made.Functions {
		f := &made.Functions[i]
		if f.Name == "" {
			continue
		}
		of, s := g.At(f.End() - 1)
		require.True(t, of.Start <= f.Start() && f.End() <= of.End)
		require.NotNil(t, s, f.Name)
		for start, program := range programs(s) {
			require.Equal(t, all[start], program, "%#x", start)
			compared++
		}
	}
	assert.Greater(t, compared, 10000)
	of, s := g.At(1)
	assert.Nil(t, s)
	assert.Equal(t, dwarfcfa.Range{Start: 1, End: 2}, of)
	assert.Nil(t, OpenGoRows(assembled(t, shapes)))
}
