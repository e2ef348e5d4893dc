package prototypes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

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
	btfInt       = 1
	btfArray     = 3
	btfStruct    = 4
	btfUnion     = 5
	btfEnum      = 6
	btfForward   = 7
	btfFunc      = 12
	btfFuncProto = 13
	btfVar       = 14
	btfDataSec   = 15
	btfFloat     = 16
	btfDeclTag   = 17
	btfEnum64    = 19
)

// newGraph goes through the types.
func newGraph(b []byte, base *graph) (*graph, error) {
	const header, typeSize = 24, 12
	le := binary.LittleEndian
	if len(b) < header || le.Uint16(b) != magicBTF {
		return nil, errors.New("not BTF of this machine's byte order")
	}
	// part returns the part of the file whose offset and length are at a place in the header.
	part := func(at int) ([]byte, error) {
		from := uint64(le.Uint32(b[4:])) + uint64(le.Uint32(b[at:]))
		to := from + uint64(le.Uint32(b[at+4:]))
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
	if base != nil {
		g.first, g.before = base.end(), base.before+uint32(len(base.strings))
	}
	for at := uint64(0); at+typeSize <= uint64(len(g.types)); {
		if len(g.offsets) == maxTypes {
			return nil, fmt.Errorf("more than %d types", maxTypes)
		}
		t := g.types[at:]
		id := g.first + uint32(len(g.offsets))
		g.offsets = append(g.offsets, uint32(at))
		// A kind decides how many bytes follow its 12: see the kernel's Documentation/bpf/btf.rst.
		n, size := uint64(le.Uint16(t[4:])), uint64(typeSize)
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
		if at += size; at > uint64(len(g.types)) {
			return nil, errShort
		}
	}
	g.seen = make([]bool, g.end())
	return g, nil
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
	each := func(size, at int) {
		for i := range n {
			dst = append(dst, le.Uint32(more[size*i+at:]))
		}
	}
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
	return append(dst, of.tags[id]...)
}

// maxErrors bounds how often the way through types is gone again.
const maxErrors = 16

// failed must be called if the reader returns an error: it has then dropped what it read on the
// way.
func (g *graph) failed(err error) {
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
		if uint64(id) >= uint64(len(g.seen)) || g.seen[id] {
			return
		}
		g.seen[id] = true
		levels = append(levels, level{len(todo), len(todo)})
		todo = g.refers(todo, id)
	}
	for visit(id); len(levels) > 0; {
		if len(levels) > maxDepth {
			g.err = errDeep
			return g.err
		}
		last := &levels[len(levels)-1]
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
