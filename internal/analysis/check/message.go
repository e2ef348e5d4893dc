package check

import (
	"fmt"
	"strings"
)

// Place names an instruction: function plus offset and address.
func (f *Finding) Place() string {
	if f.Function == "" {
		return fmt.Sprintf("%#x", f.PC)
	}
	return fmt.Sprintf("%s+%#x (%#x)", f.Function, f.PC-f.Start, f.PC)
}

// Message says what is wrong, in one line.
func (f *Finding) Message() string {
	var b strings.Builder
	switch f.Kind {
	case KindCFA:
		fmt.Fprintf(&b, "CFA is %s, the table says %s", f.Actual, f.Claimed)
	case KindReturn:
		fmt.Fprintf(&b, "the return address is %s, the table says %s", f.Actual, f.Claimed)
	case KindSaved, KindClobbered:
		fmt.Fprintf(&b, "%s is %s, the table says %s", f.Register, f.Actual, f.Claimed)
	case KindRet:
		fmt.Fprintf(&b, "ret where %s", f.Actual)
	case KindBorder:
		fmt.Fprintf(&b, "a row begins %s", f.Actual)
	case KindNoRow:
		b.WriteString("called or jumped to, and no row covers it")
	}
	if f.Count > 1 {
		fmt.Fprintf(&b, ", at %d instructions to %#x", f.Count, f.End)
	}
	switch f.Class {
	case ClassPrivate:
		b.WriteString(" (private calling convention)")
	case ClassGo:
		b.WriteString(" (a Go function, which keeps no registers)")
	case ClassContext:
		b.WriteString(" (change of context)")
	case ClassOffByOne:
		b.WriteString(" (off by one instruction)")
	}
	if f.Never {
		b.WriteString("; this row is never true")
	}
	return b.String()
}
