//go:build linux && amd64

package compile_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/elfout"
	"github.com/ehasm/ehasm/internal/testing/rowtest"
)

// scattered returns a table of groups of ranges, which lie a number of bytes apart. Where they are far
// apart, the file has segments. 64 ranges of 20 to 83 bytes lie in a group.
func scattered(groups int, gap dwarfcfa.Addr) *dwarfcfa.Table {
	const each, rows = 64, 40
	rng := rand.New(rand.NewPCG(1, 2)) // the same ranges in each table
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	for i := range rows {
		t.Rows = append(t.Rows, rowtest.Row(abi.RSP, 8*int64(i+7), []int{abi.RBX, abi.R12, abi.R13, abi.R14}[:i%5]...))
	}
	addr, last := dwarfcfa.Addr(0x1000), uint32(0)
	for range groups {
		for range each {
			end := addr + 20 + dwarfcfa.Addr(rng.IntN(64))
			last = (last + 1 + uint32(rng.IntN(rows-1))) % rows
			t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: addr, End: end, Row: last})
			addr = end
		}
		addr += gap
	}
	return t
}

// stackOf returns a stack whose return addresses lie anywhere in the ranges.
func stackOf(t *dwarfcfa.Table, frames int) (pc uint64, stack []byte) {
	rng := rand.New(rand.NewPCG(3, 4))
	somewhere := func() (uint64, *dwarfcfa.Row) {
		r := &t.Ranges[rng.IntN(len(t.Ranges))]
		return uint64(r.Start) + 1 + rng.Uint64N(uint64(r.End-r.Start-1)), &t.Rows[r.Row]
	}
	pc, row := somewhere()
	for range frames {
		next, caller := somewhere()
		stack = append(stack, make([]byte, row.CFA.Offset-8)...)
		stack = binary.LittleEndian.AppendUint64(stack, next)
		row = caller
	}
	return pc, stack
}

// BenchmarkSparse takes steps in objects whose code lies together and whose code does not. What
// counts are the ratios: see docs/validation/layouts.md.
func BenchmarkSparse(b *testing.B) {
	for _, c := range []struct {
		name   string
		groups int
		gap    dwarfcfa.Addr
	}{
		{"8 groups/dense", 8, 0}, {"8 groups/64 MB apart", 8, 64 << 20},
		{"80 groups/dense", 80, 0}, {"80 groups/8 MB apart", 80, 8 << 20},
	} {
		table := scattered(c.groups, c.gap)
		for _, frames := range []int{20, 2000} {
			b.Run(fmt.Sprintf("%s/%d frames", c.name, frames), func(b *testing.B) {
				image, _, err := compile.Layout{Tables: int64(8 * len(table.Ranges))}.Build(table, elfout.Source{Name: "scattered"})
				require.NoError(b, err)
				object, err := ehelf.FromBytes(image.Bytes())
				require.NoError(b, err)
				defer object.Close()
				pc, stack := stackOf(table, frames)
				pcs := make([]uint64, frames)
				const sp = 0x7ffd00001000
				for b.Loop() {
					regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
					regs.Reg[abi.RIP], regs.Reg[abi.RSP] = pc, sp
					if n := object.Walk(&regs, &ehelf.Memory{Lo: sp, Bytes: stack}, 0, pcs); n != frames {
						b.Fatalf("%d of %d frames: %v", n, frames, regs.Status)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(frames), "ns/step")
				b.ReportMetric(float64(len(image.Bytes())), "bytes")
			})
		}
	}
}
