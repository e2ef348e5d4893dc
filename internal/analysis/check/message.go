package check

import (
	"fmt"
	"strings"
)

// This file words findings for people; --json and SARIF have the same texts beside their fields.

// Position names an instruction: function plus offset, address, and the line of the source.
func (f *Finding) Position() string {
	text := fmt.Sprintf("%#x", f.PC)
	if f.Line > 0 {
		text += fmt.Sprintf(", %s:%d", f.Source, f.Line)
	}
	if f.Function == "" {
		return text
	}
	return fmt.Sprintf("%s+%#x (%s)", f.Function, f.PC-f.Symbol, text)
}

// Message says what is wrong, in one line.
func (f *Finding) Message() string {
	var b strings.Builder
	// What is so, and what the table says.
	switch f.Kind {
	case KindCFA:
		fmt.Fprintf(&b, "CFA is %s, the table says %s", f.Actual, f.Claimed)
	case KindReturn:
		fmt.Fprintf(&b, "the return address is %s, the table says %s", f.Actual, f.Claimed)
	case KindSaved, KindClobbered:
		are := "is"
		if strings.Contains(f.Register, ", ") {
			are = "are"
		}
		fmt.Fprintf(&b, "%s %s %s, the table says %s", f.Register, are, f.Actual, f.Claimed)
	case KindRet:
		fmt.Fprintf(&b, "ret where %s", f.Actual)
	case KindBorder:
		fmt.Fprintf(&b, "a row begins %s", f.Actual)
	case KindHidden:
		fmt.Fprintf(&b, "libgcc and perf find %s, so that a throw terminates; gdb finds one", f.Actual)
	case KindOverlap:
		fmt.Fprintf(&b, "the code is %s and %s: libgcc and perf take the other's rows, gdb any", f.Claimed, f.Actual)
	case KindHeader:
		fmt.Fprintf(&b, ".eh_frame_hdr says %s, but %s: libgcc and perf trust it, gdb does not read it", f.Claimed, f.Actual)
	case KindTerminator:
		b.WriteString("FDEs follow a terminator of .eh_frame: who walks it, as for __register_frame, does not find them")
	case KindLoader:
		fmt.Fprintf(&b, "%s: gdb and perf read .eh_frame from the file", f.Actual)
	case KindLSDA:
		fmt.Fprintf(&b, "%s: a throw through the function terminates or crashes", f.Actual)
	case KindNoRow:
		b.WriteString("called or jumped to, and no row covers it")
	}
	if f.Count > 1 {
		fmt.Fprintf(&b, ", at %d instructions to %#x", f.Count, f.End)
	}
	// Why it may be so by intent, or how far it is off.
	switch f.Class {
	case ClassPrivate:
		b.WriteString(" (private calling convention)")
	case ClassGo:
		b.WriteString(" (a Go function, which keeps no registers)")
	case ClassContext:
		b.WriteString(" (change of context)")
	case ClassReturn:
		b.WriteString(" (the function returns elsewhere than behind its call)")
	case ClassCopy:
		b.WriteString(" (another frame, with copies of the return address and the registers)")
	case ClassUnreachable:
		b.WriteString(" (nothing leads here)")
	case ClassVariable:
		b.WriteString(" (if it is a variable of the program: no function saves it)")
	case ClassOffByOne:
		b.WriteString(" (off by one instruction)")
	}
	// What to do about it, only where the table is wrong.
	if f.Directive != "" && (f.Class == ClassTable || f.Class == ClassOffByOne) {
		b.WriteString("; it needs " + f.Directive + " before it")
	}
	if f.Never {
		b.WriteString("; this row is never true")
	}
	return b.String()
}
