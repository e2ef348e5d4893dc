package dwarfcfa

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// DumpTable writes the normalised table, a line per range: its pcs, the number
// of its row, the CFA, and the rules of the columns that are not at their
// default (callee-saved registers same value, rsp the CFA, others undefined).
// With a pc it writes the range that holds it.
func DumpTable(w io.Writer, t *Table, pc *Addr) error {
	out := bufio.NewWriter(w)
	texts := make([]string, len(t.Rows))
	line := func(r Range) {
		if texts[r.Row] == "" {
			texts[r.Row] = t.RowText(r.Row)
		}
		fmt.Fprintf(out, "%016x..%016x %-5d %s\n", uint64(r.Start), uint64(r.End), r.Row, texts[r.Row])
	}
	if pc != nil {
		if r, ok := t.Lookup(*pc); ok {
			line(r)
		}
		return out.Flush()
	}
	for _, r := range t.Ranges {
		line(r)
	}
	return out.Flush()
}

// RowText renders a row on one line, such as "rsp+16 rbx=c-16 ra=c-8". CFA+n is written c+n, as readelf does.
func (t *Table) RowText(id uint32) string {
	info := t.rowInfo(&t.Rows[id])
	if info.Special != "" {
		return info.Special
	}
	parts := []string{info.CFA}
	for r := range NumRegs {
		name := tableColumn(r)
		if rule, ok := info.Regs[name]; ok {
			parts = append(parts, name+"="+rule)
		}
	}
	if info.Signal {
		parts = append(parts, "signal")
	}
	return strings.Join(parts, " ")
}

// tableColumn returns a column's name in dumps of tables.
func tableColumn(col int) string {
	if col == abi.RIP {
		return "ra"
	}
	return abi.RegName(col)
}

// RowInfo is a row for JSON, in the notation of the text dumps.
type RowInfo struct {
	Start   string            `json:"start,omitempty"` // first pc, hexadecimal
	End     string            `json:"end,omitempty"`   // one past the last
	Row     *uint32           `json:"row,omitempty"`   // number of the row in a table
	CFA     string            `json:"cfa,omitempty"`   // as readelf writes it, with the expression in parentheses
	Regs    map[string]string `json:"regs,omitempty"`  // columns not at their default
	Signal  bool              `json:"signal,omitempty"`
	Special string            `json:"special,omitempty"` // "end of stack", "not compiled"
}

// EntryInfo is an entry of a section for JSON.
type EntryInfo struct {
	Section      string    `json:"section"`
	Offset       uint64    `json:"offset"` // in the section
	Kind         string    `json:"kind"`   // "CIE", "FDE", "terminator", "error"
	Error        string    `json:"error,omitempty"`
	CIE          *uint64   `json:"cie,omitempty"`   // of an FDE: offset of its CIE
	Start        string    `json:"start,omitempty"` // first pc, hexadecimal
	End          string    `json:"end,omitempty"`   // one past the last
	LSDA         string    `json:"lsda,omitempty"`  // address of the language-specific data area
	Version      uint8     `json:"version,omitempty"`
	Augmentation *string   `json:"augmentation,omitempty"`
	CodeAlign    uint64    `json:"code_align,omitempty"`
	DataAlign    int64     `json:"data_align,omitempty"`
	RA           *uint64   `json:"ra,omitempty"`           // return address column
	Instructions []string  `json:"instructions,omitempty"` // of the entries stage
	Rows         []RowInfo `json:"rows,omitempty"`         // of the rows stage
}

// hexAddr is an address as JSON has it: a string, since numbers lose digits beyond 2^53.
func hexAddr(a Addr) string { return fmt.Sprintf("%#x", uint64(a)) }

// DescribeRanges returns the ranges of a table for JSON; with a pc, the one that holds
// it.
func (t *Table) DescribeRanges(pc *Addr) []RowInfo {
	ranges := t.Ranges
	if pc != nil {
		ranges = nil
		if r, ok := t.Lookup(*pc); ok {
			ranges = []Range{r}
		}
	}
	infos := make([]RowInfo, 0, len(ranges))
	for _, r := range ranges {
		info := t.rowInfo(&t.Rows[r.Row])
		row := r.Row
		info.Start, info.End, info.Row = hexAddr(r.Start), hexAddr(r.End), &row
		infos = append(infos, info)
	}
	return infos
}

