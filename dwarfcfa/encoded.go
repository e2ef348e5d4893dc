package dwarfcfa

import (
	"debug/elf"
	"fmt"
)

// Encoded reads the encodings of .eh_frame in other tables (.gcc_except_table,
// LSB 5.0 §10.5). The first failure sticks: later reads return zero, and Err
// returns the failure. It may be used by one goroutine at a time.
type Encoded struct {
	c cursor   // its data ends where reading ends
	s *Section // a section made of the bytes, for addresses and bases
}

// NewEncoded reads data, whose first byte is at addr of an object that is loaded there. section
// names it in errors.
func NewEncoded(section string, addr Addr, data []byte, bases Bases) *Encoded {
	s := &Section{Name: section, Addr: addr, Data: data, bases: bases}
	return &Encoded{c: s.cursor(0, len(data)), s: s}
}

// At returns a reader of the same bytes that starts at addr and ends at end. It
// fails if the range is outside the bytes.
func (e *Encoded) At(addr, end Addr) *Encoded {
	n := &Encoded{s: e.s}
	first, last := e.s.Addr, e.s.Addr+Addr(len(e.s.Data))
	if addr < first || addr > end || end > last {
		n.c.fail(cause(ErrTruncated, "truncated: %#x..%#x of %#x..%#x", uint64(addr), uint64(end), uint64(first),
			uint64(last)))
		return n
	}
	n.c = e.s.cursor(int(addr-first), int(end-first))
	return n
}

// Addr returns the address of the next byte.
func (e *Encoded) Addr() Addr { return e.s.Addr + Addr(e.c.pos) }

// End returns the address after the last byte.
func (e *Encoded) End() Addr { return e.s.Addr + Addr(len(e.c.data)) }

// Moved reports whether the object may be loaded at any load bias, so that 0 is no address of it. Then a stored 0 that
// counts from 0 is null, not an address.
func (e *Encoded) Moved() bool { return e.s.moved }

// Err returns the first failure, or nil if there was none. It wraps
// ErrTruncated, ErrBadEncoding or, for what is known only at run time, ErrUnsupported.
func (e *Encoded) Err() error { return e.c.err }

// U8 reads a byte.
func (e *Encoded) U8() uint8 { return e.c.u8() }

// ULEB reads an unsigned LEB128 number.
func (e *Encoded) ULEB() uint64 { return e.c.uleb() }

// SLEB reads a signed LEB128 number.
func (e *Encoded) SLEB() int64 { return e.c.sleb() }

// Value reads what enc stores, without a base and without following an
// indirect pointer.
func (e *Encoded) Value(enc PointerEncoding) uint64 {
	if enc == PEOmit {
		e.c.fail(cause(ErrBadEncoding, "pointer encoded as omitted"))
		return 0
	}
	return e.c.value(enc)
}

// Pointer reads an encoded pointer; an indirect one is not followed. null
// reports whether the stored value is 0, which means no pointer whatever it is
// relative to.
func (e *Encoded) Pointer(enc PointerEncoding, function Addr) (p Addr, null bool) {
	if p, null = e.c.pointerSlot(enc, e.s, function); null {
		p = 0
	}
	return p, null && e.c.err == nil
}

// PointerSize returns the size in bytes of a value in the format of enc, or 0
// if the size varies or the format is unknown.
func (e PointerEncoding) PointerSize() int {
	if e == PEOmit {
		return 0
	}
	switch e & peFormatMask {
	case PEAbsPtr, PESigned, PEUData8, PESData8:
		return 8
	case PEUData4, PESData4:
		return 4
	case PEUData2, PESData2:
		return 2
	}
	return 0
}

// Encoded returns a reader of the section of the object's image that holds addr, or if there is none, of the
// segment. The bytes are as a loader leaves them, and read anew in each call. It is an error if the file has no byte
// for addr.
func (o *File) Encoded(addr Addr) (*Encoded, error) {
	if s := o.holding(addr); s != nil {
		data, err := o.contents(s)
		return o.encoded(s.Name, Addr(s.Addr), data, err)
	}
	for i, p := range o.file.Progs {
		if p.Type == elf.PT_LOAD && uint64(addr) >= p.Vaddr && uint64(addr)-p.Vaddr < p.Filesz {
			data, err := o.read(p.Off, p.Filesz)
			return o.encoded(fmt.Sprintf("segment %d", i), Addr(p.Vaddr), data, err)
		}
	}
	return nil, cause(ErrBadEncoding, "the file has no bytes for address %#x", uint64(addr))
}

// encoded returns a reader of the file's bytes at addr, unless reading them failed.
func (o *File) encoded(name string, addr Addr, data []byte, err error) (*Encoded, error) {
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	s, err := o.section(SourceEHFrame, addr, data)
	if err != nil {
		return nil, err
	}
	s.Name = name
	return &Encoded{c: s.cursor(0, len(data)), s: s}, nil
}

// holding returns the section of the image that holds addr, or nil if there is none.
func (o *File) holding(addr Addr) *elf.Section {
	for _, s := range o.file.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 && s.Flags&elf.SHF_COMPRESSED == 0 && hasBytes(s) &&
			uint64(addr) >= s.Addr && uint64(addr)-s.Addr < s.FileSize {
			return s
		}
	}
	return nil
}
