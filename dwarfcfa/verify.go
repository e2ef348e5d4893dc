package dwarfcfa

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// This file checks a finished table against its own documentation. Tests and fuzzers call it on
// every table; compilers of tables rely on what it checks.

// Verify checks what Table documents about its parts. An error is a defect of
// this package, whatever the input was.
func (t *Table) Verify() error {
	used := make([]bool, len(t.Rows))
	next := uint32(0) // the number of the next row that is used for the first time
	for i, r := range t.Ranges {
		// Ranges ascend, do not overlap, are not empty, and equal neighbours are one.
		switch {
		case r.Start >= r.End:
			return fmt.Errorf("range %d: [%#x, %#x) is empty", i, uint64(r.Start), uint64(r.End))
		case int(r.Row) >= len(t.Rows):
			return fmt.Errorf("range %d: row %d of %d", i, r.Row, len(t.Rows))
		case i > 0 && r.Start < t.Ranges[i-1].End:
			return fmt.Errorf("range %d: starts at %#x, inside the one before", i, uint64(r.Start))
		case i > 0 && r.Start == t.Ranges[i-1].End && r.Row == t.Ranges[i-1].Row:
			return fmt.Errorf("range %d: continues the one before", i)
		// Rows are numbered in the order of their first use, so that equal inputs give equal
		// tables.
		case !used[r.Row] && r.Row != next:
			return fmt.Errorf("range %d: row %d is used before row %d", i, r.Row, next)
		}
		if !used[r.Row] {
			used[r.Row] = true
			next++
		}
	}
	if int(next) != len(t.Rows) {
		return fmt.Errorf("%d of %d rows are used", next, len(t.Rows))
	}
	// Row is comparable: no two may be equal.
	seen := make(map[Row]int, len(t.Rows))
	for i, row := range t.Rows {
		if j, ok := seen[row]; ok {
			return fmt.Errorf("rows %d and %d are equal", j, i)
		}
		seen[row] = i
		if err := t.verifyRow(&row); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	// Expression 0 stands for none.
	for id := 1; id < len(t.Exprs); id++ {
		if err := t.Exprs[id].verify(); err != nil {
			return fmt.Errorf("expression %d: %w", id, err)
		}
	}
	return nil
}

// verifyRow checks that a row is in its one form: equal rows are equal by ==.
func (t *Table) verifyRow(row *Row) error {
	// This row says nothing else.
	if row.Flags&RowNotCompiled != 0 {
		if *row != (Row{Flags: RowNotCompiled}) {
			return fmt.Errorf("not compiled, but not canonical")
		}
		return nil
	}
	// Without a rule for rip there is no caller: all such rows are one.
	if row.Regs[abi.RIP].Kind == RuleUndefined {
		if *row != endOfStackRow() {
			return fmt.Errorf("end of stack, but not canonical")
		}
		return nil
	}
	if row.Flags&^RowSignal != 0 {
		return fmt.Errorf("unknown flags %#x", row.Flags)
	}
	// The rule with only the fields that its kind uses must be the rule itself.
	want := CFARule{Kind: row.CFA.Kind}
	switch row.CFA.Kind {
	case CFARegOffset:
		want.Reg, want.Offset = row.CFA.Reg, row.CFA.Offset
	case CFAExpr:
		want.Expr = row.CFA.Expr
	default:
		return fmt.Errorf("CFA of kind %d", row.CFA.Kind)
	}
	if row.CFA != want || want.Reg >= NumRegs {
		return fmt.Errorf("CFA %+v", row.CFA)
	}
	if err := t.verifyExprID(row.CFA.Expr, row.CFA.Kind == CFAExpr, false); err != nil {
		return fmt.Errorf("CFA: %w", err)
	}
	for r, rule := range row.Regs {
		// As for the CFA: a field that the kind does not use is 0.
		want := RegRule{Kind: rule.Kind}
		isExpr := false
		switch rule.Kind {
		case RuleUndefined, RuleSameValue:
		case RuleOffset, RuleValOffset:
			want.Offset = rule.Offset
		case RuleRegister:
			want.Reg = rule.Reg
		case RuleExpression, RuleValExpression:
			want.Expr, isExpr = rule.Expr, true
		default:
			return fmt.Errorf("%s: rule of kind %d", abi.RegName(r), rule.Kind)
		}
		if rule != want || rule.Reg >= NumRegs {
			return fmt.Errorf("%s: rule %+v", abi.RegName(r), rule)
		}
		if err := t.verifyExprID(rule.Expr, isExpr, true); err != nil {
			return fmt.Errorf("%s: %w", abi.RegName(r), err)
		}
	}
	return nil
}

// verifyExprID checks that there is an expression exactly where one is wanted, and that its start
// is right.
func (t *Table) verifyExprID(id ExprID, want, pushed bool) error {
	switch {
	// Kinds by expression have an id, all others have 0.
	case want != (id != 0):
		return fmt.Errorf("expression %d", id)
	case int(id) >= len(t.Exprs):
		return fmt.Errorf("expression %d of %d", id, len(t.Exprs))
	// Register rules begin with the CFA on the stack, CFA rules do not (DWARF 5 §6.4.2.2 and
	// §6.4.2.3).
	case want && t.Exprs[id].Pushed != pushed:
		return fmt.Errorf("expression %d: Pushed is %v", id, !pushed)
	}
	return nil
}

// verify checks what Expr documents.
func (e *Expr) verify() error {
	if len(e.Ops) > MaxExprOps {
		return fmt.Errorf("%d operations", len(e.Ops))
	}
	const unreached = -1                // code that no path reaches
	depths := make([]int, len(e.Ops)+1) // entries on the stack before each operation; branches only go forward
	for i := range depths {
		depths[i] = unreached
	}
	depths[0] = 0
	if e.Pushed {
		depths[0] = 1
	}
	for i, op := range e.Ops {
		if depths[i] == unreached {
			return fmt.Errorf("operation %d is dead", i)
		}
		if op.Code >= NumExprCodes {
			return fmt.Errorf("operation %d: code %d", i, op.Code)
		}
		// Effect gives how many entries the operation takes and leaves.
		pops, pushes := op.Effect()
		after := depths[i] - pops + pushes
		if depths[i] < pops || after > MaxExprStack {
			return fmt.Errorf("operation %d: stack of %d", i, depths[i])
		}
		// An operation leads to the next one, unless it is a jump, and to its target, if it has
		// one.
		var targets []int
		if op.Code != OpSkip {
			targets = append(targets, i+1)
		}
		if op.Code == OpSkip || op.Code == OpBranch {
			if op.Jump <= i || op.Jump > len(e.Ops) {
				return fmt.Errorf("operation %d: jump to %d", i, op.Jump)
			}
			targets = append(targets, op.Jump)
		}
		// All ways to an operation must agree on the depth.
		for _, to := range targets {
			if depths[to] != unreached && depths[to] != after {
				return fmt.Errorf("operation %d: reached with stacks of %d and %d", to, depths[to], after)
			}
			depths[to] = after
		}
		if op.Code == OpReg && op.Reg >= NumRegs {
			return fmt.Errorf("operation %d: register %d", i, op.Reg)
		}
		if a := op.Arg; op.Code == OpDeref && a != 1 && a != 2 && a != 4 && a != 8 {
			return fmt.Errorf("operation %d: reads %d bytes", i, a)
		}
	}
	if depths[len(e.Ops)] < 1 {
		return fmt.Errorf("no result")
	}
	return nil
}
