package dwarfcfa

// addMade adds rows made from code to the table of the file's own rows: in its gaps,
// and in place of the rows that opt.Made names. t and rep are nil if the file has no
// rows.
func addMade(o *File, t *Table, rep *Report, opt BuildOptions) (*Table, *Report, error) {
	if rep == nil {
		rep = &Report{}
	}
	// Without rows of the file, or if none of them counts, everything comes from the code.
	if t == nil || len(t.Exprs) == 0 || opt.Made.All {
		t = &Table{Exprs: make([]Expr, 1)}
	}
	made, madeRep, err := buildSource(newCFISource(opt.Made.Section), o.codeImage(), opt)
	if err != nil {
		return nil, madeRep, err
	}
	// The file's rows are kept outside of opt.Made.Replace, and the made ones fill what is then
	// free.
	kept := &Table{Ranges: subtract(t.Ranges, opt.Made.Replace), Rows: t.Rows, Exprs: t.Exprs}
	rest := subtract(made.Ranges, kept.Ranges)
	if opt.Made.All {
		*rep = Report{}
	}
	if len(rest) == 0 && len(opt.Made.Replace) == 0 {
		return t, rep, nil
	}
	t = union(kept, made, rest)
	rep.Rows.Made, rep.Rows.MadeBytes = len(rest), 0
	for _, r := range rest {
		rep.Rows.MadeBytes += int64(r.End - r.Start)
	}
	rep.Rows.Merged = len(t.Ranges)
	rep.Rows.Distinct = len(t.Rows)
	rep.Rows.Exprs = len(t.Exprs) - 1
	return t, rep, nil
}
