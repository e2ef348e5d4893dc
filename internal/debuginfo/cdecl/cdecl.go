// Package cdecl writes types and parameters as C declares them, from the graph of types in debug information: DWARF,
// BTF.
//
// The graph says what a type is made of, from the outside in: pointer to array of int. C writes it around the name,
// from the inside out: int (*x)[]. So a declaration grows on both sides of what is declared so far.
package cdecl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind says how a type is built from others.
type Kind uint8

// Kinds.
const (
	Named     Kind = iota // has a name, and ends a declaration
	Pointer               // to Of; Name is the class, for a pointer to its members
	Reference             // Name is & or &&
	Array                 // Count elements of type Of
	Function              // returns Of
	Qualified             // Of, and Name: const, volatile, restrict
)

// Type is a node of the graph. K identifies types.
type Type[K any] struct {
	Kind   Kind
	Name   string
	Of     K
	Count  int64 // of an array; negative: not known
	Params []Param[K]
	// Empty stands for no parameters: void in C.
	Empty string
	// After follows the parameters: const, for member functions.
	After string
	// Varargs says that more arguments may follow.
	Varargs bool
}

// Param is a parameter; its name may be "".
type Param[K any] struct {
	Name string
	Of   K
}

// Graph looks up a type.
type Graph[K any] func(K) (Type[K], error)

// Bounds of a declaration.
const (
	MaxTypes  = 1000 // a declaration of a real function has some dozens
	MaxLength = 4096 // bytes
)

// ErrLarge is the error for a declaration beyond the bounds, such as an endless one in a
// damaged file.
var ErrLarge = fmt.Errorf("a declaration of more than %d types or %d bytes", MaxTypes, MaxLength)

// ErrKind is the error for a type that should be a function and is not.
var ErrKind = errors.New("not the type of a function")

// Declare returns the declaration of name with the type k, or if name is empty the name of the type. The error is g's,
// or ErrLarge.
func Declare[K any](g Graph[K], k K, name string) (string, error) {
	p := printer[K]{graph: g}
	return p.declare(k, name)
}

// Parameters returns the parameters of a function's type, in parentheses, with what follows them. The error is g's,
// ErrKind or ErrLarge.
func Parameters[K any](g Graph[K], k K) (string, error) {
	p := printer[K]{graph: g}
	t, err := g(k)
	if err != nil {
		return "", err
	}
	if t.Kind != Function {
		return "", ErrKind
	}
	return p.parameters(&t)
}

// printer writes one declaration.
type printer[K any] struct {
	graph Graph[K]
	types int // visited so far, against loops
}

// declare goes from the name outwards: inner is what is declared so far.
func (p *printer[K]) declare(k K, inner string) (string, error) {
	pointer := false // the last that was added to inner
	qualifiers := "" // of k
	for {
		if p.types++; p.types > MaxTypes || len(inner)+len(qualifiers) > MaxLength {
			return "", ErrLarge
		}
		t, err := p.graph(k)
		if err != nil {
			return "", err
		}
		k = t.Of
		switch t.Kind {
		case Named:
			s := join(qualifiers, join(t.Name, inner))
			if len(s) > MaxLength {
				return "", ErrLarge
			}
			return s, nil
		case Qualified:
			if t.Name == "const" { // as it is usually written
				qualifiers = join(t.Name, qualifiers)
			} else {
				qualifiers = join(qualifiers, t.Name)
			}
		case Pointer:
			sign := "*"
			if t.Name != "" {
				sign = t.Name + "::*"
			}
			inner, qualifiers, pointer = sign+join(qualifiers, inner), "", true
		case Reference:
			inner, qualifiers, pointer = t.Name+inner, "", true
		case Array:
			count := ""
			if t.Count >= 0 {
				count = strconv.FormatInt(t.Count, 10)
			}
			inner, pointer = grouped(inner, pointer)+"["+count+"]", false // qualifiers are the element's: C11 6.7.3p9
		case Function:
			list, err := p.parameters(&t)
			if err != nil {
				return "", err
			}
			inner, qualifiers, pointer = grouped(inner, pointer)+list, "", false
		}
	}
}

// grouped puts a pointer into parentheses: [] and () bind more closely than *, and are of what it points to.
func grouped(inner string, pointer bool) string {
	if pointer {
		return "(" + inner + ")"
	}
	return inner
}

// join puts a space between two words, unless one is empty.
func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}

// parameters returns the parameters of t in parentheses.
func (p *printer[K]) parameters(t *Type[K]) (string, error) {
	if len(t.Params) == 0 && !t.Varargs {
		return join("("+t.Empty+")", t.After), nil
	}
	var b strings.Builder
	b.WriteByte('(')
	for i, param := range t.Params {
		if i > 0 {
			b.WriteString(", ")
		}
		s, err := p.declare(param.Of, param.Name)
		if err != nil {
			return "", err
		}
		if b.Len()+len(s) > MaxLength {
			return "", ErrLarge
		}
		b.WriteString(s)
	}
	if t.Varargs {
		if len(t.Params) > 0 {
			b.WriteString(", ")
		}
		b.WriteString("...")
	}
	b.WriteByte(')')
	return join(b.String(), t.After), nil
}
