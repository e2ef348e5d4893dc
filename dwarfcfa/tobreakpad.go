package dwarfcfa

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// Reasons why Breakpad's records cannot hold a row: they know no end of stack, no lost registers,
// and few operations.
var (
	errBreakpadEnd  = errors.New("the end of the stack")
	errBreakpadLost = errors.New("a lost register")
	errBreakpadExpr = errors.New("an expression with other operations than + and -")
)

// ToBreakpad returns the STACK CFI INIT records of Breakpad's symbol files, one for each range of the table
// (breakpad/docs/symbol_files.md): addresses are link-time, and a register without a rule keeps its
// value. The report counts the bytes of code whose rows the records cannot hold.
func (t *Table) ToBreakpad() ([]byte, ConvertReport) {
	rep := ConvertReport{Left: make(map[string]uint64)}
	texts := make([]string, len(t.Rows)) // by row; computed once, used by many ranges
	reasons := make([]error, len(t.Rows))
	// A row's text, or why there is none, is the same in all its ranges.
	for i := range t.Rows {
		texts[i], reasons[i] = t.breakpadRow(&t.Rows[i])
	}
	var b bytes.Buffer
	for _, r := range t.Ranges {
		n := uint64(r.End - r.Start)
		if err := reasons[r.Row]; err != nil {
			rep.Left[err.Error()] += n
			continue
		}
		rep.Bytes += n
		rep.Rows++
		// Address and length are hexadecimal without 0x.
		fmt.Fprintf(&b, "STACK CFI INIT %x %x %s\n", uint64(r.Start), n, texts[r.Row])
	}
	return b.Bytes(), rep
}

// breakpadRow returns the rules of a row in postfix notation.
func (t *Table) breakpadRow(row *Row) (string, error) {
	cfa := breakpadSum(abi.RegName(int(row.CFA.Reg)), row.CFA.Offset)
	if row.CFA.Kind == CFAExpr {
		text, err := t.breakpadExpr(row.CFA.Expr, "")
		if err != nil {
			return "", err
		}
		cfa = text
	}
	parts := []string{".cfa: " + cfa}
	for d := range row.Regs {
		// Column 7 is rsp: readers take it from the CFA themselves.
		if d == 7 && row.Regs[d].Kind == RuleValOffset && row.Regs[d].Offset == 0 {
			continue // rsp is the CFA
		}
		text, err := t.breakpadRule(d, &row.Regs[d])
		if err != nil {
			return "", err
		}
		switch name := "$" + abi.RegName(d); {
		case text == "":
		// Column 16 is the return address, .ra in these records.
		case d == 16:
			parts = append(parts, ".ra: "+text)
		default:
			parts = append(parts, name+": "+text)
		}
	}
	return strings.Join(parts, " "), nil
}

// calleeSaved are the DWARF numbers of the registers that functions keep (x86-64 psABI figure 3.4):
// rbx, rbp, r12 to r15.
const calleeSaved = 1<<3 | 1<<6 | 0xf000

// breakpadRule returns the rule of column d; "": the register keeps its value, or nothing is said.
func (t *Table) breakpadRule(d int, rule *RegRule) (string, error) {
	switch rule.Kind {
	case RuleOffset:
		return breakpadSum(".cfa", rule.Offset) + " ^", nil
	case RuleValOffset:
		return breakpadSum(".cfa", rule.Offset), nil
	case RuleRegister:
		return "$" + abi.RegName(int(rule.Reg)), nil
	// The expression gives the address of the word: ^ reads it.
	case RuleExpression:
		text, err := t.breakpadExpr(rule.Expr, ".cfa")
		return text + " ^", err
	case RuleValExpression:
		return t.breakpadExpr(rule.Expr, ".cfa")
	case RuleUndefined:
		switch {
		// Records cannot say that there is no caller.
		case d == 16:
			return "", errBreakpadEnd
		// A lost register that functions keep would be taken for unchanged.
		case calleeSaved>>d&1 != 0:
			return "", errBreakpadLost
		}
	}
	return "", nil
}

// breakpadSum returns a register plus n.
func breakpadSum(name string, n int64) string {
	// Names of general registers have a $, those of the records a dot.
	if name[0] != '.' {
		name = "$" + name
	}
	if n < 0 {
		// Numbers have no sign.
		return fmt.Sprintf("%s %d -", name, uint64(-n))
	}
	return fmt.Sprintf("%s %d +", name, n)
}

// breakpadExpr returns an expression in postfix notation; pushed, if not "", is on the stack at its beginning.
func (t *Table) breakpadExpr(id ExprID, pushed string) (string, error) {
	words := []string{}
	if pushed != "" {
		words = append(words, pushed)
	}
	for _, op := range t.Exprs[id].Ops {
		switch {
		case op.Code == OpConst:
			words = append(words, fmt.Sprint(op.Arg))
		// Expressions on rip have no counterpart.
		case op.Code == OpReg && op.Reg < 16:
			words = append(words, breakpadSum(abi.RegName(int(op.Reg)), op.Arg))
		case op.Code == OpPlus:
			words = append(words, "+")
		case op.Code == OpMinus:
			words = append(words, "-")
		case op.Code == OpDeref && op.Arg == 8:
			words = append(words, "^")
		default:
			return "", errBreakpadExpr
		}
	}
	return strings.Join(words, " "), nil
}
