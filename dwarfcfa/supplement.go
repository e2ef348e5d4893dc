package dwarfcfa

import "slices"

// An object can have both sections: in a Go program that a C linker linked, the C
// parts have .eh_frame and the Go parts have only .debug_frame. With SourceAuto,
// .debug_frame covers the pcs for which .eh_frame has nothing.

// supplement adds to t, made from .eh_frame, the rows of .debug_frame for pcs
// that t does not cover.
func supplement(o *File, t *Table, rep *Report, opt BuildOptions) (*Table, *Report, error) {
	s, err := o.debugFrame()
	if err != nil {
		lost := &DecodeError{File: o.name, Section: ".debug_frame", Err: err}
		if opt.Strict {
			return nil, rep, lost
		}
		rep.lose(lost)
		return t, rep, nil
	}
	if s == nil || !s.HasFDE() {
		return t, rep, nil
	}
	more, moreRep, err := buildSource(newCFISource(s), o.codeImage(), opt)
	if err != nil {
		return nil, moreRep, err
	}
	rest := subtract(more.Ranges, t.Ranges)
	if len(rest) == 0 {
		return t, rep, nil // it says nothing new
	}
	t = union(t, more, rest)
	rep.Add(moreRep)
	rep.Source += "+" + moreRep.Source
	rep.Rows.Merged = len(t.Ranges)
	rep.Rows.Distinct = len(t.Rows)
	rep.Rows.Exprs = len(t.Exprs) - 1
	return t, rep, nil
}

// subtract returns the parts of ranges that no range of taken covers. Both are
// ascending and disjoint, and so is the result.
func subtract(ranges, taken []Range) []Range {
	var rest []Range
	i := 0
	for _, r := range ranges {
		for i < len(taken) && taken[i].End <= r.Start {
			i++
		}
		for j := i; j < len(taken) && taken[j].Start < r.End; j++ {
			if r.Start < taken[j].Start {
				rest = append(rest, Range{r.Start, taken[j].Start, r.Row})
			}
			r.Start = max(r.Start, taken[j].End)
		}
		if r.Start < r.End {
			rest = append(rest, r)
		}
	}
	return rest
}

// union returns a's table with ranges of b in its gaps.
func union(a, b *Table, ofB []Range) *Table {
	t := &Table{Exprs: slices.Concat(a.Exprs, b.Exprs[1:])} // maybe more than Ranges use
	shift := ExprID(len(a.Exprs) - 1)                       // b's expressions follow a's
	// Rows of both tables may be equal after the shift only if they have no expressions; others are
	// kept twice.
	index := make(map[Row]uint32, len(a.Rows)+len(b.Rows))
	add := func(r Range, rows []Row, shift ExprID) {
		row := rows[r.Row]
		moveExpr(&row.CFA.Expr, shift)
		for i := range row.Regs {
			moveExpr(&row.Regs[i].Expr, shift)
		}
		id, ok := index[row]
		if !ok {
			id = uint32(len(t.Rows))
			index[row] = id
			t.Rows = append(t.Rows, row)
		}
		t.Ranges = append(t.Ranges, Range{r.Start, r.End, id})
	}
	i := 0
	for _, r := range a.Ranges {
		for ; i < len(ofB) && ofB[i].Start < r.Start; i++ {
			add(ofB[i], b.Rows, shift)
		}
		add(r, a.Rows, 0)
	}
	for ; i < len(ofB); i++ {
		add(ofB[i], b.Rows, shift)
	}
	t.Ranges = mergeEqual(t.Ranges)
	return t
}

// moveExpr shifts an expression's number; 0 stands for none.
func moveExpr(id *ExprID, shift ExprID) {
	if *id != 0 {
		*id += shift
	}
}

// Add adds the counts and sizes of o to r and appends its lists. Source and the
// fields that describe the table (Rows.Merged, Rows.Distinct, Rows.Exprs)
// stay unchanged.
func (r *Report) Add(o *Report) {
	r.SectionSize += o.SectionSize
	r.HdrSize += o.HdrSize
	r.Entries.CIEs += o.Entries.CIEs
	r.Entries.FDEs += o.Entries.FDEs
	r.Entries.Empty += o.Entries.Empty
	r.Entries.Shadowed += o.Entries.Shadowed
	r.Entries.OutsideCode += o.Entries.OutsideCode
	r.Entries.Clipped += o.Entries.Clipped
	for _, e := range o.LostFDEs {
		r.lose(e)
	}
	r.Entries.Lost += o.Entries.Lost - len(o.LostFDEs)
	r.Bounded = r.Bounded || o.Bounded
	r.Rows.NotCompiled += o.Rows.NotCompiled
	r.NotCompiled = append(r.NotCompiled, o.NotCompiled[:min(len(o.NotCompiled), maxListed-len(r.NotCompiled))]...)
	r.Rows.Ranges += o.Rows.Ranges
	r.Rows.FilledGaps += o.Rows.FilledGaps
	r.Rows.PoppedRules += o.Rows.PoppedRules
}
