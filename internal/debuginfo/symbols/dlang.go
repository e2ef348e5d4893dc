package symbols

import (
	"regexp"
	"strconv"
	"strings"
)

// Bounds of a D name: a few bytes of back references make it many times longer.
const (
	mostD    = 1 << 17 // bytes of all parts that are put together
	deepestD = 200     // back references within what others refer to
)

// dName is a mangled name of D that is being read: https://dlang.org/spec/abi.html#name_mangling. Methods read one
// part each, from pos on, and return its source text; bad remains set after what they do not understand, and their
// text is then meaningless. The grammar refers back to parts by their distance, so the name is kept whole.
type dName struct {
	s    string
	pos  int  // in s, of what comes next
	work int  // bytes put together so far, of at most mostD
	deep int  // back references that are being followed, at most deepestD
	bad  bool // the name is none of D, or goes beyond a bound
}

// Words of mangled names, and the text for each.
type dWords [][2]string

var (
	dModifiers  = dWords{{"O", "shared"}, {"x", "const"}, {"y", "immutable"}, {"Ng", "inout"}, {"Nh", "__vector"}}
	dStorage    = dWords{{"M", "scope "}, {"Nk", "return "}, {"I", "in "}, {"J", "out "}, {"K", "ref "}, {"L", "lazy "}}
	dAttributes = dWords{{"Na", "pure "}, {"Nb", "nothrow "}, {"Nc", "ref "}, {"Nd", "@property "}, {"Ne", "@trusted "},
		{"Nf", "@safe "}, {"Ni", "@nogc "}, {"Nj", "return "}, {"Nl", "scope "}, {"Nm", "@live "}}
	dBasic = dWords{{"n", "typeof(null)"}, {"v", "void"}, {"g", "byte"}, {"h", "ubyte"}, {"s", "short"}, {"t", "ushort"},
		{"i", "int"}, {"k", "uint"}, {"l", "long"}, {"m", "ulong"}, {"f", "float"}, {"d", "double"}, {"e", "real"},
		{"o", "ifloat"}, {"p", "idouble"}, {"j", "ireal"}, {"q", "cfloat"}, {"r", "cdouble"}, {"c", "creal"}, {"b", "bool"},
		{"a", "char"}, {"u", "wchar"}, {"w", "dchar"}, {"zi", "cent"}, {"zk", "ucent"}, {"Nn", "noreturn"}}
	dSpecial  = map[string]string{"__ctor": "this", "__dtor": "~this", "__postblit": "this(this)"}
	dSuffixes = map[byte]string{'h': "u", 't': "u", 'k': "u", 'l': "L", 'm': "uL"}
)

const dCalls = "FUWR" // how functions' types begin

var dThunk = regexp.MustCompile(`^Thn?[0-9]+_`) // adjusts this, and goes on in the function

// demangleD demangles a function of D as gdb does, but without the parameters of functions.
func demangleD(name string) (string, bool) {
	s, ok := strings.CutPrefix(name, "_D")
	if !ok || len(s) > longestMangled {
		return "", false
	}
	s, clone, isClone := strings.Cut(s, ".")
	if thunk := dThunk.FindString(s); thunk != "" {
		s = s[len(thunk):]
	}
	d := &dName{s: s}
	plain, isFunction := d.mangled()
	if d.bad || !isFunction || d.pos != len(s) || !strings.Contains(plain, ".") {
		return "", false
	}
	if isClone {
		plain += "." + clone
	}
	return plain, true
}

// next returns the next byte, 0 at the end.
func (d *dName) next() byte {
	if d.bad || d.pos == len(d.s) {
		return 0
	}
	return d.s[d.pos]
}

// kind returns the next byte, or the one that a back reference leads to, and reads neither.
func (d *dName) kind() byte {
	start, c := d.pos, d.next()
	if d.is("Q") {
		d.back(func() string { c = d.next(); return "" })
		d.pos = start
	}
	return c
}

// is reads a word if it comes next, and reports that.
func (d *dName) is(word string) bool {
	found := !d.bad && strings.HasPrefix(d.s[d.pos:], word)
	if found {
		d.pos += len(word)
	}
	return found
}

// word reads one of some words, and returns its text; "": none of them comes next.
func (d *dName) word(words dWords) string {
	for _, w := range words {
		if d.is(w[0]) {
			return w[1]
		}
	}
	return ""
}

