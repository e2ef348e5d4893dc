package prototypes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// This file goes through raw BTF without decoding types: a list of kinds, sizes and references. It
// finds the functions by name, and how deep the references go, before the reader recurses.

// Bounds of BTF. The reader goes from type to type by recursion, which takes 2 KB of stack each, and
// Go cannot recover from a stack overflow. From functions of Linux 6.18 it goes 277 deep
// at most.
const (
	maxTypes = 1 << 18
	maxDepth = 1 << 12
)

var (
	errDeep  = fmt.Errorf("types that refer to each other in a chain of more than %d", maxDepth)
	errShort = errors.New("types go beyond the end")
)

// graph is the types of raw BTF by number, for what must be known before the reader reads one: which
// are functions, and how deep it will go (include/uapi/linux/btf.h).
type graph struct {
	base      *graph              // whose types and strings come first; nil: none
	first     uint32              // number of the first type here
	types     []byte              // the type section
	offsets   []uint32            // where each type is in types
	strings   []byte              // the string section
	before    uint32              // bytes of strings of base
	functions map[string][]uint32 // numbers of functions, by name
	order     []string            // their names, as they come
	tags      map[uint32][]uint32 // declaration tags of a type, which the reader reads with it
	seen      []bool              // by number: read by the reader
	errs      int                 // of the reader
	err       error               // why no more is read; nil: it goes on
}

// Kinds of types.
const (
	btfInt       = 1  // int
	btfArray     = 3  // element and index type, and a count
	btfStruct    = 4  // n members of 12 bytes
	btfUnion     = 5  // the same
	btfEnum      = 6  // n values of 8 bytes
	btfForward   = 7  // a declaration of a struct or union
	btfFunc      = 12 // a name, and the number of a btfFuncProto
	btfFuncProto = 13 // n parameters of 8 bytes
	btfVar       = 14 // a variable
	btfDataSec   = 15 // n variables of a section, 12 bytes each
	btfFloat     = 16 // a floating-point type
	btfDeclTag   = 17 // an attribute of another type, or of its member
	btfEnum64    = 19 // n values of 12 bytes
)

// newGraph goes through the types.
func newGraph(b []byte, base *graph) (*graph, error) {
	const header = 24 // bytes of struct btf_header
	le := binary.LittleEndian
	if len(b) < header || le.Uint16(b) != magicBTF {
		return nil, errors.New("not BTF of this machine's byte order")
	}
	// part returns the part of the file whose offset and length are at a place in the header.
	part := func(field int) ([]byte, error) {
		// Offsets count from the end of the header, whose length is at 4.
		from := uint64(le.Uint32(b[4:])) + uint64(le.Uint32(b[field:]))
		to := from + uint64(le.Uint32(b[field+4:]))
		if to > uint64(len(b)) {
			return nil, errShort
		}
		return b[from:to], nil
	}
	g := &graph{base: base, first: 1, functions: make(map[string][]uint32), tags: make(map[uint32][]uint32)}
	var err error
	if g.types, err = part(8); err != nil {
		return nil, err
	}
	if g.strings, err = part(16); err != nil {
		return nil, err
	}
	// A module's types and strings are numbered after the kernel's.
	if base != nil {
		g.first, g.before = base.end(), base.before+uint32(len(base.strings))
	}
	if err := g.index(); err != nil {
		return nil, err
	}
	g.seen = make([]bool, g.end())
	return g, nil
}

// index notes where each type is, and collects functions and declaration tags.
func (g *graph) index() error {
	const typeSize = 12 // bytes of the fixed part of struct btf_type
	le := binary.LittleEndian
	for offset := uint64(0); offset+typeSize <= uint64(len(g.types)); {
		if len(g.offsets) == maxTypes {
			return fmt.Errorf("more than %d types", maxTypes)
		}
		t := g.types[offset:]
		id := g.first + uint32(len(g.offsets))
		g.offsets = append(g.offsets, uint32(offset))
		// A kind decides how many bytes follow its 12: see the kernel's Documentation/bpf/btf.rst.
		n, size := uint64(le.Uint16(t[4:])), uint64(typeSize)
		// Bits 24 to 28 of the info word are the kind; its low 16 bits, read above, the number of
		// elements.
		switch t[7] & 0x1f {
		case btfInt, btfVar:
			size += 4
		case btfDeclTag:
			size += 4
			g.tags[le.Uint32(t[8:])] = append(g.tags[le.Uint32(t[8:])], id)
		case btfFunc:
			if name := g.name(le.Uint32(t)); name != "" {
				if len(g.functions[name]) == 0 {
					g.order = append(g.order, name)
				}
				g.functions[name] = append(g.functions[name], id)
			}
		case btfArray:
			size += 12
		case btfStruct, btfUnion, btfDataSec, btfEnum64:
			size += 12 * n
		case btfEnum, btfFuncProto:
			size += 8 * n
		}
		// The last type must end inside the section.
		if offset += size; offset > uint64(len(g.types)) {
			return errShort
		}
	}
	return nil
}

