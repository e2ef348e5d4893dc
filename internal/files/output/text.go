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
	if name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// Text escapes unprintable characters in a message.
func Text(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
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
