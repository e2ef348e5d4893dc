// Package rowtest makes rows for tests.
package rowtest

import (
	"math/rand/v2"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// Row returns what compilers make: the CFA is base+offset, the return address lies
// below it, and the registers of saves below that, each 8 bytes lower than the one
// before. It is normalised.
func Row(base uint16, offset int64, saves ...int) dwarfcfa.Row {
	var r dwarfcfa.Row
	for i := range r.Regs {
		r.Regs[i].Kind = dwarfcfa.RuleUndefined
		if abi.CalleeSaved&(1<<i) != 0 {
			r.Regs[i].Kind = dwarfcfa.RuleSameValue
		}
	}
	r.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: base, Offset: offset}
	r.Regs[abi.RSP].Kind = dwarfcfa.RuleValOffset
	r.Regs[abi.RIP] = Saved(-8)
	for i, reg := range saves {
		r.Regs[reg] = Saved(-16 - 8*int64(i))
	}
	return r
}

// Saved returns the rule of a register saved at CFA+offset.
func Saved(offset int64) dwarfcfa.RegRule {
	return dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: offset}
}

// Pages returns a table of n pages of 256 pcs, each with a number of borders at random between rows. Every seventh is
// like an earlier one.
func Pages(n, borders, rows int) *dwarfcfa.Table {
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	used := map[int]uint32{} // rows are numbered in order of first use
	const base = 0x1000
	for page := range n {
		like := page
		if page%7 == 6 {
			like = page / 2
		}
		rng := rand.New(rand.NewPCG(uint64(like), uint64(borders)))
		keys := rng.Perm(255)[:borders]
		slices.Sort(keys)
		start := dwarfcfa.Addr(base + 256*page)
		for i := range borders + 1 {
			end := dwarfcfa.Addr(base + 256*(page+1))
			if i < borders {
				end += dwarfcfa.Addr(keys[i]) - 255
			}
			n := rng.IntN(rows)
			row, ok := used[n]
			if !ok {
				row = uint32(len(t.Rows))
				used[n] = row
				t.Rows = append(t.Rows, Row(abi.RSP, 8*int64(n+1)))
			}
			if last := len(t.Ranges) - 1; last >= 0 && t.Ranges[last].Row == row {
				t.Ranges[last].End = end
			} else {
				t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: start, End: end, Row: row})
			}
			start = end
		}
	}
	return t
}
