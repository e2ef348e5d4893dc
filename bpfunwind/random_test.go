package bpfunwind

import (
	"math/rand/v2"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// generator makes tables with all that steps can say, and some that they cannot.
type generator struct {
	*rand.Rand
	table *dwarfcfa.Table
}

// stepTable makes a table of n ranges at low addresses.
func stepTable(r *rand.Rand, ranges int) *dwarfcfa.Table {
	if r.IntN(3) > 0 {
		return denseTable(r, ranges, 0)
	}
	return denseTable(r, ranges, []int{1, 2, 3, 5, 20}[r.IntN(5)])
}

// pagesTable makes a table of pages with as many ranges as make a search end in each of its ways.
func pagesTable(r *rand.Rand) *dwarfcfa.Table {
	t := denseTable(r, 400, 1) // for its rows
	t.Ranges = nil
	pc, last := dwarfcfa.Addr(0x1000), record{}
	for range 2 + r.IntN(8) {
		number := min(pageSize, max(1, (1+2*r.IntN(4))<<r.IntN(8)-r.IntN(2)))
		if r.IntN(3) == 0 {
			number = pageSize
		}
		for i := range number {
			end := pc + 1
			if i == number-1 {
				end = (pc | (pageSize - 1)) + 1
			}
			row := uint32(r.IntN(len(t.Rows)))
			for encode(stepOf(t, &t.Rows[row])) == last {
				row = uint32(r.IntN(len(t.Rows)))
			}
			last = encode(stepOf(t, &t.Rows[row]))
			t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: pc, End: end, Row: row})
			pc = end
		}
	}
	return t
}

// denseTable makes a table whose ranges have at most that number of bytes; 0: any length. With 1, pages have 256
// ranges.
func denseTable(r *rand.Rand, ranges, longest int) *dwarfcfa.Table {
	g := &generator{r, &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}}
	t := g.table
	known := map[dwarfcfa.Row]uint32{}
	pc := dwarfcfa.Addr(0x1000 + r.IntN(0x1000))
	last := ^uint32(0)
	var now record // of the last row
	dense := longest > 0
	for range ranges {
		if r.IntN(8) == 0 && !(dense && (longest == 1 || r.IntN(8) > 0)) {
			pc += dwarfcfa.Addr(1 + r.IntN(1<<r.IntN(12)))
			last = ^uint32(0)
		}
		row := g.row()
		if dense && len(t.Rows) > 100 {
			for row = t.Rows[r.IntN(len(t.Rows))]; encode(stepOf(t, &row)) == now; row = t.Rows[r.IntN(len(t.Rows))] {
			}
		}
		id, ok := known[row]
		if !ok {
			id = uint32(len(t.Rows))
			known[row] = id
			t.Rows = append(t.Rows, row)
		}
		end := pc + dwarfcfa.Addr(1+r.IntN(1<<r.IntN(9)))
		if dense {
			end = pc + 1 + dwarfcfa.Addr(r.IntN(longest)*r.IntN(2))
		}
		if id == last {
			t.Ranges[len(t.Ranges)-1].End = end
		} else {
			t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: pc, End: end, Row: id})
		}
		pc, last, now = end, id, encode(stepOf(t, &row))
	}
	return t
}

// expr adds an expression.
func (g *generator) expr(pushed bool, ops ...dwarfcfa.ExprOp) dwarfcfa.ExprID {
	g.table.Exprs = append(g.table.Exprs, dwarfcfa.Expr{Ops: ops, Pushed: pushed})
	return dwarfcfa.ExprID(len(g.table.Exprs) - 1)
}

// offset returns a multiple of 8 mostly, of either sign.
func (g *generator) offset() int64 {
	off := int64(g.IntN(40)-20) * 8
	switch g.IntN(16) {
	case 0:
		off += int64(g.IntN(8))
	case 1:
		off *= 1 << g.IntN(10)
	}
	return off
}

// below returns an offset below the CFA.
func (g *generator) below() int64 { return -8 * int64(1+g.IntN(14)) }

func (g *generator) callee() uint16 {
	return uint16([]int{abi.RSP, abi.RBP, abi.RSP, abi.RBP, abi.RBX, abi.R12, abi.R15}[g.IntN(7)])
}

