// Package output writes what the verbs print and the files they make.
//
// Text of names and errors is one line and harmless on a terminal, whatever bytes they hold. A file is complete or
// absent: its bytes go to a temporary file in the same folder, which is renamed when all are on the disk.
package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name returns a file name unchanged, or quoted if it holds characters that
// would break a line or a terminal.
func Name(name string) string {
	if name == "" || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// Text returns a name of a thread, function or file as text that stays on its line and
// cannot control a terminal: unprintable characters are written as in Go and C, as \n,
// \x1b or \u202e. Any process can choose such names; perf writes those of threads and
// files unescaped.
func Text(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			// Bytes that are no UTF-8 are shown as bytes.
			const hex = "0123456789abcdef"
			b.WriteString(`\x`)
			b.WriteByte(hex[s[0]>>4])
			b.WriteByte(hex[s[0]&15])
		case unicode.IsPrint(r):
			b.WriteString(s[:size])
		default:
			// Without the quotes.
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[size:]
	}
	return b.String()
}

// isPlain reports whether s consists only of printable ASCII characters.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// ErrorText returns the text of err without the path, which the line already names.
func ErrorText(path string, err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) && pe.Path == path {
		return Text(fmt.Sprintf("%s: %v", pe.Op, pe.Err))
	}
	text := err.Error()
	for _, name := range []string{path, Name(path), strconv.Quote(path)} {
		if name == "" {
			continue
		}
		if rest, ok := strings.CutPrefix(text, name+": "); ok {
			text = rest
			break
		}
	}
	return Text(text)
}

// BareError removes operation and paths from an error of package os.
func BareError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}
