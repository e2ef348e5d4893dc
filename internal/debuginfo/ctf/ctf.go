package ctf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/internal/debuginfo/cdecl"
	"github.com/ehasm/ehasm/internal/files/elffile"

	"github.com/klauspost/compress/zlib"
)

// Function is a function with the type that a section gives it.
type Function struct {
	Name string
	dict *dict
	id   typeID // a function type
}

// Parameters returns the parameters as C declares them, in parentheses.
func (f *Function) Parameters() (string, error) { return cdecl.Parameters(f.dict.typ, f.id) }

// Declaration returns the whole prototype.
func (f *Function) Declaration() (string, error) { return cdecl.Declare(f.dict.typ, f.id, f.Name) }

// Symbols gives access to the parts of the object that a section refers to. Its functions
// may be called several times.
type Symbols struct {
	// Dynamic and Static return the names of .dynsym and .symtab, each in its order, with "" for
	// symbols that are not functions of the object.
	Dynamic, Static func() []string
	// The string tables that go with them.
	DynamicStrings, StaticStrings func() []byte
}

// ErrVersion is wrapped for versions other than 3.
var ErrVersion = errors.New("unknown version")

// errShort is for what goes beyond the end of its section.
var errShort = errors.New("goes beyond the end")

// Numbers of the format: binutils, include/ctf.h.
const (
	archiveMagic = 0x8b47f2a4d7623eeb // CTFA_MAGIC
	magic        = 0xdff2             // CTF_MAGIC
	version3     = 4                  // CTF_VERSION_3
	headerSize   = 52                 // bytes of ctf_header

	flagCompressed = 1
	flagDynamic    = 8 // strings are of .dynstr

	// maxSize bounds the data of a dict.
	maxSize = 1 << 28
	// maxDicts bounds their number: one for each compilation unit that types conflict in.
	maxDicts = 1 << 16
)

// Read returns the functions of a .ctf section. Those found before an error are returned
// with it.
func Read(section []byte, symbols Symbols) ([]Function, error) {
	dicts, err := readDicts(section)
	var all []Function
	for _, d := range dicts {
		list, e := d.functions(symbols)
		all = append(all, list...)
		if err == nil {
			err = e
		}
	}
	return all, err
}

// readDicts reads an archive, or a single dict.
func readDicts(b []byte) ([]*dict, error) {
	const header, member = 40, 16
	le := binary.LittleEndian
	if len(b) < header || le.Uint64(b) != archiveMagic {
		d, err := newDict(b)
		if err != nil {
			return nil, err
		}
		return []*dict{d}, nil
	}
	count, first := le.Uint64(b[16:]), le.Uint64(b[32:])
	if count > maxDicts || count*member > uint64(len(b)-header) {
		return nil, fmt.Errorf("archive of %d members %w", count, errShort)
	}
	if first > uint64(len(b)) {
		return nil, fmt.Errorf("members of the archive: %w", errShort)
	}
	var parent *dict
	var list []*dict
	var failed error
	total, most := 0, int(min(maxSize, elffile.Warranted(uint64(len(b))))) // the dicts of an archive must not hold more than the section warrants
	for i := range count {
		at := le.Uint64(b[header+i*member+8:])
		data := b[first:]
		if at > uint64(len(data)) || uint64(len(data))-at < 8 {
			failed = errors.Join(failed, fmt.Errorf("member %d %w", i, errShort))
			continue
		}
		size := le.Uint64(data[at:])
		if data = data[at+8:]; size > uint64(len(data)) {
			failed = errors.Join(failed, fmt.Errorf("member %d %w", i, errShort))
			continue
		}
		d, err := newDict(data[:size])
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("member %d: %w", i, err))
			continue
		}
		if total += len(d.data); total > most {
			return list, errors.Join(failed, fmt.Errorf("more than %d bytes", most))
		}
		// Children refer to the types of the first dict that is no child.
		if d.isChild {
			list = append(list, d)
		} else if parent == nil {
			parent = d
			list = append(list, d)
		}
	}
	for _, d := range list {
		if d.isChild {
			d.parent = parent
		}
	}
	return list, failed
}

