package check

import (
	"fmt"
	"regexp"
	"strings"
)

// This file names findings so that a baseline made of one build still fits the next. Addresses change with every link,
// so none is in a name.

// identityFields is the number of fields of an identity, with tabs between them.
const identityFields = 7

// Names gives identities to findings. It must not be copied after its first use.
type Names struct{ count map[string]int }

// Of returns a text for each finding of a file, which it calls name: one that stays the same when the file is built
// again with other addresses, and that no other finding has. It holds the file's name, the kind, the place, a hash of
// the code, the register, what the code does, and what the table says. Of findings that are equal in all of these, the
// second's ends in #2.
//
// The place is the offset from the function's symbol; without one it is the offset from the FDE's beginning, and all
// code of the FDE is hashed.
func (n *Names) Of(name string, fs []Finding) []string {
	if n.count == nil {
		n.count = map[string]int{}
	}
	out := make([]string, len(fs))
	for i := range fs {
		f := &fs[i]
		fields := [identityFields]string{name, string(f.Kind), fmt.Sprintf("%s+%#x", f.Function, f.PC-f.base()), f.Code,
			f.Register,
			address.ReplaceAllString(f.Actual, "0x"), address.ReplaceAllString(f.Claimed, "0x")}
		for k := range fields {
			fields[k] = strings.Map(printable, fields[k])
		}
		id := strings.Join(fields[:], "\t")
		if n.count[id]++; n.count[id] > 1 {
			id += fmt.Sprintf(" #%d", n.count[id])
		}
		out[i] = id
	}
	return out
}

// address matches what another build puts elsewhere.
var address = regexp.MustCompile("0x[0-9a-f]+")

// printable replaces control characters: an identity is one line with tabs between its fields, and names in files are
// hostile.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return '?'
	}
	return r
}

// IsIdentity reports whether a line has the form of what Names gives.
func IsIdentity(line string) bool { return strings.Count(line, "\t") == identityFields-1 }
