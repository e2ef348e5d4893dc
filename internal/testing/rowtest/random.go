package rowtest

import (
	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file makes tables from the bytes of a fuzz input: each byte decides something, so a small change of the input
// is a small change of the table, and the fuzzer can find its way.

// Table makes a normalised table of up to maxRanges ranges, with every kind of rule and
// operation, from any bytes.
func Table(data []byte, maxRanges int) *dwarfcfa.Table {
	s := source{data}
	return s.table(maxRanges)
}

// source gives the numbers that a table is made from: the bytes of a fuzz input,
// then zeros.
type source struct{ b []byte }

func (s *source) byte() byte {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return v
}

// below returns a number in [0, n), n at most 256. That small ones are likelier does no harm.
func (s *source) below(n int) int { return int(s.byte()) % n }

// offset returns a multiple of 8 mostly, near mostly, negative half the time; the others are where encoders change to
// longer forms.
func (s *source) offset() int64 {
	v := int64(int8(s.byte())) * 8
	switch s.below(8) {
	case 0:
		v += int64(s.below(8))
	case 1:
		v *= 1 << s.below(28)
	case 2:
		v = int64(s.byte())<<56 | int64(s.byte())<<40 | v
	}
	return v
}

// table is Table: ranges ascend and are disjoint, adjacent ones differ in their rows, and equal rows are one.
func (s *source) table(maxRanges int) *dwarfcfa.Table {
	t := &dwarfcfa.Table{Exprs: make([]dwarfcfa.Expr, 1)}
	known := map[dwarfcfa.Row]uint32{}
	addr := dwarfcfa.Addr(s.byte())<<32 + dwarfcfa.Addr(s.byte())
	last := -1
	for n := 1 + s.below(maxRanges); n > 0 && (len(s.b) > 0 || len(t.Ranges) == 0); n-- {
		if s.below(4) == 0 {
			addr += dwarfcfa.Addr(s.byte()) << (s.below(6))
			last = -1
		}
		end := addr + 1 + dwarfcfa.Addr(s.byte())>>s.below(8)
		var row uint32
		if len(t.Rows) > 0 && s.below(3) == 0 {
			row = uint32(s.below(len(t.Rows)))
		} else {
			r := s.row(t)
			id, ok := known[r]
			if !ok {
				id = uint32(len(t.Rows))
				known[r] = id
				t.Rows = append(t.Rows, r)
			}
			row = id
		}
		if int(row) == last {
			t.Ranges[len(t.Ranges)-1].End = end
		} else {
			t.Ranges = append(t.Ranges, dwarfcfa.Range{Start: addr, End: end, Row: row})
		}
		addr, last = end, int(row)
	}
	return t
}

// row makes a normalised row: one that is not compiled, the outermost, one such as compilers make, or one with any
// rules.
func (s *source) row(t *dwarfcfa.Table) dwarfcfa.Row {
	var r dwarfcfa.Row
	switch s.below(16) {
	case 0:
		r.Flags = dwarfcfa.RowNotCompiled
		return r
	case 1:
		r.Regs[abi.RIP].Kind = dwarfcfa.RuleUndefined
		return r
	case 2:
		r.Flags = dwarfcfa.RowSignal
	}
	plain := s.below(2) == 0 // such as compilers make
	base := []uint16{abi.RSP, abi.RBP, abi.RSP, abi.RBX, abi.R10, abi.RIP, abi.RAX, abi.R15}[s.below(8)]
	flags := r.Flags
	r = Row(base, s.offset())
	r.Flags = flags
	if plain {
		r.CFA.Reg = []uint16{abi.RSP, abi.RBP}[s.below(2)]
		r.CFA.Offset = 8 + 8*int64(s.below(32))
		offset := int64(-16)
		for regs := s.byte(); regs != 0; regs >>= 1 {
			if reg := []int{abi.RBP, abi.RBX, abi.R12, abi.R13, abi.R14, abi.R15, abi.RBP,
				abi.RBX}[s.below(8)]; regs&1 != 0 {
				r.Regs[reg] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: offset}
				offset -= 8
			}
		}
		return r
	}
	if s.below(4) == 0 {
		r.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFAExpr, Expr: s.expr(t, false)}
	}
	for n := s.below(20); n > 0; n-- {
		reg := s.below(abi.NumRegs)
		rule := s.rule(t)
		if reg == abi.RIP && rule.Kind == dwarfcfa.RuleUndefined {
			continue
		}
		r.Regs[reg] = rule
	}
	return r
}

