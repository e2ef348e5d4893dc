package dwarfcfa

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strconv"

	"github.com/ehasm/ehasm/abi"
)

// This file prints entries and rows so that diff against readelf's output shows each difference in meaning; tests do
// that for thousands of files.

// DumpEntries writes the entries of a section in the form of readelf --debug-dump=frames. With a pc it writes the FDEs
// that hold it, each after its CIE. The error is of w; what cannot be decoded is a line of the text.
func DumpEntries(w io.Writer, s *Section, pc *Addr) error {
	d := dumper{w: bufio.NewWriter(w), s: s, pc: pc}
	return d.all(d.cieText, d.fdeText)
}

// DumpRows writes the rows of each CIE and FDE, before any normalising, in the
// form of readelf --debug-dump=frames-interp. Like readelf it writes no rows
// for a program of nothing but nops. With a pc it writes the FDEs that hold
// it, each after its CIE.
func DumpRows(w io.Writer, s *Section, pc *Addr) error {
	d := dumper{w: bufio.NewWriter(w), s: s, pc: pc, in: NewInterp(), cies: map[*CIE]columnSet{}}
	return d.all(d.cieRows, d.fdeRows)
}

// dumper writes text as readelf 2.40 does. Errors of w stay in it until Flush.
type dumper struct {
	w    *bufio.Writer
	s    *Section
	pc   *Addr              // only what holds this pc; nil: all
	in   *Interp            // of DumpRows
	buf  []byte             // scratch of row
	rows rawRows            // scratch of fdeRows
	cies map[*CIE]columnSet // the columns of their initial instructions
}

// all walks over the entries and calls onCIE and onFDE for those to be written.
func (d *dumper) all(onCIE func(*CIE), onFDE func(*FDE)) error {
	fmt.Fprintf(d.w, "Contents of the %s section:\n\n", d.s.Name)
	written := make(map[*CIE]bool)
	for e, err := range d.s.Entries() {
		switch {
		case err != nil:
			if d.pc == nil {
				fmt.Fprintf(d.w, "\n%08x error: %v\n", e.Offset, err)
			}
		case e.CIE != nil:
			if d.pc == nil {
				onCIE(e.CIE)
			}
		case e.FDE != nil:
			if d.pc != nil {
				if *d.pc < e.FDE.Start || *d.pc >= e.FDE.End {
					continue
				}
				if !written[e.FDE.CIE] {
					written[e.FDE.CIE] = true
					onCIE(e.FDE.CIE)
				}
			}
			onFDE(e.FDE)
		case d.pc == nil:
			fmt.Fprintf(d.w, "\n%08x ZERO terminator\n\n", e.Offset)
		}
	}
	d.w.WriteByte('\n')
	return d.w.Flush()
}

// idDigits is the hexadecimal digits that readelf gives an id.
func idDigits(is64 bool) int {
	if is64 {
		return 16
	}
	return 8
}

// cieHead writes the first line of a CIE without its end; the id is 0 in .eh_frame and all ones in
// .debug_frame.
func (d *dumper) cieHead(c *CIE) {
	id := uint64(0)
	if d.s.debugFrame {
		id = 1<<(4*idDigits(c.Is64)) - 1
	}
	fmt.Fprintf(d.w, "\n%08x %016x %0*x CIE", c.Offset, c.Length, idDigits(c.Is64), id)
}

// fdeHead writes the first line of an FDE.
func (d *dumper) fdeHead(f *FDE) {
	fmt.Fprintf(d.w, "\n%08x %016x %0*x FDE cie=%08x pc=%016x..%016x\n",
		f.Offset, f.Length, idDigits(f.Is64), f.ID, f.CIE.Offset, uint64(f.Start), uint64(f.End))
}

