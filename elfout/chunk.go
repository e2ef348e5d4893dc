package elfout

import (
	"debug/elf"
	"encoding/binary"
)

// This file has the sections of a file and tables of strings. layout.go gives them their places.

var le = binary.LittleEndian

// chunk is one section of the file. Its size is known when it is made, its
// place after layout; its bytes may depend on the places of others.
type chunk struct {
	name    string
	typ     elf.SectionType
	flags   elf.SectionFlag
	align   uint64           // bytes, a power of two
	entsize uint64           // bytes per entry; 0 if entries have no fixed size
	link    *chunk           // sh_link
	info    uint32           // sh_info
	size    uint64           // bytes
	write   func(dst []byte) // writes size bytes; called once all places are known

	index   uint16 // in the section header table
	nameOff uint32 // in .shstrtab
	off     uint64 // file offset
	addr    uint64 // virtual address; 0 if the section is not loaded
}

// bytesChunk returns a chunk of known bytes.
func bytesChunk(name string, typ elf.SectionType, flags elf.SectionFlag, align uint64, b []byte) *chunk {
	return &chunk{
		name: name, typ: typ, flags: flags, align: align, size: uint64(len(b)),
		write: func(dst []byte) { copy(dst, b) },
	}
}

// end returns the file offset of the first byte after c.
func (c *chunk) end() uint64 {
	// .padding of Source.Relro takes no bytes of the file.
	if c.typ == elf.SHT_NOBITS {
		return c.off
	}
	return c.off + c.size
}

// header writes the section header (gABI figure 4-8).
func (c *chunk) header(dst []byte) {
	le.PutUint32(dst[0:], c.nameOff)
	le.PutUint32(dst[4:], uint32(c.typ))
	le.PutUint64(dst[8:], uint64(c.flags))
	le.PutUint64(dst[16:], c.addr)
	le.PutUint64(dst[24:], c.off)
	le.PutUint64(dst[32:], c.size)
	if c.link != nil {
		le.PutUint32(dst[40:], uint32(c.link.index))
	}
	le.PutUint32(dst[44:], c.info)
	le.PutUint64(dst[48:], c.align)
	le.PutUint64(dst[56:], c.entsize)
}

// strtab collects the strings of a string table section (gABI chapter 4). Equal
// strings share one entry.
type strtab struct {
	bytes []byte
	offs  map[string]uint32
}

// newStrtab returns a table that begins with the empty string, as the gABI asks.
func newStrtab() *strtab {
	return &strtab{bytes: []byte{0}, offs: map[string]uint32{"": 0}}
}

// add returns the offset of s in the table.
func (t *strtab) add(s string) uint32 {
	if off, ok := t.offs[s]; ok {
		return off
	}
	off := uint32(len(t.bytes))
	t.offs[s] = off
	t.bytes = append(append(t.bytes, s...), 0)
	return off
}

// alignUp rounds n up to a multiple of align, a power of two.
func alignUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }
