package srcline

import (
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"
)

// This file describes DWARF types to cdecl, which writes them as C and C++ do. Entries are read one
// by one as cdecl asks for them.

// errType is for what is no type that C or C++ declares.
var errType = errors.New("an entry is not of a type")

// typeOf describes a type, or a function by its type.
func typeOf(k typeKey) (t cdecl.Type[typeKey], err error) {
	if k.unit == nil { // the zero entry is void
		t.Name = "void"
		return t, nil
	}
	e, err := k.entry()
	if err != nil {
		return t, err
	}
	// An absent DW_AT_type is void: the zero key.
	t.Of = k.to(e.of)
	switch e.tag {
	// Rust's pointer types have names, which tell more than a star.
	case tagPointerType:
		t.Kind = cdecl.Pointer
		if e.name != "" { // Rust's say all
			t.Kind, t.Name = cdecl.Named, e.name
		}
	// A pointer to member is written as C::*.
	case tagPtrToMember:
		t.Kind = cdecl.Pointer
		t.Name, err = k.to(e.class).typeName()
	case tagReferenceType:
		t.Kind, t.Name = cdecl.Reference, "&"
	case tagRvalueRef:
		t.Kind, t.Name = cdecl.Reference, "&&"
	case tagConstType:
		t.Kind, t.Name = cdecl.Qualified, "const"
	case tagVolatileType:
		t.Kind, t.Name = cdecl.Qualified, "volatile"
	case tagRestrictType:
		t.Kind, t.Name = cdecl.Qualified, "restrict"
		// C++ has the word only as an extension.
		if !k.c {
			t.Name = "__restrict__"
		}
	case tagAtomicType:
		t.Kind, t.Name = cdecl.Qualified, "_Atomic"
	case tagArrayType:
		return k.array(&e)
	case tagSubroutineType, tagSubprogram, tagInlinedSubroutine:
		return k.function(&e)
	// Base types, typedefs, and types with tags.
	default:
		t.Name, err = k.typeName()
	}
	return t, err
}

// array describes the dimension of an array that k says: DWARF has one entry for all dimensions, cdecl wants arrays of
// arrays. A count of -1 is not known, as in extern int a[].
func (k typeKey) array(e *entry) (t cdecl.Type[typeKey], err error) {
	dims, count := 0, int64(-1)
	// Each dimension is an entry DW_TAG_subrange_type.
	err = k.childrenOf(e, func(_ entryKey, c *entry) bool {
		if c.tag == tagSubrange {
			if dims == k.dim {
				count = c.count
			}
			dims++
		}
		return true
	})
	if err != nil {
		return t, err
	}
	if e.vector { // as gdb writes it
		elem, err := k.to(e.of).typeName()
		t.Name = fmt.Sprintf("%s __attribute__ ((vector_size(%d)))", elem, count)
		return t, err
	}
	t.Kind, t.Count, t.Of = cdecl.Array, count, k.to(e.of)
	// The element of all but the last dimension is an array of the dimensions that follow.
	if k.dim+1 < dims {
		t.Of = k
		t.Of.dim++
	}
	return t, nil
}

// function describes a function, or its type.
func (k typeKey) function(e *entry) (t cdecl.Type[typeKey], err error) {
	t.Kind, t.Of = cdecl.Function, k.to(e.of)
	// (void) in C; in C++ and old C an empty list is ().
	if k.c && e.prototyped {
		t.Empty = "void"
	}
	// A definition may leave the return type to its declaration.
	if !e.hasType && e.declared.unit != nil {
		if d, err := e.declared.entry(); err == nil {
			t.Of.entryKey = d.of
		}
	}
	tooMany := false // a limit against types that a damaged file makes endless
	err = k.childrenOf(e, func(_ entryKey, c *entry) bool {
		switch {
		// A const member function: its artificial this points to const.
		case c.tag == tagParameter && c.artificial && constObject(c.of):
			t.After = "const"
		case c.tag == tagUnspecifiedArg:
			t.Varargs = true
		case c.tag == tagParameter && !c.artificial:
			t.Params = append(t.Params, cdecl.Param[typeKey]{Name: c.name, Of: k.to(c.of)})
			tooMany = len(t.Params) > cdecl.MaxTypes
		}
		return !tooMany
	})
	if tooMany {
		err = cdecl.ErrLarge
	}
	return t, err
}

// typeName returns the name of a type that has one: with its tag in C, with the namespaces and classes
// that it is in elsewhere.
func (k typeKey) typeName() (string, error) {
	e, err := k.entry()
	const chain = 3 // a declaration, its type unit, and one more; more is a loop
	for range chain {
		next := e.declared
		if e.same.unit != nil {
			next = e.same
		}
		if err != nil || next.unit == nil {
			break
		}
		k.entryKey = next
		e, err = k.entry()
	}
	if err != nil {
		return "", err
	}
	// Only C writes the word; C++ writes the scope.
	word := ""
	switch e.tag {
	case tagBaseType, tagUnspecified:
		if e.name == "" {
			return "", errType
		}
		return e.name, nil
	case tagTypedef, tagTemplateAlias:
	case tagStructType, tagInterfaceType:
		word = "struct"
	case tagClassType:
		word = "class"
	case tagUnionType:
		word = "union"
	case tagEnumeration:
		word = "enum"
	default:
		return "", fmt.Errorf("%w: tag %#x", errType, e.tag)
	}
	switch {
	case e.name == "" && word == "":
		return "", errType
	case e.name == "":
		return word + " {...}", nil
	case !k.c:
		return k.unit.scopeOf(k.off) + e.name, nil
	case word != "":
		return word + " " + e.name, nil
	}
	return e.name, nil
}