// cieText writes a CIE in the form of --debug-dump=frames.
func (d *dumper) cieText(c *CIE) {
	d.cieHead(c)
	fmt.Fprintf(d.w, "\n  Version:               %d\n  Augmentation:          \"%s\"\n", c.Version, c.Augmentation)
	if c.Version >= 4 { // other sizes are refused by readCIE
		fmt.Fprintf(d.w, "  Pointer Size:          8\n  Segment Size:          0\n")
	}
	fmt.Fprintf(d.w, "  Code alignment factor: %d\n  Data alignment factor: %d\n  Return address column: %d\n",
		c.CodeAlign, c.DataAlign, c.RA)
	if len(c.AugData) == 0 {
		d.w.WriteByte('\n')
	}
	d.augmentation(c.AugData)
	d.instructions(c, c.instPos, len(c.Instructions), 0)
}

// fdeText writes an FDE in the form of --debug-dump=frames.
func (d *dumper) fdeText(f *FDE) {
	d.fdeHead(f)
	d.augmentation(f.AugData)
	d.instructions(f.CIE, f.instPos, len(f.Instructions), f.Start)
}

// augmentation writes augmentation data, if there is any.
func (d *dumper) augmentation(data []byte) {
	if len(data) == 0 {
		return
	}
	d.w.WriteString("  Augmentation data:    ")
	for _, b := range data {
		fmt.Fprintf(d.w, " %02x", b)
	}
	d.w.WriteByte('\n')
}

// instructions writes the program of n bytes at pos. function is the FDE's first pc, 0 for a CIE.
func (d *dumper) instructions(cie *CIE, pos, n int, function Addr) {
	for text, err := range instructionTexts(cie, pos, n, function) {
		if err != nil {
			text = "error: " + err.Error()
		}
		fmt.Fprintf(d.w, "  %s\n", text)
	}
}

// instructionTexts iterates over the instructions of a program, rendered. An error ends them.
func instructionTexts(cie *CIE, pos, n int, function Addr) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		c := cie.section.cursor(pos, pos+n)
		loc := function
		var i Inst
		for !c.done() {
			i.read(&c, cie, function)
			if c.err != nil {
				yield("", c.err)
				return
			}
			loc += Addr(i.Delta)
			if i.Op == CFASetLoc {
				loc = i.Loc
			}
			if !yield(i.Text(loc), nil) {
				return
			}
		}
	}
}

// columnSet has the bit of each column of a row.
type columnSet uint32

// columns returns the columns a program mentions; others is set if it holds anything but nops. readelf gives a table
// those columns alone, whatever the rules in them.
func (d *dumper) columns(cie *CIE, pos, n int, function Addr) (cols columnSet, others bool) {
	c := cie.section.cursor(pos, pos+n)
	var i Inst
	for !c.done() {
		i.read(&c, cie, function)
		switch i.Op {
		case CFANop:
			continue
		case CFAOffset, CFAOffsetExtended, CFAOffsetExtendedSF, CFAGNUNegativeOffsetExtended, CFAValOffset, CFAValOffsetSF,
			CFARestore, CFARestoreExtended, CFAUndefinedReg, CFASameValue, CFARegister, CFAExpression, CFAValExpression:
			if col, ok := column(cie, i.Reg); ok && c.err == nil {
				cols |= 1 << col
			}
		}
		others = true
	}
	return cols, others
}

// initialColumns returns the columns that a CIE mentions.
func (d *dumper) initialColumns(c *CIE) columnSet {
	cols, ok := d.cies[c]
	if !ok {
		cols, _ = d.columns(c, c.instPos, len(c.Instructions), 0)
		d.cies[c] = cols
	}
	return cols
}

// cieRows writes a CIE with the row of its initial instructions, in the form of frames-interp.
func (d *dumper) cieRows(c *CIE) {
	d.cieHead(c)
	fmt.Fprintf(d.w, " \"%s\" cf=%d df=%d ra=%d\n", c.Augmentation, c.CodeAlign, c.DataAlign, c.RA)
	cols, others := d.columns(c, c.instPos, len(c.Instructions), 0)
	row, err := d.in.initialRow(c)
	switch {
	case err != nil:
		fmt.Fprintf(d.w, "  error: %v\n", err)
	case others:
		d.header(c, cols)
		d.row(cols, 0, &row)
	}
}

