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
	if c.PersonalityEncoding&PEIndirect != 0 {
		name, target, ok := o.pointerTo(addr)
		if !ok || name != "" {
			return name
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

// pointerTo says what the loader stores in the word of the image at slot: the address of a named
// symbol, or an address of the object. It looks through all dynamic relocations. ok is false if the
// word is 0 or bound in another way.
func (o *Object) pointerTo(slot Addr) (symbol string, addr Addr, ok bool) {
	for _, s := range o.file.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		for relocation := range o.records(s) {
			if Addr(binary.LittleEndian.Uint64(relocation[:])) != slot {
				continue
			}
			info, addend := binary.LittleEndian.Uint64(relocation[8:]), binary.LittleEndian.Uint64(relocation[16:])
			switch elf.R_X86_64(uint32(info)) {
			case elf.R_X86_64_RELATIVE:
				return "", Addr(addend), true
			case elf.R_X86_64_64, elf.R_X86_64_GLOB_DAT:
				if n := uint32(info >> 32); n > 0 && addend == 0 {
					if name, ok := o.dynamicSymbol(n); ok {
						return name, 0, true
					}
				}
			}
			return "", 0, false
		}
	}
	word, ok := o.word(slot)
	return "", Addr(word), ok && word != 0
}

// dynamicSymbol returns the name of dynamic symbol n. ok is false if there is no such symbol.
func (o *Object) dynamicSymbol(n uint32) (name string, ok bool) {
	table := o.file.SectionByType(elf.SHT_DYNSYM)
	for symbol := range o.records(table) {
		if n == 0 {
			return o.symbolName(table, symbol), true
		}
		n--
	}
	return "", false
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
	const longest = 4 << 10
	b := make([]byte, min(longest, names.FileSize-start))
	n, _ := o.r.ReadAt(b, int64(names.Offset+start))
	name, _, ended := bytes.Cut(b[:n], []byte{0})
	if !ended {
		return ""
	}
	return string(name)
}