// rowInfo describes a normalised row.
func (t *Table) rowInfo(row *Row) RowInfo {
	switch {
	case row.Flags&RowNotCompiled != 0:
		return RowInfo{Special: "not compiled"}
	case row.Regs[abi.RIP].Kind == RuleUndefined:
		return RowInfo{Special: "end of stack"}
	}
	return describeRow(row, defaultRule, func(id ExprID) []byte { return t.Exprs[id].Raw })
}

// describeRow describes a row, leaving out the rules that unset gives for their register. raw gives
// the bytes of an expression.
func describeRow(row *Row, unset func(reg int) RegRule, raw func(ExprID) []byte) RowInfo {
	info := RowInfo{
		CFA:    string(appendCFA(nil, row.CFA)),
		Regs:   make(map[string]string),
		Signal: row.Flags&RowSignal != 0,
	}
	if row.CFA.Kind == CFAExpr {
		info.CFA += "(" + ExprText(raw(row.CFA.Expr)) + ")"
	}
	for r, rule := range row.Regs {
		if rule == unset(r) {
			continue
		}
		text := string(appendRule(nil, rule))
		if rule.Kind == RuleExpression || rule.Kind == RuleValExpression {
			text += "(" + ExprText(raw(rule.Expr)) + ")"
		}
		info.Regs[tableColumn(r)] = text
	}
	return info
}

// DescribeEntries iterates over the entries of a section for JSON, with their
// instructions; with a pc, over the FDEs that hold it.
func (s *Section) DescribeEntries(pc *Addr) iter.Seq[EntryInfo] {
	return s.describe(pc, func(cie *CIE, fde *FDE, info *EntryInfo) error {
		pos, n, start := cie.instPos, len(cie.Instructions), Addr(0)
		if fde != nil {
			pos, n, start = fde.instPos, len(fde.Instructions), fde.Start
		}
		for text, err := range instructionTexts(cie, pos, n, start) {
			if err != nil {
				return err
			}
			info.Instructions = append(info.Instructions, text)
		}
		return nil
	})
}

// DescribeRows iterates over the FDEs of a section for JSON, with their rows
// before any normalising; with a pc, over the FDEs that hold it, and the row
// that does.
func (s *Section) DescribeRows(pc *Addr) iter.Seq[EntryInfo] {
	in := NewInterp()
	none := func(int) RegRule { return RegRule{} }
	raw := func(id ExprID) []byte {
		b, _ := in.Expr(id)
		return b
	}
	return s.describe(pc, func(cie *CIE, fde *FDE, info *EntryInfo) error {
		if fde == nil {
			row, err := in.initialRow(cie)
			if err == nil {
				info.Rows = append(info.Rows, describeRow(&row, none, raw))
			}
			return err
		}
		rows, err := in.Rows(fde)
		for i := range rows {
			if pc != nil && (*pc < rows[i].Start || *pc >= rows[i].End) {
				continue
			}
			r := describeRow(&rows[i].Row, none, raw)
			r.Start, r.End = hexAddr(rows[i].Start), hexAddr(rows[i].End)
			info.Rows = append(info.Rows, r)
		}
		return err
	})
}

// describe iterates over entries; more adds what a stage knows of a CIE (fde
// nil) or an FDE.
func (s *Section) describe(pc *Addr, more func(cie *CIE, fde *FDE, info *EntryInfo) error) iter.Seq[EntryInfo] {
	return func(yield func(EntryInfo) bool) {
		for e, err := range s.Entries() {
			info := EntryInfo{Section: s.Name, Offset: e.Offset}
			switch {
			case err != nil:
				info.Kind = "error"
			case e.CIE != nil:
				c := e.CIE
				info.Kind, info.Version, info.Augmentation = "CIE", c.Version, &c.Augmentation
				info.CodeAlign, info.DataAlign, info.RA = c.CodeAlign, c.DataAlign, &c.RA
				err = more(c, nil, &info)
			case e.FDE != nil:
				f := e.FDE
				if pc != nil && (*pc < f.Start || *pc >= f.End) {
					continue
				}
				info.Kind, info.CIE, info.Start, info.End = "FDE", &f.CIE.Offset, hexAddr(f.Start), hexAddr(f.End)
				if f.HasLSDA {
					info.LSDA = hexAddr(f.LSDA)
				}
				err = more(f.CIE, f, &info)
			default:
				info.Kind = "terminator"
			}
			if pc != nil && info.Kind != "FDE" {
				continue
			}
			if err != nil {
				info.Error = err.Error()
			}
			if !yield(info) {
				return
			}
		}
	}
}
