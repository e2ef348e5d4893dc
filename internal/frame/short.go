package frame

import (
	"regexp"
	"strings"
)

// Parts of names that Short looks at.
var (
	// of an object's function without a symbol
	nameless = regexp.MustCompile(`^(.+?)(?:-[0-9.]+)?(?:\.so[.0-9]*)?\+(0x[0-9a-f]+)$`)
	goShape  = regexp.MustCompile(`\[go\.shape\..*\]`)
	goPath   = regexp.MustCompile(`^[^ :;<([]*/([^/ :;<([]+\.)`) // up to a function of a Go package
)

// Short returns a function's name with its end, which tells functions apart, and without what many share: arguments of
// templates, the folders of Go's packages, versions of libraries. It is asmgen.(*T).f, std::map<...>::operator[], D's
// Appender!(...).put or +0x24ebd0 libruby.
func Short(name string) string {
	if m := nameless.FindStringSubmatch(name); m != nil {
		return "+" + m[2] + " " + m[1]
	}
	name = goPath.ReplaceAllString(goShape.ReplaceAllString(name, "[...]"), "$1")
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		end := -1
		if name[i] == '<' && !strings.HasSuffix(name[:i], "operator") && !strings.HasSuffix(name[:i], "operator<") {
			end = closing(name, i, '>')
		} else if name[i] == '(' && strings.HasSuffix(name[:i], "!") {
			end = closing(name, i, ')')
		}
		if end < 0 {
			b.WriteByte(name[i])
			continue
		}
		const few = 4 // bytes that are no longer than dots
		switch arguments := name[i+1 : end]; {
		case i == 0: // Rust: <Type as Trait>::method
			self, _, _ := strings.Cut(arguments, " as ")
			b.WriteString(Short(self))
		case len(arguments) <= few:
			b.WriteString(name[i : end+1])
		default:
			b.WriteString(name[i:i+1] + "..." + name[end:end+1])
		}
		i = end
	}
	return b.String()
}

// closing returns the index of the bracket that closes the one at i; -1: there is none.
func closing(name string, i int, closes byte) int {
	opens, depth := name[i], 0
	for ; i < len(name); i++ {
		switch {
		case name[i] == opens:
			depth++
		case name[i] == closes && name[i-1] != '-': // no arrow
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