// end is the number after the last type.
func (g *graph) end() uint32 { return g.first + uint32(len(g.offsets)) }

// name returns the string at an offset, "" if there is none.
func (g *graph) name(off uint32) string {
	if g.base != nil && off < g.before {
		return g.base.name(off)
	}
	if off -= g.before; uint64(off) >= uint64(len(g.strings)) {
		return ""
	}
	s, _, _ := bytes.Cut(g.strings[off:], []byte{0})
	return string(s)
}

// refers appends the numbers of the types that one refers to.
func (g *graph) refers(dst []uint32, id uint32) []uint32 {
	// Types of the base have the lower numbers.
	of := g
	for of != nil && id < of.first {
		of = of.base
	}
	if of == nil || id >= of.end() {
		return dst // void, or an error of the reader
	}
	le := binary.LittleEndian
	t := of.types[of.offsets[id-of.first]:]
	n, more := int(le.Uint16(t[4:])), t[12:]
	// each appends a reference of every element: size bytes long, the reference at an offset
	// inside.
	each := func(size, offset int) {
		for i := range n {
			dst = append(dst, le.Uint32(more[size*i+offset:]))
		}
	}
	// Kinds that refer to nothing come first; by default the third word is a reference.
	switch t[7] & 0x1f {
	case btfInt, btfEnum, btfForward, btfFloat, btfEnum64:
	case btfArray:
		dst = append(dst, le.Uint32(more), le.Uint32(more[4:]))
	case btfStruct, btfUnion:
		each(12, 4)
	case btfDataSec:
		each(12, 0)
	case btfFuncProto:
		each(8, 4)
		dst = append(dst, le.Uint32(t[8:]))
	default:
		dst = append(dst, le.Uint32(t[8:]))
	}
	// The reader attaches declaration tags to what they are of.
	return append(dst, of.tags[id]...)
}

// maxErrors bounds how often the way through types is gone again.
const maxErrors = 16

// failed must be called if the reader returns an error: it has then dropped what it read on the
// way.
func (g *graph) failed(err error) {
	// The reader starts anew, and so does the record of what it has read.
	clear(g.seen)
	if g.errs++; g.errs == maxErrors && g.err == nil {
		g.err = fmt.Errorf("%d functions cannot be read, the last: %w", maxErrors, err)
	}
}

// enter must be called before the reader reads a type. It goes the way that the reader will, and
// fails if that is too deep: then for all types.
func (g *graph) enter(id uint32) error {
	if g.err != nil {
		return g.err
	}
	// Depth first, with a list instead of recursion: the depth is what is to be found out.
	type level struct{ from, next int } // in todo
	var todo []uint32
	var levels []level
	visit := func(id uint32) {
		// Read types are kept by the reader: it does not go into them again.
		if uint64(id) >= uint64(len(g.seen)) || g.seen[id] {
			return
		}
		g.seen[id] = true
		// from is where the level's references begin in todo, next the one to visit.
		levels = append(levels, level{len(todo), len(todo)})
		todo = g.refers(todo, id)
	}
	for visit(id); len(levels) > 0; {
		if len(levels) > maxDepth {
			g.err = errDeep
			return g.err
		}
		last := &levels[len(levels)-1]
		// All references of the level are visited: its part of the list is dropped.
		if last.next == len(todo) {
			todo = todo[:last.from]
			levels = levels[:len(levels)-1]
			continue
		}
		last.next++
		visit(todo[last.next-1])
	}
	return nil
}
