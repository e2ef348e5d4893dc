package symbols

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ianlancetaylor/demangle"
)

// This file demangles names, within bounds of time and memory: names come from files of all kinds, and a frame is
// named while a recording goes on. Package demangle knows C++ and Rust; other languages are here and in dialect.go and
// dlang.go.

// Limits of names, in bytes. A few bytes of C++ substitutions or Rust back references double a demangled name, and
// package demangle takes time with the square of a name's nesting.
const (
	longestPower   = 16                // as package demangle wants the limit: a power of two
	longestName    = 1 << longestPower // longer names are cut
	longestMangled = 8 << 10           // longer names are not demangled
	mostExpansion  = 1536              // bytes of a name with one pack expansion, half as many with two: see affordable
)

// cutMark ends a name that is cut.
const cutMark = "..."

// Cut returns a name of at most 64 KiB: the beginning of a longer one, with ... at its end.
func Cut(name string) string {
	if len(name) < longestName {
		return name
	}
	end := longestName - len(cutMark)
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + cutMark
}

// Demangle turns the mangled name of a C++, Rust, OCaml, Fortran or D function into the one in the source, without
// parameters; other names are returned unchanged. The name of a linkage table's entry keeps its @plt. Mangled
// names above 8 KiB, and names with many expansions of packs, are not demangled. The result is as short as Cut makes
// it.
func Demangle(name string) string {
	mangled, entry := strings.CutSuffix(name, pltMark)
	plain, ok := "", false
	for _, f := range []func(string) (string, bool){demangleOCaml, demangleFortran, demangleD} {
		if plain, ok = f(mangled); ok {
			break
		}
	}
	if !ok {
		if !strings.HasPrefix(mangled, "_") || !affordable(mangled) {
			return Cut(name)
		}
		plain = filter(keepUnderscores(mangled), demangle.NoParams)
	}
	if entry {
		plain += pltMark
	}
	return Cut(plain)
}

// keepUnderscores doubles the underscore at the beginning of an identifier in a name of Rust's older mangling: package
// demangle takes one for a separator, and __rust_begin_short_backtrace, which is in all stacks of Rust programs, would
// lose it.
func keepUnderscores(mangled string) string {
	const start, hash = "_ZN", "17h" // of a nested name; of the last part, h and 16 digits
	const hashed = len(hash) + 16    // and its digits
	body, end := mangled, ""
	if i := strings.LastIndex(mangled, "E."); i > 0 {
		body, end = mangled[:i+1], mangled[i+1:]
	}
	body, isNested := strings.CutPrefix(body, start)
	if len(body) <= hashed || !isNested || !strings.HasSuffix(body, "E") ||
		!strings.HasPrefix(body[len(body)-1-hashed:], hash) {
		return mangled
	}
	var out strings.Builder
	out.WriteString(start)
	for body != "E" {
		digits := len(body) - len(strings.TrimLeft(body, "0123456789"))
		n, err := strconv.Atoi(body[:digits])
		if err != nil || n > len(body)-digits {
			return mangled
		}
		name := body[digits : digits+n]
		body = body[digits+n:]
		if strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "_$") {
			name = "_" + name
		}
		out.WriteString(strconv.Itoa(len(name)) + name)
		if body == "" {
			return mangled
		}
	}
	return out.String() + body + end
}

// affordable reports whether package demangle takes less than a second for a name, about. It expands template parameter
// packs (Dp, sp) before it looks at the length of the result, in time that grows with the square of their number times
// the name's length. Letters of identifiers count, too: to tell them from packs, the name has to be parsed.
func affordable(mangled string) bool {
	expansions := strings.Count(mangled, "Dp") + strings.Count(mangled, "sp")
	return len(mangled) <= longestMangled && expansions*len(mangled) <= mostExpansion
}

// filter demangles a name. A result of longestName bytes is cut.
func filter(name string, option demangle.Option) string {
	return demangle.Filter(name, option, demangle.MaxLength(longestPower))
}

// DemangleParameters returns the parameters in the mangled name of a C++ function, in
// parentheses, with what follows them: (int) const. It returns "" for other names, for entries of linkage tables, and
// for those that Demangle does not demangle or cuts.
func DemangleParameters(name string) string {
	if !strings.HasPrefix(name, "_Z") || strings.HasSuffix(name, pltMark) || !affordable(name) {
		return ""
	}
	full, plain := filter(name, demangle.NoClones), filter(name, demangle.NoParams)
	i := strings.Index(full, plain+"(")
	if i < 0 || len(full) >= longestName {
		return ""
	}
	list := full[i+len(plain):]
	end := closedAfter(list, 0)
	if end < 0 {
		return ""
	}
	switch list[end+1:] {
	case "", " const", " volatile", " const volatile", " &", " &&", " const &", " const &&":
		return list
	}
	return "" // of a function that returns a pointer to another
}

// demangleOCaml demangles symbols of OCaml 4's ocamlopt: Compilenv.make_symbol writes caml, the module, and __ where
// the source has a dot, Emitaux.emit_symbol $ and two hexadecimal digits for what assemblers do not take.
// A module begins with a capital letter, which tells these names from caml_alloc and the other names of the run-time
// system.
func demangleOCaml(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "caml")
	if !ok || rest == "" || rest[0] < 'A' || rest[0] > 'Z' {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(rest); i++ {
		if strings.HasPrefix(rest[i:], "__") {
			b.WriteByte('.')
			i++
			continue
		}
		if rest[i] == '$' && i+2 < len(rest) {
			if c, err := strconv.ParseUint(rest[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(rest[i])
	}
	return b.String(), true
}

// closedAfter returns the index of the parenthesis that closes the one at an index, or
// -1.
func closedAfter(s string, i int) int {
	for depth := 0; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