// fdeRows writes the rows of an FDE with the columns that its program or its CIE's mentions.
func (d *dumper) fdeRows(f *FDE) {
	d.fdeHead(f)
	cols, others := d.columns(f.CIE, f.instPos, len(f.Instructions), f.Start)
	cols |= d.initialColumns(f.CIE)
	d.rows = d.rows[:0]
	if err := d.in.run(f, &d.rows); err != nil {
		fmt.Fprintf(d.w, "  error: %v\n", d.s.errorOf(f, err))
		return
	}
	if !others {
		return
	}
	d.header(f.CIE, cols)
	for i := range d.rows {
		d.row(cols, d.rows[i].Start, &d.rows[i].Row)
	}
}

// header writes the names of columns, with the return address last if it is
// column 16.
func (d *dumper) header(cie *CIE, cols columnSet) {
	fmt.Fprintf(d.w, "%-16s CFA      ", "   LOC")
	for r := range NumRegs {
		if cols&(1<<r) != 0 {
			fmt.Fprintf(d.w, "%-5s ", columnName(cie, r))
		}
	}
	d.w.WriteByte('\n')
}

// columnName returns a column's name in readelf's table: the return address is "ra" wherever it
// lies.
func columnName(cie *CIE, col int) string {
	if uint64(col) == cie.RA || col == abi.RIP && cie.RA >= NumRegs {
		return "ra"
	}
	return abi.RegName(col)
}

// row writes one line of a table: the location, the CFA, and the rules of cols.
func (d *dumper) row(cols columnSet, loc Addr, row *Row) {
	b := appendHex16(d.buf[:0], uint64(loc))
	b = append(b, ' ')
	start := len(b)
	b = appendCFA(b, row.CFA)
	b = pad(b, start, 8)
	for r := range NumRegs {
		if cols&(1<<r) != 0 {
			b = append(b, ' ')
			start := len(b)
			b = appendRule(b, row.Regs[r])
			b = pad(b, start, 5)
		}
	}
	b = append(b, ' ', '\n')
	d.w.Write(b)
	d.buf = b
}

// appendHex16 appends 16 hexadecimal digits. Rows are most of a dump, so it does without fmt.
func appendHex16(b []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[v>>shift&15])
	}
	return b
}

// pad fills what was written since start with spaces to a width.
func pad(b []byte, start, width int) []byte {
	for len(b)-start < width {
		b = append(b, ' ')
	}
	return b
}

// appendSigned appends a number with its sign, also if it is positive.
func appendSigned(b []byte, v int64) []byte {
	if v >= 0 {
		b = append(b, '+')
	}
	return strconv.AppendInt(b, v, 10)
}

// appendCFA writes a CFA rule as readelf does: "rsp+8", "exp". For an undefined
// one it writes register 0, as readelf does.
func appendCFA(b []byte, rule CFARule) []byte {
	if rule.Kind == CFAExpr {
		return append(b, "exp"...)
	}
	b = append(b, abi.RegName(int(rule.Reg))...)
	return appendSigned(b, rule.Offset)
}

// appendRule writes a register rule as readelf does: "c-16" saved at CFA-16,
// "v+8" is CFA+8, "s" same value, "u" undefined or no rule, "exp", "vexp".
func appendRule(b []byte, rule RegRule) []byte {
	switch rule.Kind {
	case RuleSameValue:
		return append(b, 's')
	case RuleOffset:
		return appendSigned(append(b, 'c'), rule.Offset)
	case RuleValOffset:
		return appendSigned(append(b, 'v'), rule.Offset)
	case RuleRegister:
		return append(b, regText(uint64(rule.Reg))...)
	case RuleExpression:
		return append(b, "exp"...)
	case RuleValExpression:
		return append(b, "vexp"...)
	}
	return append(b, 'u')
}
