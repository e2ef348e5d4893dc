package ctf

import (
	"encoding/binary"
	"fmt"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"
)

// typeID is the number of a type. Those of a child dict have the highest bit set.
type typeID uint32

// The kinds of CTF version 3 (CTF_K_*); 0 is a type that cannot be expressed.
// Kinds of types.
const (
	kindInteger  = 1
	kindFloat    = 2
	kindPointer  = 3
	kindArray    = 4
	kindFunction = 5
	kindStruct   = 6
	kindUnion    = 7
	kindEnum     = 8
	kindForward  = 9
	kindTypedef  = 10
	kindVolatile = 11
	kindConst    = 12
	kindRestrict = 13
	kindSlice    = 14
)

const typeSize = 12 // name, info, and a size or a type

// record is a type as encoded.
type record struct {
	name, info, ref uint32
	more            []byte // that follows, of which the kind says what it is
}

// kind is in the highest 6 bits of the info; count, of members or parameters, in the low 24.
func (r *record) kind() uint32  { return r.info >> 26 }
func (r *record) count() uint32 { return r.info & 0xffffff }

// findTypes goes through the types, which have many sizes.
func (d *dict) findTypes(from, to uint32) error {
	for at := from; at < to; {
		_, size, err := d.record(at, to)
		if err != nil {
			return fmt.Errorf("type %d: %w", len(d.types)+1, err)
		}
		d.types = append(d.types, at)
		at += size
	}
	return nil
}

// record reads the type at an offset of the data.
func (d *dict) record(at, end uint32) (r record, size uint32, err error) {
	const (
		largeSize  = ^uint32(0) // the size is in 8 bytes that follow
		largeMod   = 1 << 29    // members of structures of this size and more are larger
		member     = 12
		largeOne   = 16
		enumerator = 8
	)
	b := d.data[at:end]
	if len(b) < typeSize {
		return r, 0, errShort
	}
	le := binary.LittleEndian
	r = record{name: le.Uint32(b), info: le.Uint32(b[4:]), ref: le.Uint32(b[8:])}
	head, bytes := uint64(typeSize), uint64(r.ref)
	if r.ref == largeSize {
		if head += 8; uint64(len(b)) < head {
			return r, 0, errShort
		}
		bytes = uint64(le.Uint32(b[12:]))<<32 | uint64(le.Uint32(b[16:]))
	}
	n := uint64(r.count())
	var more uint64
	switch r.kind() {
	case kindInteger, kindFloat:
		more = 4
	case kindArray:
		more = 12
	case kindFunction:
		more = 4 * (n + n&1) // numbers are padded to an even count
	case kindStruct, kindUnion:
		more = n * member
		if bytes >= largeMod {
			more = n * largeOne
		}
	case kindEnum:
		more = n * enumerator
	case kindSlice:
		more = 8
	case 0, kindPointer, kindForward, kindTypedef, kindVolatile, kindConst, kindRestrict:
	default:
		return r, 0, fmt.Errorf("kind %d is not known", r.kind())
	}
	if head+more > uint64(len(b)) {
		return r, 0, errShort
	}
	r.more = b[head : head+more]
	return r, uint32(head + more), nil
}

// typ returns a type of the dict or its parent.
func (d *dict) typ(id typeID) (t cdecl.Type[typeID], err error) {
	const ofChild = 1 << 31
	in, n := d, uint32(id)
	switch {
	case n&ofChild != 0:
		n &^= ofChild
		if !d.isChild {
			return t, fmt.Errorf("type %#x is of a dict that is not known", uint32(id))
		}
	case d.isChild:
		if in = d.parent; in == nil {
			return t, fmt.Errorf("type %#x is of a parent that is not there", uint32(id))
		}
	}
	if n == 0 { // type 0 of a function's list is void, too
		return cdecl.Type[typeID]{Name: "void"}, nil
	}
	if uint64(n) > uint64(len(in.types)) {
		return t, fmt.Errorf("type %#x is not there", uint32(id))
	}
	r, _, err := in.record(in.types[n-1], uint32(len(in.data)))
	if err != nil {
		return t, err
	}
	return in.describe(&r)
}

// describe returns a type as package cdecl prints it.
func (d *dict) describe(r *record) (t cdecl.Type[typeID], err error) {
	le := binary.LittleEndian
	t.Name, t.Of = d.string(r.name), typeID(r.ref)
	switch r.kind() {
	case kindInteger, kindFloat, kindTypedef:
		if t.Name == "" {
			err = fmt.Errorf("a type has no name")
		}
	case kindStruct, kindUnion, kindEnum:
		t.Name = tagged(r.kind(), t.Name)
	case kindForward:
		t.Name = tagged(r.ref, t.Name)
	case kindPointer:
		t.Kind, t.Name = cdecl.Pointer, ""
	case kindVolatile:
		t.Kind, t.Name = cdecl.Qualified, "volatile"
	case kindConst:
		t.Kind, t.Name = cdecl.Qualified, "const"
	case kindRestrict:
		t.Kind, t.Name = cdecl.Qualified, "restrict"
	case kindArray:
		t.Kind, t.Of, t.Count = cdecl.Array, typeID(le.Uint32(r.more)), int64(le.Uint32(r.more[8:]))
	case kindFunction:
		t.Kind = cdecl.Function
		n := int(r.count())
		if n > cdecl.MaxTypes {
			return t, cdecl.ErrLarge
		}
		for i := range n {
			of := typeID(le.Uint32(r.more[4*i:]))
			// A last parameter of void stands for the three dots.
			if of == 0 && i == n-1 {
				t.Varargs = true
				break
			}
			t.Params = append(t.Params, cdecl.Param[typeID]{Of: of})
		}
	default:
		err = fmt.Errorf("a value of kind %d", r.kind())
	}
	return t, err
}

// tagged is the name of a type with a tag; one without is written so that it cannot be
// taken for another.
func tagged(kind uint32, tag string) string {
	word := "struct"
	switch kind {
	case kindUnion:
		word = "union"
	case kindEnum:
		word = "enum"
	}
	if tag == "" {
		return word + " {...}"
	}
	return word + " " + tag
}
