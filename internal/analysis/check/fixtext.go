package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file reads the .cfi directives of GNU as from lines of text, executes them, and writes unified diffs. It knows
// no expressions and no macros: cfi_escape and all that it does not know make fix.go refuse the function.

// cfiDirective is a directive of the GNU assembler that changes a row (its manual, "CFI directives").
type cfiDirective struct {
	name  string // without .cfi_
	args  []string
	about string // aboutCFA, or the register whose rule it sets; "" for those that keep or restore rows
	line  int
}

const aboutCFA = "CFA"

// cfiState is what directives make: the current row, and those that .cfi_remember_state kept.
type cfiState struct {
	row  dwarfcfa.Row
	kept []dwarfcfa.Row
}

// newCFIState returns the state behind .cfi_startproc: the x86-64 rules that gas puts into each CIE, CFA = rsp+8 and
// the return address at CFA-8.
func newCFIState() (s cfiState) {
	s.row.CFA = dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: 7, Offset: 8}
	s.row.Regs[16] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -8}
	return s
}

func (s *cfiState) clone() cfiState { return cfiState{s.row, slices.Clone(s.kept)} }

// sameRow reports whether two rows say the same; no rule and the same value are one. An unwinder treats both alike for
// callee-saved registers, of which alone directives speak.
func sameRow(a, b *dwarfcfa.Row) bool {
	norm := func(r dwarfcfa.Row) dwarfcfa.Row {
		for d := range r.Regs {
			if r.Regs[d].Kind == dwarfcfa.RuleUnspecified {
				r.Regs[d].Kind = dwarfcfa.RuleSameValue
			}
		}
		return r
	}
	return norm(*a) == norm(*b)
}

// lineKind is what a line of assembly holds, as far as directives go.
type lineKind uint8

const (
	lineOther lineKind = iota // labels, directives, comments
	lineStart                 // .cfi_startproc
	lineCode                  // instructions, macros
)

// statements returns the statements of a line without labels and comments. Marks inside strings count, too: that cuts
// off the end of .ascii and its like, and no directive.
func statements(line string) (out []string) {
	for _, mark := range []string{"#", "//", "/*"} {
		if k := strings.Index(line, mark); k >= 0 {
			line = line[:k]
		}
	}
	for _, part := range strings.Split(line, ";") {
		part = strings.TrimSpace(part)
		for {
			label, rest, ok := strings.Cut(part, ":")
			if !ok || strings.ContainsAny(label, " \t\"(%") {
				break
			}
			part = strings.TrimSpace(rest)
		}
		if part != "" {
			out = append(out, part)
		}
	}
	return out
}

// onlyDirective reports whether a line can be removed with its directive: no label, and no part of a comment of several
// lines, goes with it.
func onlyDirective(line string) bool {
	return strings.HasPrefix(strings.TrimSpace(line), ".cfi_") && !strings.Contains(line, "/*") &&
		!strings.Contains(line, "*/")
}

// inComment reports whether a comment goes on behind lines.
func inComment(lines []string) bool {
	within := false
	for _, line := range lines {
		for found := true; found; {
			mark := "/*"
			if within {
				mark = "*/"
			}
			if _, line, found = strings.Cut(line, mark); found {
				within = !within
			}
		}
	}
	return within
}

// bytesIn returns how many bytes a line has as data; 0 if it has other statements.
func bytesIn(line string) int {
	all := statements(line)
	if len(all) != 1 || !strings.HasPrefix(all[0], ".byte") {
		return 0
	}
	return 1 + strings.Count(all[0], ",")
}

// prefixes are words before a mnemonic.
const prefixes = " rep repe repz repne repnz lock notrack bnd data16 addr32 rex64 rex.w cs ds es ss fs gs xacquire xrelease "

// aliases has mnemonics of AT&T's syntax, and second names, by which sources call an instruction.
var aliases = map[string]string{"sal": "shl", "movabs": "mov", "movabsq": "mov", "movslq": "movsxd", "cltq": "cdqe",
	"cwtl": "cwde", "cbtw": "cbw",
	"cltd": "cdq", "cqto": "cqo", "cwtd": "cwd", "xchg": "nop", "retn": "ret", "iretq": "iret", "leaveq": "leave",
	"pushfq": "pushf", "popfq": "popf"}

// conditions has the second names of conditions.
var conditions = map[string]string{"z": "e", "nz": "ne", "c": "b", "nae": "b", "nc": "ae", "nb": "ae", "na": "be",
	"nbe": "a",
	"nge": "l", "nl": "ge", "ng": "le", "nle": "g", "pe": "p", "po": "np"}

