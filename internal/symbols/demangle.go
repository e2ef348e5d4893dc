package symbols

import (
	"strconv"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Demangle turns the mangled name of a C++, Rust, D or OCaml function into the one in
// the source, without parameters, as perf prints it; other names are returned
// unchanged.
func Demangle(name string) string {
	if plain, ok := demangleOCaml(name); ok {
		return plain
	}
	if !strings.HasPrefix(name, "_") {
		return name
	}
	return plainShift(demangle.Filter(name, demangle.NoParams))
}

// DemangleParameters returns the parameters in the mangled name of a C++ function, in
// parentheses, with what follows them: (int) const. It returns "" for other names.
func DemangleParameters(name string) string {
	if !strings.HasPrefix(name, "_Z") {
		return ""
	}
	full, plain := demangle.Filter(name, demangle.NoClones), demangle.Filter(name, demangle.NoParams)
	at := strings.Index(full, plain+"(")
	if at < 0 {
		return ""
	}
	list := full[at+len(plain):]
	end := closedAfter(list, 0)
	if end < 0 {
		return ""
	}
	switch list[end+1:] {
	case "", " const", " volatile", " const volatile", " &", " &&", " const &", " const &&":
		return plainShift(list)
	}
	return "" // of a function that returns a pointer to another
}

// demangleOCaml demangles ocamlopt's symbols: Emitaux.emit_symbol and
// Compilenv.symbol_separator of OCaml 4.14 write caml, the module, __ where the source
// has a dot, and $ with two hexadecimal digits for what assemblers do not take.
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

// plainShift removes the parentheses that package demangle, unlike libiberty and so
// perf, puts around a shift to the right in template arguments: <((3)>>(1))>.
func plainShift(name string) string {
	const shift = ")>>("
	for from := 0; ; {
		at := strings.Index(name[from:], shift)
		if at < 0 {
			return name
		}
		at += from
		left, right := openedBefore(name, at), closedAfter(name, at+len(shift)-1)
		if left > 0 && right > 0 && right+1 < len(name) && name[left-1] == '(' && name[right+1] == ')' {
			name = name[:left-1] + name[left:right+1] + name[right+2:]
			at--
		}
		from = at + len(shift)
	}
}

// openedBefore returns the index of the parenthesis that the one at an index closes, or
// -1.
func openedBefore(s string, at int) int {
	for depth := 0; at >= 0; at-- {
		switch s[at] {
		case ')':
			depth++
		case '(':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return -1
}

// closedAfter returns the index of the parenthesis that closes the one at an index, or
// -1.
func closedAfter(s string, at int) int {
	for depth := 0; at < len(s); at++ {
		switch s[at] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return -1
}
