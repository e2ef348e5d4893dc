package srcline

import (
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"
)

// Tags and attributes of types: DWARF 5, 7.5.
const (
	tagArrayType      = 0x01 // with DW_TAG_subrange_type children
	tagClassType      = 0x02
	tagEnumeration    = 0x04
	tagParameter      = 0x05 // of a function
	tagPointerType    = 0x0f
	tagReferenceType  = 0x10
	tagStructType     = 0x13
	tagSubroutineType = 0x15
	tagTypedef        = 0x16
	tagUnionType      = 0x17
	tagUnspecifiedArg = 0x18 // the dots of a variable list
	tagPtrToMember    = 0x1f // C++'s pointer to member
	tagSubrange       = 0x21 // a dimension of an array
	tagBaseType       = 0x24
	tagConstType      = 0x26
	tagVolatileType   = 0x35
	tagRestrictType   = 0x37
	tagInterfaceType  = 0x38
	tagNamespace      = 0x39
	tagUnspecified    = 0x3b // such as decltype(nullptr)
	tagRvalueRef      = 0x42 // &&
	tagTemplateAlias  = 0x43
	tagAtomicType     = 0x47

	atLanguage       = 0x13 // of the unit: table 7.17
	atContainingType = 0x1d // the class of a member pointer
	atPrototyped     = 0x27 // the function has a parameter list, (void) if empty
	atUpperBound     = 0x2f // the last index of a dimension
	atArtificial     = 0x34 // made by the compiler, such as this
	atCount          = 0x37 // the number of elements
	atType           = 0x49
	atSignature      = 0x69   // signature of the type unit that has the definition
	atGNUVector      = 0x2107 // the array is an SIMD vector
)

// entryKey tells entries apart. Its zero value is the type void.
type entryKey struct {
	unit *unit
	off  uint64
}

// typeKey is a type of the graph that package cdecl reads.
type typeKey struct {
	entryKey
	dim int  // of an array: which of its dimensions, from 0
	c   bool // the language is C: tags are written with struct, union and enum
}

// to returns the type at another entry.
func (k typeKey) to(e entryKey) typeKey { return typeKey{entryKey: e, c: k.c} }

// entry is what a function, parameter or type says of itself.
type entry struct {
	tag      uint16
	children bool
	after    uint64 // offset of what follows it: its first child, or else the next entry
	name     string
	of       entryKey // DW_AT_type
	hasType  bool     // DW_AT_type was there; without it, of is void by default
	origin   entryKey // DW_AT_abstract_origin
	declared entryKey // DW_AT_specification
	class    entryKey // DW_AT_containing_type
	same     entryKey // DW_AT_signature: of a declaration, where the type is
	count    int64    // of a subrange; -1: not known

	prototyped, artificial, vector bool
}

// Errors that callers tell apart: a bad entry, and the end of a list.
var (
	errEntry = errors.New("an entry cannot be read")
	errNull  = errors.New("no more entries")
)

// addType records the place of a type that has its own unit. The caller has s.mu.
func (s *sections) addType(signature uint64, k entryKey) {
	if s.index.typeAt == nil {
		s.index.typeAt = make(map[uint64]entryKey)
	}
	// The first of equal signatures wins: they are copies.
	if _, ok := s.index.typeAt[signature]; !ok {
		s.index.typeAt[signature] = k
	}
}

// typeBySignature finds the type of a type unit. Type units may follow all others.
func (s *sections) typeBySignature(signature uint64) entryKey {
	// Sections of type units ask their owner.
	if s.owner != nil {
		s = s.owner
	}
	// Types of DWARF 5 are recorded as headers are parsed, those of DWARF 4 by parseTypes.
	s.parseUnits(toEnd) // its error is reported elsewhere
	s.mu.Lock()
	s.parseTypes()
	k := s.index.typeAt[signature]
	s.mu.Unlock()
	if k.unit != nil {
		k.unit.ready()
	}
	return k
}

// target returns the entry that a value refers to; the zero value if there is none.
func (u *unit) target(v value) entryKey {
	// Relative references stay inside the unit.
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return entryKey{u, u.off + v.u}
	case formRefSig8:
		return u.sec.typeBySignature(v.u)
	}
	return u.sec.key(u.ref(v))
}

// key returns the entry at a reference.
func (s *sections) key(r ref) entryKey {
	if r == refNone {
		return entryKey{}
	}
	if s.owner != nil {
		s = s.owner
	}
	if r&refAlt != 0 {
		if s = s.alt; s == nil {
			return entryKey{}
		}
		r &^= refAlt
	}
	// A reference of a damaged file may lead outside of all units.
	if u := s.find(uint64(r)); u != nil {
		return entryKey{u, uint64(r)}
	}
	return entryKey{}
}