// digits reads a decimal number of at least one digit, as text: lengths of arrays are only shown.
func (d *dName) digits() string {
	rest := d.s[d.pos:]
	n := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	d.pos += n
	d.bad = d.bad || n == 0
	return rest[:n]
}

// text reads as many items of size bytes as the number before them says, and returns them: size is 1 for identifiers,
// 2 for strings, whose bytes are hexadecimal. between comes after the number.
func (d *dName) text(size int, between string) string {
	n, err := strconv.Atoi(d.digits())
	if err != nil || !d.is(between) || n > len(d.s) || n*size > len(d.s)-d.pos {
		d.bad = true
		return ""
	}
	d.pos += n * size
	return d.s[d.pos-n*size : d.pos]
}

// back reads what a reference refers to, whose first byte, Q, was read. The distance back from Q is in base 26:
// capital letters, and a small one for the last digit (NumberBackRef).
func (d *dName) back(read func() string) string {
	start, n := d.pos-1, 0
	for c := d.next(); c >= 'A' && c <= 'Z' && n < longestMangled; c = d.next() {
		n, d.pos = n*26+int(c-'A'), d.pos+1
	}
	c := d.next()
	n = n*26 + int(c) - 'a'
	d.bad = d.bad || c < 'a' || c > 'z' || n <= 0 || n > start || d.deep == deepestD
	if d.put(); d.bad {
		return ""
	}
	end := d.pos + 1
	d.pos, d.deep = start-n, d.deep+1
	s := read()
	d.pos, d.deep = end, d.deep-1
	return s
}

// put joins parts, and counts them as work. Without parts it counts a step, so that a name whose parts are all empty
// ends, too.
func (d *dName) put(parts ...string) string {
	s := strings.Join(parts, "")
	d.work += len(s) + 1
	d.bad = d.bad || d.work > mostD
	return s
}

// list reads items until one of them is the last.
func (d *dName) list(isLast func() bool, item func() string) string {
	s := ""
	for !isLast() && !d.bad {
		if s != "" {
			s += ", "
		}
		s = d.put(s, item())
	}
	return s
}

// counted reads as many items as the number before them says.
func (d *dName) counted(item func() string) string {
	n, err := strconv.Atoi(d.digits())
	d.bad = d.bad || err != nil
	return d.list(func() bool { n--; return n < 0 }, item)
}

// mangled reads what follows _D: a name and its type.
func (d *dName) mangled() (name string, isFunction bool) {
	name, isFunction = d.path()
	if d.is("M") { // a method whose type is a reference
		d.modifiers()
	}
	isFunction = isFunction || strings.IndexByte(dCalls, d.kind()) >= 0
	d.typ()
	return name, isFunction
}

// path reads a name with what it is in, and reports whether the parameters of a function followed it.
func (d *dName) path() (name string, isFunction bool) {
	for more := true; more && !d.bad; more = d.isSymbol() {
		for d.is("0") { // without a name
		}
		if part := d.symbol(); name == "" || part == "" {
			name = d.put(name, part)
		} else {
			name = d.put(name, ".", part)
		}
		start := d.pos
		if d.is("M") {
			d.modifiers()
		}
		if isFunction = d.isCall(); isFunction {
			d.function()
		} else {
			d.pos = start
		}
	}
	return name, isFunction
}

// isCall reports whether a function's type comes next: F for D, U for C, W for Windows, R for C++ linkage.
func (d *dName) isCall() bool {
	c := d.next()
	return c != 0 && strings.IndexByte(dCalls, c) >= 0
}

// isSymbol reports whether another part of a qualified name comes next.
func (d *dName) isSymbol() bool {
	c, rest := d.kind(), d.s[d.pos:]
	return c >= '0' && c <= '9' || strings.HasPrefix(rest, "__T") || strings.HasPrefix(rest, "__U")
}

// symbol reads a name, of a template with its arguments.
func (d *dName) symbol() string {
	switch {
	case d.is("Q"):
		return d.back(d.symbol)
	case d.is("__T"), d.is("__U"):
		return d.put(d.symbol(), "!(", d.list(func() bool { return d.is("Z") }, d.argument), ")")
	}
	name := d.text(1, "")
	if d.put(); strings.HasPrefix(name, "__T") || strings.HasPrefix(name, "__U") { // of older compilers
		end := d.pos
		d.pos -= len(name)
		name = d.symbol()
		d.bad = d.bad || d.pos != end
		return name
	}
	if special := dSpecial[name]; special != "" {
		return special
	}
	if strings.HasPrefix(name, "__S") && number(name[len("__S"):]) {
		return "" // tells functions of one name apart
	}
	d.bad = d.bad || name == ""
	return name
}

