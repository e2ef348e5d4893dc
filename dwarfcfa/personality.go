package dwarfcfa

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"iter"
)

// PersonalityName returns the name of a CIE's personality routine: of the symbol
// that the loader binds its pointer to, or of a symbol at its address. It is
// empty if the CIE has no routine or the name is not known, as in a stripped,
// statically linked program. Each call reads relocations and symbols of the
// whole object.
func (o *Object) PersonalityName(c *CIE) string {
	if c.PersonalityEncoding == PEOmit {
		return ""
	}
	addr := c.Personality
	if c.PersonalityIndirect {
		symbol, target := o.pointerTo(addr)
		if symbol != 0 {
			return o.dynamicName(symbol)
		}
		addr = target
	}
	if addr == 0 {
		return ""
	}
	for _, typ := range []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} {
		table := o.file.SectionByType(typ)
		for symbol := range o.records(table) {
			if elf.ST_TYPE(symbol[4]) == elf.STT_FUNC && Addr(binary.LittleEndian.Uint64(symbol[8:])) == addr {
				return o.symbolName(table, symbol)
			}
		}
	}
	return ""
}

// pointerTo says what a loader stores in the word of the image at slot: the address of a symbol, by its number, or an
// address of the object. Both are 0 if the word is 0 or bound in another way.
func (o *Object) pointerTo(slot Addr) (symbol uint32, addr Addr) {
	var b [8]byte
	if o.ReadImage(slot, b[:]) < len(b) {
		return 0, 0
	}
	relocs := o.relocations()
	if relocs.err != nil {
		return 0, 0
	}
	if list := from(relocs.list, uint64(slot)); len(list) > 0 && Addr(list[0].Addr) == slot {
		switch r := list[0]; {
		case r.Type == elf.R_X86_64_RELATIVE && !r.InFile:
			return 0, Addr(r.Addend)
		case r.Type == elf.R_X86_64_RELATIVE && !r.Rel:
			return 0, Addr(binary.LittleEndian.Uint64(b[:]))
		case (r.Type == elf.R_X86_64_64 || r.Type == elf.R_X86_64_GLOB_DAT) && r.Addend == 0:
			return r.Symbol, 0
		}
		return 0, 0
	}
	if o.moved() {
		return 0, 0
	}
	return 0, Addr(binary.LittleEndian.Uint64(b[:]))
}

// dynamicName returns the name of a dynamic symbol, "" if the file does not have it.
func (o *Object) dynamicName(n uint32) string {
	var symbol [recordSize]byte
	if o.ReadImage(Addr(o.dynamic[elf.DT_SYMTAB])+recordSize*Addr(n), symbol[:]) < recordSize {
		return ""
	}
	start := uint64(binary.LittleEndian.Uint32(symbol[:]))
	b := make([]byte, longestName)
	return firstString(b[:o.ReadImage(Addr(o.dynamic[elf.DT_STRTAB]+start), b)])
}

// longestName is the size of the longest name of a symbol that is read.
const longestName = 4 << 10

// firstString returns the string that b begins with, "" if it has no end.
func firstString(b []byte) string {
	name, _, ended := bytes.Cut(b, []byte{0})
	if !ended {
		return ""
	}
	return string(name)
}

// recordSize is the size of an Elf64_Rela, and of an Elf64_Sym.
const recordSize = 24

// records yields the records of a section, which may be nil, as far as the file has them. The
// section is not read as a whole: large objects have hundreds of MB of symbols.
func (o *Object) records(s *elf.Section) iter.Seq[[recordSize]byte] {
	return func(yield func([recordSize]byte) bool) {
		if s == nil || s.Flags&elf.SHF_COMPRESSED != 0 || s.FileSize > maxRead {
			return
		}
		const buffer = 64 << 10
		r := bufio.NewReaderSize(io.NewSectionReader(o.r, int64(s.Offset), int64(s.FileSize)), buffer)
		var b [recordSize]byte
		for {
			if _, err := io.ReadFull(r, b[:]); err != nil || !yield(b) {
				return
			}
		}
	}
}

// symbolName returns the name of a symbol of a table, "" if the file does not have it.
func (o *Object) symbolName(table *elf.Section, symbol [recordSize]byte) string {
	if uint64(table.Link) >= uint64(len(o.file.Sections)) {
		return ""
	}
	names, start := o.file.Sections[table.Link], uint64(binary.LittleEndian.Uint32(symbol[:]))
	if !hasBytes(names) || names.Flags&elf.SHF_COMPRESSED != 0 || start >= names.FileSize {
		return ""
	}
	b := make([]byte, min(longestName, names.FileSize-start))
	n, _ := o.r.ReadAt(b, int64(names.Offset+start))
	return firstString(b[:n])
}
