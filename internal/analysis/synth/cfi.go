package synth

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// WriteCFI writes the rows of a function as directives of the GNU assembler (its manual, "CFI directives"), each group
// with the offset of the instruction before which it belongs. .cfi_startproc implies the row at a function's first
// instruction. The text is for people to paste into their sources: gas reads it, but the places are comments. f must
// have a range.
func WriteCFI(w io.Writer, f *Function) error {
	out := bufio.NewWriter(w)
	name := f.Name
	if name == "" {
		name = fmt.Sprintf("function at %#x", uint64(f.Start()))
	} else if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		name = strconv.Quote(name) // a line's end would turn the rest into directives
	}
	fmt.Fprintf(out, "# %s, %d bytes\n\t.cfi_startproc\n", name, uint64(f.End()-f.Start()))
	row := Entry
	for i := range f.Ranges {
		r := &f.Ranges[i]
		lines := directives(&row, &r.Row, &f.Ranges[0].Row)
		if len(lines) > 0 && r.Start > f.Start() {
			fmt.Fprintf(out, "# before +%#x\n", uint64(r.Start-f.Start()))
		}
		for _, line := range lines {
			fmt.Fprintf(out, "\t%s\n", line)
		}
		row = r.Row
	}
	fmt.Fprint(out, "\t.cfi_endproc\n")
	return out.Flush()
}

// directives returns the directives from one row to another. The assembler may put rules that a function begins with
// into the CIE, from where .cfi_restore would restore them. So a register that is unchanged again needs .cfi_same_value
// if the function began with another rule. is.Outermost ends the stack: the other rules do not matter then.
func directives(was, is, first *Row) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if is.Outermost {
		return []string{".cfi_undefined %rip"}
	}
	c, old := is.CFA, was.CFA
	switch {
	case c == old:
	case !c.plain():
		add(".cfi_escape %s", escape(byte(dwarfcfa.CFADefCFAExpression), nil, c.expression()))
	case old.plain() && c.Reg == old.Reg:
		add(".cfi_def_cfa_offset %d", c.Offset)
	case old.plain() && c.Offset == old.Offset:
		add(".cfi_def_cfa_register %%%s", abi.RegName(int(c.Reg)))
	default:
		add(".cfi_def_cfa %%%s, %d", abi.RegName(int(c.Reg)), c.Offset)
	}
	for k, rule := range is.Regs {
		if rule == was.Regs[k] {
			continue
		}
		name := abi.RegName(int(Saved[k]))
		switch {
		case rule.Where == Same && first.Regs[k].Where != Same:
			add(".cfi_same_value %%%s", name)
		case rule.Where == Same:
			add(".cfi_restore %%%s", name)
		case rule.Where == Unknown:
			add(".cfi_undefined %%%s", name)
		case rule.Where == InReg:
			add(".cfi_register %%%s, %%%s", name, abi.RegName(int(rule.Reg)))
		case rule.Where == AtCFA && rule.Offset%dataAlign == 0:
			add(".cfi_offset %%%s, %d", name, rule.Offset)
		default:
			b := appendRule(nil, Saved[k], rule)
			add(".cfi_escape %s", escape(b[0], b[1:], nil))
		}
	}
	return lines
}

// escape returns the operands of .cfi_escape: an operation, its operands and a block. gas has no directives for
// expressions.
func escape(op byte, operands, block []byte) string {
	b := append([]byte{op}, operands...)
	if block != nil {
		b = appendBlock(b, block)
	}
	text := make([]string, len(b))
	for i, x := range b {
		text[i] = fmt.Sprintf("%#02x", x)
	}
	return strings.Join(text, ",")
}