// rule makes the rule of a register, of every kind.
func (s *source) rule(t *dwarfcfa.Table) dwarfcfa.RegRule {
	kinds := []dwarfcfa.RuleKind{dwarfcfa.RuleOffset, dwarfcfa.RuleUndefined, dwarfcfa.RuleSameValue,
		dwarfcfa.RuleOffset, dwarfcfa.RuleValOffset, dwarfcfa.RuleRegister, dwarfcfa.RuleExpression,
		dwarfcfa.RuleValExpression}
	rule := dwarfcfa.RegRule{Kind: kinds[s.below(len(kinds))]}
	switch rule.Kind {
	case dwarfcfa.RuleOffset, dwarfcfa.RuleValOffset:
		rule.Offset = s.offset()
	case dwarfcfa.RuleRegister:
		rule.Reg = uint16(s.below(abi.NumRegs))
	case dwarfcfa.RuleExpression, dwarfcfa.RuleValExpression:
		rule.Expr = s.expr(t, true)
	}
	return rule
}

// expr adds an expression to the pool. pushed says that it begins with the CFA on the stack (DWARF 5, 6.4.2.3,
// DW_CFA_expression). It ends with at least one value.
func (s *source) expr(t *dwarfcfa.Table, pushed bool) dwarfcfa.ExprID {
	e := dwarfcfa.Expr{Pushed: pushed}
	depth := 0
	if pushed {
		depth = 1
	}
	s.ops(&e, &depth, 2+s.below(24), 3)
	for depth == 0 {
		e.Ops = append(e.Ops, dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: abi.RSP})
		depth++
	}
	t.Exprs = append(t.Exprs, e)
	return dwarfcfa.ExprID(len(t.Exprs) - 1)
}

// ops appends n operations, and keeps depth, the height of the stack, within its bounds: what the compiler gets has
// been checked. nested bounds how deep branches may lie in each other.
func (s *source) ops(e *dwarfcfa.Expr, depth *int, n, nested int) {
	add := func(op dwarfcfa.ExprOp) { e.Ops = append(e.Ops, op) }
	for ; n > 0 && len(e.Ops) < dwarfcfa.MaxExprOps/2; n-- {
		switch {
		case *depth == 0 || s.below(3) == 0:
			if *depth == dwarfcfa.MaxExprStack {
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpDrop})
				*depth--
				continue
			}
			switch s.below(5) {
			case 0:
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: s.offset()})
			case 1:
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpAddr, Arg: s.offset()})
			case 2:
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: int64(s.below(70)) - 2})
			default:
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpReg, Reg: uint16(s.below(abi.NumRegs)), Arg: s.offset()})
			}
			*depth++
		case s.below(6) == 0 && nested > 0 && *depth > 1:
			// A branch over operations that leave the depth as it is.
			index := len(e.Ops)
			code := dwarfcfa.OpBranch
			if s.below(3) == 0 {
				code = dwarfcfa.OpSkip
			} else {
				*depth--
			}
			add(dwarfcfa.ExprOp{Code: code})
			inner := *depth
			s.ops(e, &inner, s.below(6), nested-1)
			for ; inner > *depth; inner-- {
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpDrop})
			}
			for ; inner < *depth; inner++ {
				add(dwarfcfa.ExprOp{Code: dwarfcfa.OpConst, Arg: 1})
			}
			e.Ops[index].Jump = len(e.Ops)
		case *depth >= 2 && s.below(2) == 0:
			add(dwarfcfa.ExprOp{Code: dwarfcfa.OpAnd + dwarfcfa.ExprCode(s.below(int(dwarfcfa.OpGe-dwarfcfa.OpAnd)+1))})
			*depth--
		default:
			s.unary(e, depth)
		}
	}
}

// unary appends an operation that works on the top of the stack, or copies within it, if the stack has what it needs.
func (s *source) unary(e *dwarfcfa.Expr, depth *int) {
	op := dwarfcfa.ExprOp{}
	switch s.below(9) {
	case 0:
		op.Code = dwarfcfa.OpAbs
	case 1:
		op.Code = dwarfcfa.OpNeg
	case 2:
		op.Code = dwarfcfa.OpNot
	case 3, 4:
		op = dwarfcfa.ExprOp{Code: dwarfcfa.OpDeref, Arg: 1 << s.below(4)}
	case 5:
		if *depth < 2 {
			return
		}
		op.Code = dwarfcfa.OpSwap
	case 6:
		if *depth < 3 {
			return
		}
		op.Code = dwarfcfa.OpRot
	case 7:
		if *depth == dwarfcfa.MaxExprStack {
			return
		}
		op = dwarfcfa.ExprOp{Code: dwarfcfa.OpPick, Arg: int64(s.below(*depth))}
		*depth++
	case 8:
		if *depth == dwarfcfa.MaxExprStack {
			return
		}
		op.Code = dwarfcfa.OpDup
		*depth++
	}
	e.Ops = append(e.Ops, op)
}