// hasInstruction reports whether a line has an instruction of this mnemonic, in Intel's spelling as x86 gives it.
func hasInstruction(line, mnemonic string) bool {
	for _, s := range statements(line) {
		words := strings.Fields(strings.ToLower(s))
		for len(words) > 1 && strings.Contains(prefixes, " "+words[0]+" ") {
			words = words[1:]
		}
		if sameMnemonic(words[0], mnemonic) {
			return true
		}
	}
	return false
}

// sameMnemonic reports whether a word of a source names an instruction of this mnemonic.
func sameMnemonic(word, mnemonic string) bool {
	for _, family := range []string{"cmov", "set", "j"} {
		name, ok := strings.CutPrefix(word, family)
		if want, is := strings.CutPrefix(mnemonic, family); ok && is {
			plain := strings.TrimRight(name, "wlq") // of cmovneq, not of setl
			return cmp.Or(conditions[name], name) == want || family == "cmov" && cmp.Or(conditions[plain], plain) == want
		}
	}
	switch {
	case word == mnemonic || aliases[word] == mnemonic:
		return true
	case mnemonic == x86.OpUnknown.String(): // vector instructions that the analysis does not tell apart
		return strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
	case mnemonic == "x87":
		return word[0] == 'f'
	case len(mnemonic) > 5 && strings.HasPrefix(word, mnemonic[:5]): // vpcmpequb, vpcmpub with its predicate in the name
		return true
	case mnemonic == "movsx" || mnemonic == "movzx": // movsbl, movzwq
		return strings.HasPrefix(word, mnemonic[:4])
	}
	size, ok := strings.CutPrefix(word, mnemonic) // as in pushq
	return ok && len(size) == 1 && strings.Contains("bwlqst", size)
}

// kindOfLine says what a line holds.
func kindOfLine(line string) lineKind {
	kind := lineOther
	for _, s := range statements(line) {
		switch {
		case strings.HasPrefix(s, ".cfi_startproc"):
			return lineStart
		case !strings.HasPrefix(s, "."):
			kind = lineCode
		}
	}
	return kind
}

// parseCFI returns the directive of a line that changes the row, if there is one. It is an error if that is not
// understood, or shares its line with another statement.
func parseCFI(line string) (out []cfiDirective, err error) {
	all := statements(line)
	for _, s := range all {
		name, rest, _ := strings.Cut(s, " ")
		if k := strings.IndexByte(name, '\t'); k >= 0 {
			name, rest = s[:k], s[k+1:]
		}
		if !strings.HasPrefix(name, ".cfi_") {
			continue
		}
		d := cfiDirective{name: name[len(".cfi_"):]}
		for _, a := range strings.Split(rest, ",") {
			d.args = append(d.args, strings.TrimSpace(a))
		}
		n := 1
		switch d.name {
		case "startproc", "endproc", "sections", "personality", "lsda", "inline_lsda", "signal_frame":
			continue
		case "def_cfa":
			n, d.about = 2, aboutCFA
		case "def_cfa_offset", "adjust_cfa_offset", "def_cfa_register":
			d.about = aboutCFA
		case "offset", "rel_offset", "register":
			n = 2
			fallthrough
		case "restore", "same_value", "undefined":
			reg, err := cfiRegister(d.args[0])
			if err != nil {
				return nil, err
			}
			if d.about = "return address"; reg < 16 {
				d.about = regName(hardware[reg])
			}
		case "remember_state", "restore_state":
		default:
			return nil, fmt.Errorf("%s is not understood", name)
		}
		if len(d.args) != n {
			return nil, fmt.Errorf("%s has %d operands", name, len(d.args))
		}
		out = append(out, d)
	}
	// A patch drops and inserts whole lines.
	if len(out) > 0 && len(all) > 1 {
		return nil, errors.New("it has a directive and another statement")
	}
	return out, nil
}

// cfiRegister returns the DWARF number of a register's name or number. gas takes both; the error names what is neither.
func cfiRegister(s string) (uint16, error) {
	name := strings.TrimPrefix(strings.ToLower(s), "%")
	if name == "rip" {
		return 16, nil
	}
	for d := range uint16(16) {
		if regName(hardware[d]) == name {
			return d, nil
		}
	}
	n, err := strconv.ParseUint(name, 0, 16)
	if err != nil || n > 16 {
		return 0, fmt.Errorf("%q is no register", s)
	}
	return uint16(n), nil
}