// row makes a normalised row.
func (g *generator) row() dwarfcfa.Row {
	var row dwarfcfa.Row
	switch g.IntN(20) {
	case 0:
		row.Regs[abi.RIP].Kind = dwarfcfa.RuleUndefined
		return row
	case 1:
		return g.signal()
	case 2:
		row.Flags = dwarfcfa.RowNotCompiled
		return row
	}
	for reg := range row.Regs {
		row.Regs[reg].Kind = dwarfcfa.RuleUndefined
		if abi.CalleeSaved&(1<<reg) != 0 {
			row.Regs[reg].Kind = dwarfcfa.RuleSameValue
		}
	}
	row.Regs[abi.RSP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleValOffset}
	row.Regs[abi.RIP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -8}
	base := g.callee()
	row.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: base, Offset: 8 * int64(1+g.IntN(20))}
	drap := false
	switch g.IntN(10) {
	case 0: // a register that calls may change
		row.CFA.Reg = uint16(g.IntN(abi.RIP))
	case 1:
		ops := []dwarfcfa.ExprOp{{Code: dwarfcfa.OpReg, Reg: base, Arg: g.offset()}, {Code: dwarfcfa.OpDeref, Arg: 8}}
		if g.IntN(2) == 0 {
			ops = append(ops, dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: int64(g.IntN(300))},
				dwarfcfa.ExprOp{Code: dwarfcfa.OpPlus})
		} else {
			drap = g.IntN(2) == 0
		}
		row.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: g.expr(false, ops...)}
	case 2:
		row.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: g.expr(false,
			dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: base, Arg: g.offset()},
			dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: abi.RIP},
			dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: 15}, dwarfcfa.ExprOp{Code: dwarfcfa.OpAnd},
			dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: int64(g.IntN(17))}, dwarfcfa.ExprOp{Code: dwarfcfa.OpGe},
			dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: 3}, dwarfcfa.ExprOp{Code: dwarfcfa.OpShl},
			dwarfcfa.ExprOp{Code: dwarfcfa.OpPlus})}
	}
	for _, reg := range saved {
		switch g.IntN(4) {
		case 0, 1:
			row.Regs[reg] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: g.below()}
			if drap && g.IntN(6) == 0 { // as r13, which GCC then has for the CFA
				row.Regs[reg].Offset = -16
			} else if drap {
				row.Regs[reg] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleExpression,
					Expr: g.expr(true, dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: base, Arg: g.below()})}
			}
		}
	}
	if g.IntN(4) == 0 {
		g.unusual(&row)
	}
	return row
}

// unusual changes a column to something that few rows have.
func (g *generator) unusual(row *dwarfcfa.Row) {
	reg := []int{abi.RIP, abi.RSP, abi.RBX, abi.RBP, abi.R13, abi.RAX, abi.RDI}[g.IntN(7)]
	rule := dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: g.offset()}
	switch g.IntN(4) {
	case 0:
		rule = dwarfcfa.RegRule{Kind: dwarfcfa.RuleRegister, Reg: uint16(g.IntN(abi.NumRegs))}
		if int(rule.Reg) == reg {
			rule = dwarfcfa.RegRule{Kind: dwarfcfa.RuleSameValue}
		}
	case 1:
		if reg != abi.RIP {
			rule = dwarfcfa.RegRule{Kind: dwarfcfa.RuleUndefined}
		}
	case 2:
		rule = dwarfcfa.RegRule{Kind: dwarfcfa.RuleExpression,
			Expr: g.expr(true, dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: g.callee(), Arg: g.offset()})}
	}
	row.Regs[reg] = rule
}

// signal makes the row of a signal handler's return, or one that differs in a word.
func (g *generator) signal() dwarfcfa.Row {
	row := dwarfcfa.Row{Flags: dwarfcfa.RowSignal}
	row.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr,
		Expr: g.expr(false, dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: sigRSP},
			dwarfcfa.ExprOp{Code: dwarfcfa.OpDeref, Arg: 8})}
	other := g.IntN(40)
	for i, reg := range sigcontext {
		off := sigcontextAt + 8*int64(i)
		if i == other {
			off += 8
		}
		row.Regs[reg] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleExpression,
			Expr: g.expr(true, dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: abi.RSP, Arg: off})}
	}
	if g.IntN(2) == 0 {
		row.Regs[abi.RSP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleValOffset}
	}
	return row
}
