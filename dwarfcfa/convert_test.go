package dwarfcfa_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	. "github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/convert"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/sframe"
)

// TestToSFrame writes sections of each version and reads them back: what they answer is
// what the table does, at every byte, and it is as much as the report says.
func TestToSFrame(t *testing.T) {
	paths := []string{"/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6"}
	if SFrameObjects() != "" {
		paths = GSFrame(t)
	}
	for _, path := range testtool.Sweep(paths) {
		o, err := Open(path)
		require.NoError(t, err)
		table, _, err := BuildTable(o, BuildOptions{})
		require.NoError(t, err)
		starts, err := o.FunctionStarts(SourceAuto)
		require.NoError(t, err)
		for version := uint8(1); version <= 3; version++ {
			entries, rep := convert.ToSFrame(table, version, starts)
			const start = 0x1000
			data, err := sframe.Encode(sframe.Options{Version: version, Addr: start, PCRel: version == 3}, entries)
			require.NoError(t, err)
			s, err := sframe.Parse(start, data)
			require.NoError(t, err)
			back := RowsOf(t, s, o)
			require.NoError(t, back.Verify())
			both, alone := CompareRows(t, path, back, table)
			left := uint64(0)
			for _, n := range rep.Left {
				left += n
			}
			assert.EqualValues(t, rep.Bytes, both, "%s, version %d", path, version)
			assert.EqualValues(t, left, alone, "%s, version %d", path, version)
			if SFrameObjects() == "" {
				assert.Less(t, left, rep.Bytes/1000)
			}
			t.Logf("%s: version %d: %d functions, %d rows, %d bytes; %d bytes of code said, %d not",
				filepath.Base(path), version, rep.Functions, rep.Rows, len(data), both, alone)
		}
		o.Close()
	}
}

// TestToSFrameObjdump has objdump read a section that was written and added to its object.
func TestToSFrameObjdump(t *testing.T) {
	const path = "/bin/ls"
	o, err := Open(path)
	require.NoError(t, err)
	defer o.Close()
	table, _, err := BuildTable(o, BuildOptions{})
	require.NoError(t, err)
	starts, err := o.FunctionStarts(SourceAuto)
	require.NoError(t, err)
	entries, _ := convert.ToSFrame(table, 1, starts)
	data, err := sframe.Encode(sframe.Options{Version: 1}, entries)
	require.NoError(t, err)
	dir := t.TempDir()
	section, with := filepath.Join(dir, "section"), filepath.Join(dir, "with")
	require.NoError(t, os.WriteFile(section, data, 0o600))
	out, err := exec.Command("objcopy", "--add-section", ".sframe="+section, path, with).CombinedOutput()
	require.NoError(t, err, "%s", out)
	s, err := sframe.Parse(0, data)
	require.NoError(t, err)
	assert.Positive(t, CompareObjdump(t, with, s))
}

