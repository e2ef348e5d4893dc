package stackfmt

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape returns a name of a thread, function or file as text that stays on its line and
// cannot control a terminal: unprintable characters are written as in Go and C, as \n,
// \x1b or \u202e. Any process can choose such names; perf writes those of threads and
// files unescaped.
func Escape(s string) string {
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