// argument reads an argument of a template: a type, a value, a symbol, or a name mangled for another language (X). H
// marks a specialised one.
func (d *dName) argument() (s string) {
	d.is("H")
	switch {
	case d.is("T"):
		return d.typ()
	case d.is("V"):
		kind := d.kind()
		return d.value(kind, d.typ())
	case d.is("S_D"):
		s, _ = d.mangled()
	case d.is("S"):
		s, _ = d.path()
	case d.is("X"):
		return d.text(1, "")
	default:
		d.bad = true
	}
	return s
}

// value reads a value of a type.
func (d *dName) value(kind byte, name string) string {
	switch c := d.next(); {
	case d.is("n"):
		return "null"
	case d.is("a"), d.is("w"), d.is("d"):
		var text []byte
		for hex := d.text(2, "_"); hex != ""; hex = hex[2:] {
			b, err := strconv.ParseUint(hex[:2], 16, 8)
			text, d.bad = append(text, byte(b)), d.bad || err != nil
		}
		return d.put(strconv.Quote(string(text)), strings.Trim(string(c), "a"))
	case d.is("A"), d.is("S"):
		brackets := [2]string{"[", "]"}
		if c == 'S' {
			brackets = [2]string{name + "(", ")"}
		}
		return d.put(brackets[0], d.counted(func() string {
			if kind != 'H' {
				return d.value(0, "")
			}
			return d.put(d.value(0, ""), ":", d.value(0, ""))
		}), brackets[1])
	case d.is("f_D"):
		function, _ := d.mangled()
		return function
	}
	sign := d.word(dWords{{"N", "-"}, {"i", ""}})
	n := d.digits()
	code, err := strconv.ParseUint(n, 10, 21)
	switch {
	case err == nil && kind == 'b':
		return strconv.FormatBool(code != 0)
	case err == nil && (kind == 'a' || kind == 'u' || kind == 'w'):
		return strconv.QuoteRune(rune(code))
	}
	return d.put(sign, n, dSuffixes[kind])
}

// typ reads a type.
func (d *dName) typ() string {
	if d.put(); d.bad {
		return ""
	}
	if modifier := d.word(dModifiers); modifier != "" {
		return d.put(modifier, "(", d.typ(), ")")
	}
	switch {
	case d.is("A"):
		return d.put(d.typ(), "[]")
	case d.is("G"):
		n := d.digits()
		return d.put(d.typ(), "[", n, "]")
	case d.is("H"):
		key := d.typ()
		return d.put(d.typ(), "[", key, "]")
	case d.is("P"):
		if d.isCall() {
			return d.put(d.typ(), "function")
		}
		return d.put(d.typ(), "*")
	case d.is("D"):
		after := d.modifiers()
		return d.put(d.typ(), "delegate", after)
	case d.isCall():
		attributes, parameters := d.function()
		return d.put(d.typ(), "(", parameters, ") ", attributes)
	case d.is("C"), d.is("S"), d.is("E"), d.is("T"), d.is("I"):
		name, _ := d.path()
		return name
	case d.is("B"):
		return d.put("Tuple!(", d.counted(d.typ), ")")
	case d.is("Q"):
		return d.back(d.typ)
	}
	s := d.word(dBasic)
	d.bad = d.bad || s == ""
	return s
}

// modifiers reads const and its kin behind a method.
func (d *dName) modifiers() (s string) {
	for m := d.word(dModifiers); m != ""; m = d.word(dModifiers) {
		s += " " + m
	}
	return s
}

// function reads a function's type up to the type that it returns.
func (d *dName) function() (attributes, parameters string) {
	d.pos++
	for a := d.word(dAttributes); a != ""; a = d.word(dAttributes) {
		attributes += a
	}
	variadic := ""
	parameters = d.list(func() bool {
		variadic = d.word(dWords{{"X", "..."}, {"Y", ", ..."}})
		return variadic != "" || d.is("Z")
	}, func() string {
		storage := ""
		for s := d.word(dStorage); s != ""; s = d.word(dStorage) {
			storage += s
		}
		return d.put(storage, d.typ())
	})
	return attributes, parameters + variadic
}