// TestToSFrameRows has rows that few objects have.
func TestToSFrameRows(t *testing.T) {
	row := func(change func(*Row)) Row {
		r := Row{CFA: CFARule{Kind: CFARegOffset, Reg: abi.RSP, Offset: 8}}
		for i := range r.Regs {
			r.Regs[i] = DefaultRule(i)
		}
		r.Regs[abi.RIP] = RegRule{Kind: RuleOffset, Offset: -8}
		change(&r)
		return r
	}
	signal := func(r *Row) {
		r.CFA = CFARule{Kind: CFAExpr, Expr: 1}
		r.Regs[abi.RSP] = RegRule{Kind: RuleExpression, Expr: 2}
		r.Regs[abi.RBP] = RegRule{Kind: RuleExpression, Expr: 3}
		r.Regs[abi.RIP] = RegRule{Kind: RuleExpression, Expr: 4}
		r.Flags = RowSignal
	}
	word := func(offset int64) Expr {
		return Expr{Pushed: true, Ops: []ExprOp{{Code: OpReg, Reg: abi.RSP, Arg: offset}}}
	}
	table := &Table{Exprs: []Expr{{}, {Ops: []ExprOp{{Code: OpReg, Reg: abi.RSP, Arg: 160}, {Code: OpDeref, Arg: 8}}},
		word(160), word(120), word(168), word(161)}}
	const no = 4 // no version
	for i, c := range []struct {
		change func(*Row)
		least  uint8
	}{
		{func(*Row) {}, 1},
		{func(r *Row) { r.CFA.Reg = abi.RBP }, 1},
		{func(r *Row) { r.CFA.Reg = abi.RBX }, 3},
		{func(r *Row) { r.CFA.Offset = 1 << 31 }, no},
		{func(r *Row) { r.Regs[abi.RBX] = RegRule{Kind: RuleOffset, Offset: -24} }, 1},
		{func(r *Row) { r.Regs[abi.RBP] = RegRule{Kind: RuleOffset, Offset: -16} }, 1},
		{func(r *Row) { r.Regs[abi.RBP] = RegRule{Kind: RuleUndefined} }, no},
		{func(r *Row) { r.Regs[abi.RBP] = RegRule{Kind: RuleValOffset, Offset: -16} }, no},
		{func(r *Row) { r.Regs[abi.RBP] = RegRule{Kind: RuleRegister, Reg: abi.RAX} }, 3},
		{func(r *Row) { r.Regs[abi.RIP] = RegRule{Kind: RuleOffset, Offset: -16} }, 3},
		{func(r *Row) { r.Regs[abi.RIP] = RegRule{Kind: RuleRegister, Reg: abi.RDX} }, 3},
		{func(r *Row) { r.Regs[abi.RSP] = RegRule{Kind: RuleValOffset, Offset: 8} }, no},
		{func(r *Row) { *r = EndOfStackRow() }, 2},
		{func(r *Row) { *r = Row{Flags: RowNotCompiled} }, no},
		{signal, 3},
		{func(r *Row) { signal(r); r.Regs[abi.RSP].Expr = 5 }, no},
	} {
		table.Rows = []Row{row(c.change)}
		table.Ranges = []Range{{Start: 0x1000, End: 0x1010}}
		for version := uint8(1); version <= 3; version++ {
			entries, rep := convert.ToSFrame(table, version, []Addr{0x1008})
			if version < c.least {
				assert.Empty(t, entries, "row %d", i)
				assert.Len(t, rep.Left, 1)
				continue
			}
			require.Len(t, entries, 2, "row %d, version %d: %v", i, version, rep.Left)
			data, err := sframe.Encode(sframe.Options{Version: version, Addr: 0x8000}, entries)
			require.NoError(t, err)
			back, _, err := SFrameTable(t, data, true)
			require.NoError(t, err)
			both, _ := CompareRows(t, "made", back, table)
			assert.Equal(t, 16, both)
		}
	}
}

// TestSFrameFind looks pcs up in sections as they are stored: the row is the table's
// which is made from them.
func TestSFrameFind(t *testing.T) {
	s, table := storedSFrame(t, 3)
	for _, r := range table.Ranges {
		for _, addr := range []Addr{r.Start, r.End - 1} {
			row, ok, err := s.Find(uint64(addr))
			require.NoError(t, err)
			want := &table.Rows[r.Row]
			if !ok {
				continue // padding, or what cannot be said
			}
			require.Equal(t, row.Outermost, want.Regs[abi.RIP].Kind == RuleUndefined, "%#x", uint64(addr))
			if want.CFA.Kind == CFARegOffset && !row.Outermost {
				require.Equal(t, want.CFA.Offset, int64(row.CFA.Offset), "%#x", uint64(addr))
			}
		}
	}
	_, ok, err := s.Find(0)
	assert.False(t, ok)
	assert.NoError(t, err)
	_, ok, err = s.Find(1 << 60)
	assert.False(t, ok)
	assert.NoError(t, err)
}

// storedSFrame returns the section of a version for libc, and libc's table.
func storedSFrame(t testing.TB, version uint8) (*sframe.Section, *Table) {
	o, err := Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(t, err)
	defer o.Close()
	table, _, err := BuildTable(o, BuildOptions{})
	require.NoError(t, err)
	starts, err := o.FunctionStarts(SourceAuto)
	require.NoError(t, err)
	entries, _ := convert.ToSFrame(table, version, starts)
	data, err := sframe.Encode(sframe.Options{Version: version, Addr: 0x1000}, entries)
	require.NoError(t, err)
	s, err := sframe.Parse(0x1000, data)
	require.NoError(t, err)
	return s, table
}

// BenchmarkLookup is the lookup of 64 pcs of libc, again and again: in .sframe as it is
// stored, and in rows on demand of .eh_frame.
func BenchmarkLookup(b *testing.B) {
	var pcs [64]Addr
	for version := uint8(1); version <= 3; version++ {
		s, table := storedSFrame(b, version)
		for i := range pcs {
			pcs[i] = table.Ranges[len(table.Ranges)/len(pcs)*i].Start
		}
		b.Run(fmt.Sprint("sframe", version), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, _, err := s.Find(uint64(pcs[i%len(pcs)])); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	o, err := Open("/lib/x86_64-linux-gnu/libc.so.6")
	require.NoError(b, err)
	defer o.Close()
	lazy, err := NewLazyTable(o, SourceEHFrame)
	require.NoError(b, err)
	b.Run("rows on demand", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			lazy.RowAt(pcs[i%len(pcs)])
		}
	})
	table, _, err := BuildTable(o, BuildOptions{})
	require.NoError(b, err)
	b.Run("table", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			table.RowAt(pcs[i%len(pcs)])
		}
	})
}
