package dwarfcfa

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Causes of errors. Errors of this package wrap one of these; use errors.Is to
// distinguish them.
var (
	ErrNotELF       = errors.New("not an ELF file")
	ErrNotX86_64    = errors.New("not an x86-64 ELF file")
	ErrNotLoadable  = errors.New("not an executable or shared object")
	ErrNoUnwindInfo = errors.New("no unwind tables")
	ErrTruncated    = errors.New("truncated")
	ErrBadEncoding  = errors.New("malformed")
	ErrUnsupported  = errors.New("unsupported")
)

// errBound is wrapped if a bound of a whole object is reached (MaxRows, MaxExprs
// and others). The order of FDEs then decides which are left out.
var errBound = fmt.Errorf("bound of an object: %w", ErrUnsupported)

// DecodeError says where in which section decoding failed. Its text is one
// line, such as
//
//	libfoo.so: .eh_frame+0x1c8: FDE 0x4010..0x4080: DW_CFA_restore_state with an empty stack
type DecodeError struct {
	File    string // name of the object; may be empty
	Section string
	Offset  uint64 // of the entry in the section
	HasFDE  bool   // the range of an FDE is known: [Start, End)
	Start   Addr
	End     Addr
	Err     error
}

func (e *DecodeError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(PrintableName(e.File))
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s+%#x: ", e.Section, e.Offset)
	if e.HasFDE {
		fmt.Fprintf(&b, "FDE %#x..%#x: ", uint64(e.Start), uint64(e.End))
	}
	b.WriteString(e.Err.Error())
	return b.String()
}

func (e *DecodeError) Unwrap() error { return e.Err }

// causeError is a message with the sentinel it stands for; the sentinel is not
// part of the text.
type causeError struct {
	msg  string
	kind error
}

func (e *causeError) Error() string { return e.msg }
func (e *causeError) Unwrap() error { return e.kind }

// cause makes an error with its own text that errors.Is finds to be kind.
func cause(kind error, format string, args ...any) error {
	return &causeError{msg: fmt.Sprintf(format, args...), kind: kind}
}

// PrintableName returns a file name unchanged, or quoted if it holds characters that would break a one-line message.
// Names come from other users' processes and files; a line feed in one could forge a line of output, an escape sequence
// write to the terminal.
func PrintableName(name string) string {
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return strconv.Quote(name)
		}
	}
	return name
}