// entry reads an entry of the unit. It is errNull at the end of a list of children.
func (k entryKey) entry() (e entry, err error) {
	u := k.unit
	// Outside of the unit's entries.
	if u == nil || k.off < u.entries || k.off >= u.end {
		return e, errEntry
	}
	c := cursor{b: u.data(), off: k.off}
	code := c.uleb()
	if code == 0 {
		e.after = c.off
		return e, errNull
	}
	// A table with the attributes of all tags: types are not in the usual one.
	a := u.sec.abbrevTable(abbrevKey{u.abbrevOff, u.format, true}).find(code)
	if a == nil {
		return e, fmt.Errorf("entry at %#x of .debug_info: no abbreviation %d", k.off, code)
	}
	e.tag, e.children, e.count = a.tag, a.children, -1
	for _, attribute := range a.attrs {
		v := read(&c, attribute, u.format)
		if c.bad { // an abbreviation ended inside the entry
			return e, errEntry
		}
		switch attribute.name {
		case atName:
			e.name = u.str(v)
		case atType:
			// A reference to nothing is damage; void has no DW_AT_type at all.
			if e.of, e.hasType = u.target(v), true; e.of.unit == nil {
				return e, errEntry
			}
		case atAbstractOrigin:
			e.origin = u.target(v)
		case atSpecification:
			e.declared = u.target(v)
		case atContainingType:
			e.class = u.target(v)
		case atSignature:
			e.same = u.target(v)
		case atPrototyped:
			e.prototyped = v.u != 0
		case atArtificial:
			e.artificial = v.u != 0
		case atGNUVector:
			e.vector = v.u != 0
		case atCount:
			// Constants only: lengths of variable arrays are expressions.
			if number(v.form) {
				e.count = int64(v.u)
			}
		case atUpperBound:
			if number(v.form) {
				e.count = int64(v.u) + 1 // bounds count from 0 in C
			}
		}
	}
	e.after = c.off
	return e, nil
}

// number reports whether a form is of a constant.
func number(form uint16) bool {
	switch form {
	case formData1, formData2, formData4, formData8, formUdata, formSdata, formImplicitConst:
		return true
	}
	return false
}

// maxChildren bounds the entries that are looked at for parameters and dimensions.
const maxChildren = 1 << 14

// childrenOf calls f for the entries right below one, until it returns false. DW_AT_sibling is not used: an entry may
// lack it, or lie.
func (k entryKey) childrenOf(e *entry, f func(entryKey, *entry) bool) error {
	if !e.children {
		return nil
	}
	// The entries below children are passed over by counting levels.
	depth := 0
	offset := e.after
	for range maxChildren {
		child := entryKey{k.unit, offset}
		c, err := child.entry()
		switch {
		case errors.Is(err, errNull):
			if depth == 0 {
				return nil
			}
			depth--
		case err != nil:
			return err
		case depth == 0 && !f(child, &c):
			return nil
		}
		if c.children {
			depth++
		}
		offset = c.after
	}
	return cdecl.ErrLarge
}

// isC reports whether the unit is of a language whose tags are written with struct, union and
// enum: C, and Objective C.
func (u *unit) isC() bool {
	switch u.root.language {
	// DWARF 5, table 7.17: C89, C, C99, Objective C, C11, C17, C23.
	case 0x01, 0x02, 0x0c, 0x10, 0x1d, 0x2c, 0x3e:
		return true
	}
	return false
}

// parameters returns those of the function at an entry, or "" if they are not
// known.
func (o *Info) parameters(u *unit, r ref) string {
	k := u.sec.key(r)
	if k.unit == nil {
		return ""
	}
	// Parameters are asked for at each frame of hot functions, so they are kept.
	o.signedMu.Lock()
	s, ok := o.signed[k]
	o.signedMu.Unlock()
	if ok {
		return s
	}
	o.note(try(func() error {
		// An error leaves "": the function is shown without parameters.
		s, _ = k.signature(u.isC())
		return u.sec.typesError()
	}))
	o.signedMu.Lock()
	if o.signed == nil {
		o.signed = make(map[entryKey]string)
	}
	o.signed[k] = s
	o.signedMu.Unlock()
	const beside = 64 // bytes of the map
	o.count(len(s) + beside)
	return s
}

// signature returns the parameters of the function at an entry.
func (k entryKey) signature(c bool) (string, error) {
	k, _, err := k.definition()
	if err != nil {
		return "", err
	}
	return cdecl.Parameters(typeOf, typeKey{entryKey: k, c: c})
}

// definition follows what an entry of a function refers to, up to the one that has all
// parameters: an instance may have lost some.
func (k entryKey) definition() (entryKey, entry, error) {
	const chain = 8 // more is a loop
	for range chain {
		e, err := k.entry()
		switch {
		case err != nil:
			return k, e, err
		case e.tag != tagSubprogram && e.tag != tagInlinedSubroutine:
			return k, e, errEntry
		case e.origin.unit != nil:
			// An inlined copy or a clone: its origin has all parameters.
			k = e.origin
			continue
		case e.declared.unit == nil:
			return k, e, nil
		}
		// A definition without parameters takes those of its declaration.
		some := false
		if err := k.childrenOf(&e, func(_ entryKey, c *entry) bool {
			some = some || c.tag == tagParameter || c.tag == tagUnspecifiedArg
			return !some
		}); err != nil || some {
			return k, e, err
		}
		k = e.declared
	}
	return k, entry{}, errEntry
}

// constObject reports whether a type is the type of this in a member function of const objects.
func constObject(k entryKey) bool {
	const chain = 3 // const pointer to const
	pointer := false
	for range chain {
		e, err := k.entry()
		// The entry behind the pointer decides.
		if err != nil || pointer {
			return err == nil && e.tag == tagConstType
		}
		pointer = e.tag == tagPointerType
		k = e.of
	}
	return false
}
