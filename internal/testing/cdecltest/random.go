package cdecltest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// This file makes C declarations at random, to compare those that are made of debug information with. gcc decides
// whether two are of one type, so nothing here needs to be right about types but that the source compiles.

// Random is a C source with n functions of random types, f0 and so on, which all are exported. A
// declaration goes through up to depth pointers, arrays and functions.
func Random(rnd *rand.Rand, n, depth int) string {
	g := &generator{rnd}
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <stdarg.h>\n")
	for i := range tags {
		fmt.Fprintf(&b, "struct s%d { int a; long b[%d]; };\nunion u%[1]d { int i; double d; };\nenum e%[1]d { E%[1]d };\nstruct o%[1]d;\n", i, i+1)
		fmt.Fprintf(&b, "typedef struct s%d *t%[1]d;\ntypedef int row%[1]d[%d];\ntypedef long fn%[1]d(union u%[1]d *, int);\n", i, i+2)
	}
	for i := range n {
		params, names := g.params(depth)
		body := ""
		for _, name := range names {
			body += fmt.Sprintf(" sink((void *)&%s);", name)
		}
		head := g.declare(fmt.Sprintf("f%d(%s)", i, params), depth, result)
		fmt.Fprintf(&b, "extern void sink(void *);\n%s {%s __builtin_trap(); }\n", head, body)
	}
	return b.String()
}

// tags is the number of structs, unions and enums to choose from.
const tags = 5

// generator makes parts of declarations. Its numbers are the only source of chance: a seed gives the same source
// again.
type generator struct{ *rand.Rand }

// place is what the next part of a declaration is for.
type place int

const (
	object place = iota // of any type but functions and void
	target              // that is pointed to
	result              // that is returned
)

// declare returns a declaration of inner, which goes from the name outwards, as C reads declarations. depth bounds how
// many more parts it gets.
func (g *generator) declare(inner string, depth int, where place) string {
	kind := g.IntN(6)
	if depth == 0 {
		kind = 0
	}
	pointer := strings.HasPrefix(inner, "*")
	switch {
	case kind == 1 && where == target && pointer: // a function
		params, _ := g.params(depth - 1)
		return g.declare(fmt.Sprintf("(%s)(%s)", inner, params), depth-1, result)
	// an array; see docs/script.md for those of arrays
	case kind == 2 && where != result && !strings.HasSuffix(inner, "]"):
		if pointer {
			inner = "(" + inner + ")"
		}
		return g.declare(fmt.Sprintf("%s[%d]", inner, 1+g.IntN(9)), depth-1, object)
	case kind >= 3:
		return g.declare("*"+[]string{"", "", "const ", "volatile ", "const volatile "}[g.IntN(5)]+inner, depth-1,
			target)
	}
	return g.base(where) + " " + inner
}

// base returns the type at the outer end of a declaration, one that C allows in this place: objects have complete
// types, and functions return no arrays.
func (g *generator) base(where place) string {
	n := g.IntN(tags)
	list := []string{
		"int", "char", "unsigned char", "signed char", "short", "unsigned short", "unsigned", "long", "unsigned long",
		"long long",
		"unsigned long long", "float", "double", "long double", "_Bool", "size_t", fmt.Sprint("struct s", n),
		fmt.Sprint("union u", n),
		fmt.Sprint("enum e", n), fmt.Sprint("t", n),
	}
	switch where {
	case object:
		list = append(list, fmt.Sprint("row", n))
	case target:
		list = append(list, fmt.Sprint("row", n), fmt.Sprint("fn", n), fmt.Sprint("struct o", n), "void", "void")
	case result:
		return append(list, "void", "void")[g.IntN(len(list)+2)]
	}
	s := list[g.IntN(len(list))]
	if !strings.HasPrefix(s, "fn") && !strings.HasPrefix(s, "row") { // gcc leaves out const of an array
		s = []string{"", "", "const ", "volatile "}[g.IntN(4)] + s
	}
	return s
}

// params are some parameters, and their names.
func (g *generator) params(depth int) (text string, names []string) {
	var list []string
	for i := range g.IntN(5) {
		names = append(names, fmt.Sprintf("p%d", i))
		list = append(list, g.declare(names[i], max(depth, 0), object))
	}
	if len(list) == 0 {
		return "void", nil
	}
	if g.IntN(5) == 0 {
		list = append(list, "...")
	}
	return strings.Join(list, ", "), names
}
