//go:build linux && amd64

package recorder

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// HeaderVariable holds headers for --push, a line each. Unlike the command line, other users cannot read it.
const HeaderVariable = "EHASM_PUSH_HEADER"

// readHeaders returns the headers of --push: those of the variable, which the command does not inherit, and of the
// flags. A flag that begins with @ names a file, with a header on each line. Errors do not show values, which may be
// secret.
func readHeaders(flags []string) (http.Header, error) {
	header := http.Header{}
	if err := addHeaders(header, HeaderVariable, os.Getenv(HeaderVariable)); err != nil {
		return nil, err
	}
	os.Unsetenv(HeaderVariable)
	for _, flag := range flags {
		path, isFile := strings.CutPrefix(flag, "@")
		if !isFile {
			if err := addHeaders(header, "--push-header", flag); err != nil {
				return nil, err
			}
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("--push-header: %w", err)
		}
		if err := addHeaders(header, path, string(b)); err != nil {
			return nil, err
		}
	}
	return header, nil
}

// errHeader does not quote the line: without a colon, all of it may be a secret.
var errHeader = errors.New("want NAME: VALUE")

// addHeaders adds the headers of lines; from names their source in errors. Blank lines are skipped, so a file may end
// with one. A value may contain colons, as URLs do; a name may not.
func addHeaders(to http.Header, from, lines string) error {
	n := 0
	for line := range strings.Lines(lines) {
		n++
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("%s: header %d: %w", from, n, errHeader)
		}
		to.Add(name, strings.TrimSpace(value))
	}
	return nil
}