// apply executes a directive. The rules are those of gas's manual; restore takes the CIE's rule, as
// .cfi_startproc set it.
func (s *cfiState) apply(d cfiDirective) error {
	number := func(k int) (int64, error) {
		n, err := strconv.ParseInt(d.args[k], 0, 32)
		if err != nil {
			err = fmt.Errorf("%q is no number", d.args[k])
		}
		return n, err
	}
	var reg uint16
	var n int64
	var err error
	if len(d.args) == 2 || d.about != "" && d.about != aboutCFA || d.name == "def_cfa_register" {
		if reg, err = cfiRegister(d.args[0]); err != nil {
			return err
		}
	}
	switch d.name {
	case "def_cfa", "offset", "rel_offset":
		n, err = number(1)
	case "def_cfa_offset", "adjust_cfa_offset":
		n, err = number(0)
	}
	if err != nil {
		return err
	}
	set := func(r dwarfcfa.RegRule) { s.row.Regs[reg] = r }
	switch d.name {
	case "def_cfa":
		s.row.CFA.Reg, s.row.CFA.Offset = reg, n
	case "def_cfa_register":
		s.row.CFA.Reg = reg
	case "def_cfa_offset":
		s.row.CFA.Offset = n
	case "adjust_cfa_offset":
		s.row.CFA.Offset += n
	case "offset":
		set(dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: n})
	// gas's operand counts from the register that the CFA is on, a row's from the CFA.
	case "rel_offset":
		set(dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: n - s.row.CFA.Offset})
	case "restore":
		start := newCFIState()
		set(start.row.Regs[reg])
	case "same_value":
		set(dwarfcfa.RegRule{Kind: dwarfcfa.RuleSameValue})
	case "undefined":
		set(dwarfcfa.RegRule{Kind: dwarfcfa.RuleUndefined})
	case "register":
		to, err := cfiRegister(d.args[1])
		if err != nil {
			return err
		}
		set(dwarfcfa.RegRule{Kind: dwarfcfa.RuleRegister, Reg: to})
	case "remember_state":
		s.kept = append(s.kept, s.row)
	case "restore_state":
		if len(s.kept) == 0 {
			return errors.New("no state was kept")
		}
		s.row, s.kept = s.kept[len(s.kept)-1], s.kept[:len(s.kept)-1]
	}
	return nil
}

// indent returns the white space at a line's beginning, or a tab if a label begins there.
func indent(line string) string {
	if n := len(line) - len(strings.TrimLeft(line, " \t")); n > 0 {
		return line[:n]
	}
	return "\t"
}

// contextLines is how many unchanged lines a unified diff has around a change: diff -u's 3, which patch expects to find
// the place by.
const contextLines = 3

// Unified returns the patches of one source, whose lines are text, as a unified diff for patch -p0; "" if nothing
// changes. Line numbers of patches begin at 1. Changes whose contexts would touch share a hunk.
func Unified(name string, text []string, patches []Patch) string {
	changed := make([]bool, len(text)+2)
	before, drop := map[int][]string{}, map[int]bool{}
	for i := range patches {
		for n, lines := range patches[i].Before {
			before[n] = append(before[n], lines...)
			changed[n] = true
		}
		for n := range patches[i].Drop {
			drop[n], changed[n] = true, true
		}
	}
	var b strings.Builder
	shift := 0 // lines added so far
	for n := 1; n <= len(text); n++ {
		if !changed[n] {
			continue
		}
		lo, hi := max(1, n-contextLines), n
		for k := n; k <= min(len(text), hi+2*contextLines); k++ {
			if changed[k] {
				hi = k
			}
		}
		hi = min(len(text), hi+contextLines)
		var h strings.Builder
		olds, news := 0, 0
		for k := lo; k <= hi; k++ {
			for _, line := range before[k] {
				h.WriteString("+" + line + "\n")
				news++
			}
			olds++
			if drop[k] {
				h.WriteString("-" + text[k-1] + "\n")
				continue
			}
			h.WriteString(" " + text[k-1] + "\n")
			news++
		}
		if b.Len() == 0 {
			end := ""
			if strings.Contains(name, " ") {
				end = "\t" // else patch takes the first word
			}
			fmt.Fprintf(&b, "--- %s%s\n+++ %s%s\n", name, end, name, end)
		}
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n%s", lo, olds, lo+shift, news, h.String())
		shift += news - olds
		n = hi
	}
	return b.String()
}
