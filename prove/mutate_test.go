package prove

import (
	"bytes"
	"debug/elf"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// area is a stretch of a file that mutants are drawn from.
type area struct {
	name     string
	from, to int
}

// areas returns the parts of an image as its section headers have them.
func areas(t testing.TB, image []byte) []area {
	f, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(t, err)
	list := []area{{"headers", 0, 64 + 56*len(f.Progs)}}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NULL && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			list = append(list, area{s.Name, int(s.Offset), int(s.Offset + s.Size)})
		}
	}
	if len(f.Sections) > 0 {
		return list
	}
	// The data follows the dynamic section, up to the end of its segment.
	var data int
	for _, p := range f.Progs {
		if p.Type == elf.PT_DYNAMIC {
			data = int(p.Off + p.Filesz)
		}
	}
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0:
			list = append(list, area{".text", int(p.Off), int(p.Off + p.Filesz)})
		case p.Type == elf.PT_LOAD:
			list = append(list, area{"tables", list[0].to, data}, area{".rodata", data, int(p.Off + p.Filesz)})
		}
	}
	return list
}

// small are tables of few rows: the fast path, the slow path, and expressions.
func small() *dwarfcfa.Table {
	rbp := rowtest.Row(abi.RBP, 16, abi.RBP)
	slow := rowtest.Row(abi.RBX, 32, abi.R12)
	expr := rowtest.Row(abi.RSP, 16)
	expr.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: 1}
	return &dwarfcfa.Table{
		Exprs: []dwarfcfa.Expr{{}, {Ops: []dwarfcfa.ExprOp{
			{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: 8}, {Code: dwarfcfa.OpReg, Reg: abi.RIP},
			{Code: dwarfcfa.OpConst, Arg: 15}, {Code: dwarfcfa.OpAnd},
			{Code: dwarfcfa.OpConst, Arg: 11}, {Code: dwarfcfa.OpGe}, {Code: dwarfcfa.OpConst, Arg: 3},
			{Code: dwarfcfa.OpShl}, {Code: dwarfcfa.OpPlus},
		}}},
		Rows: []dwarfcfa.Row{rowtest.Row(abi.RSP, 8), rbp, slow, expr, rowtest.Row(abi.RSP, 16),
			rowtest.Row(abi.RSP, 24)},
		Ranges: []dwarfcfa.Range{
			{Start: 0x1000, End: 0x1004, Row: 0}, {Start: 0x1004, End: 0x1080, Row: 1},
			{Start: 0x1080, End: 0x10f0, Row: 0},
			{Start: 0x1110, End: 0x1310, Row: 2}, {Start: 0x1310, End: 0x1320, Row: 3},
			{Start: 0x1320, End: 0x1321, Row: 4}, {Start: 0x1321, End: 0x1330, Row: 5},
		},
	}
}

// TestMutantsOfCode proves mutants of the code and data of a small file: a byte of each
// 61 bits. TestEveryBit, which is longer, tries all. An accepted mutant of the text must
// differ in a byte that no path reaches.
func TestMutantsOfCode(t *testing.T) {
	table := small()
	for _, v := range testtool.Sweep(variants()) {
		image := compile(t, table, v)
		_, err := Image(image, table)
		require.NoError(t, err)
		accepted := 0
		total := 0
		for _, a := range areas(t, image) {
			if a.name != ".text" && a.name != ".rodata" {
				continue
			}
			for bit := 8 * a.from; bit < 8*a.to; bit += 61 {
				total++
				image[bit/8] ^= 1 << (bit % 8)
				if _, err := Image(image, table); err == nil {
					accepted++
				}
				image[bit/8] ^= 1 << (bit % 8)
			}
		}
		t.Logf("%s: %d of %d accepted", v.name, accepted, total)
		require.Less(t, accepted, total/10, v.name)
	}
}

func BenchmarkImage(b *testing.B) {
	for _, path := range strings.Fields(os.Getenv("PROVE_FILES")) {
		b.Run(path, func(b *testing.B) {
			table := tableOf(b, path)
			image := compile(b, table, variants()[0])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Image(image, table); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