// dict holds types with the functions that have them.
type dict struct {
	data      []byte // what follows the header
	flags     uint8
	isChild   bool
	parent    *dict // of a child; nil: not there
	funcs     []byte
	index     []byte   // names of funcs; empty: they are in the order of the symbol table
	types     []uint32 // where they are in data, from number 1 on
	strings   []byte
	externals []byte // the string table of the symbols, once functions was called
}

// newDict reads a dict, and finds its types.
func newDict(b []byte) (*dict, error) {
	le := binary.LittleEndian
	if len(b) < headerSize {
		return nil, fmt.Errorf("header %w", errShort)
	}
	if le.Uint16(b) != magic {
		return nil, errors.New("not CTF")
	}
	if b[2] != version3 {
		return nil, fmt.Errorf("%w %d", ErrVersion, b[2])
	}
	field := func(i int) uint32 { return le.Uint32(b[4*i:]) }
	// The header is a row of offsets from its end; the parts follow each other in the same order.
	d := &dict{data: b[headerSize:], flags: b[3], isChild: field(2) != 0}
	functions, objectIndex, functionIndex, variables, types := field(6), field(7), field(8), field(9), field(10)
	str, size := uint64(field(11)), uint64(field(12))
	if len(b) > maxSize {
		return nil, fmt.Errorf("more than %d bytes", maxSize)
	}
	if d.flags&flagCompressed != 0 {
		var err error
		if d.data, err = inflate(d.data, str+size); err != nil {
			return nil, err
		}
	}
	if str+size > uint64(len(d.data)) || functions > objectIndex || objectIndex > functionIndex || functionIndex > variables ||
		variables > types || uint64(types) > str {
		return nil, fmt.Errorf("header: a part %w", errShort)
	}
	d.funcs, d.index = d.data[functions:objectIndex], d.data[functionIndex:variables]
	d.strings = d.data[str : str+size]
	return d, d.findTypes(types, uint32(str))
}

// inflate uncompresses data of a known size.
func inflate(b []byte, size uint64) ([]byte, error) {
	if size > min(maxSize, elffile.Warranted(uint64(len(b)))) {
		return nil, fmt.Errorf("compressed data of %d bytes are said to be %d", len(b), size)
	}
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := make([]byte, size)
	if _, err := io.ReadFull(r, out); err != nil {
		return nil, fmt.Errorf("compressed data: %w", err)
	}
	return out, nil
}

// string is the string of a reference, whose highest bit says which table it is of.
func (d *dict) string(ref uint32) string {
	const external = 1 << 31
	table := d.strings
	// Such strings are in the object's own string table.
	if ref&external != 0 {
		table, ref = d.externals, ref&^external
	}
	if uint64(ref) >= uint64(len(table)) {
		return ""
	}
	s, _, _ := bytes.Cut(table[ref:], []byte{0})
	return string(s)
}

// functions returns those of the dict. In the order of symbols each has its place, which is 0
// if this dict gives no type.
func (d *dict) functions(symbols Symbols) ([]Function, error) {
	names, strings := symbols.Static, symbols.StaticStrings
	if d.flags&flagDynamic != 0 {
		names, strings = symbols.Dynamic, symbols.DynamicStrings
	}
	if strings != nil {
		d.externals = strings()
	}
	le := binary.LittleEndian
	count := len(d.funcs) / 4
	var name func(i int) string
	switch {
	case count == 0:
		return nil, nil
	case len(d.index) > 0:
		if len(d.index)/4 < count {
			return nil, fmt.Errorf("index of functions %w", errShort)
		}
		name = func(i int) string { return d.string(le.Uint32(d.index[4*i:])) }
	default:
		if names == nil {
			return nil, errors.New("the section's functions need a symbol table, but the file has none")
		}
		list := names()
		if len(list) < count {
			return nil, fmt.Errorf("%d functions, and %d symbols", count, len(list))
		}
		name = func(i int) string { return list[i] }
	}
	var all []Function
	for i := range count {
		id := typeID(le.Uint32(d.funcs[4*i:]))
		if id == 0 {
			continue
		}
		if s := name(i); s != "" {
			all = append(all, Function{Name: s, dict: d, id: id})
		}
	}
	return all, nil
}
