package relocatable

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"maps"
	"slices"
)

// stringTable collects names.
type stringTable struct{ bytes.Buffer }

// add appends a name and returns its offset; the table begins with an empty name.
func (t *stringTable) add(s string) uint32 {
	if t.Len() == 0 {
		t.WriteByte(0)
	}
	off := t.Len()
	t.WriteString(s)
	t.WriteByte(0)
	return uint32(off)
}

// sectionHeaders collects the headers of sections.
type sectionHeaders struct {
	names stringTable
	list  []elf.Section64
}

// add appends a header under a name.
func (h *sectionHeaders) add(name string, s elf.Section64) {
	s.Name = h.names.add(name)
	h.list = append(h.list, s)
}

// write adds headers and symbols: the program headers before the first section, the
// section headers after the last.
func (l *linker) write() []byte {
	headers := sectionHeaders{list: []elf.Section64{{}}}
	headers.names.add("")
	index, undefined := l.addSections(&headers)
	var symNames stringTable
	symNames.add("")
	symbols, locals := l.symbolTable(&symNames, index, undefined)

	// Symbols and names come behind the image.
	var tail bytes.Buffer // what follows the image
	tail.Write(make([]byte, -len(l.image)&7))
	end := func() uint64 { return uint64(len(l.image) + tail.Len()) }
	// Index of .strtab, which comes next; number of the first global symbol.
	symtab := elf.Section64{Type: uint32(elf.SHT_SYMTAB), Off: end(), Size: uint64(len(symbols)) * 24,
		Link: uint32(len(headers.list) + 1), Info: uint32(locals), Addralign: 8, Entsize: 24}
	put(&tail, symbols)
	headers.add(".symtab", symtab)
	headers.add(".strtab", elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: end(), Size: uint64(symNames.Len()),
		Addralign: 1})
	tail.Write(symNames.Bytes())
	// Offsets follow from sizes: no name may be added after the size of .shstrtab is taken.
	own := headers.names.add(".shstrtab") // before its size is taken
	headers.list = append(headers.list, elf.Section64{Name: own, Type: uint32(elf.SHT_STRTAB), Off: end(),
		Size: uint64(headers.names.Len()), Addralign: 1})
	tail.Write(headers.names.Bytes())
	tail.Write(make([]byte, -int(end())&7))
	shoff := end()
	put(&tail, headers.list)

	// The ELF header and program headers fit below firstAddr.
	progs := l.programHeaders()
	var head bytes.Buffer
	put(&head, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Shoff: shoff, Ehsize: 64, Phentsize: 56, Phnum: uint16(len(progs)),
		Shentsize: 64, Shnum: uint16(len(headers.list)), Shstrndx: uint16(len(headers.list) - 1),
	})
	put(&head, progs)
	copy(l.image, head.Bytes())
	return append(l.image, tail.Bytes()...)
}

// addSections adds the headers of the sections that are laid out. It returns the header's
// index of each section of the file, 0 for those left out, and the index of the section of
// stand-ins for undefined symbols, or 0.
func (l *linker) addSections(headers *sectionHeaders) (index []int, undefined int) {
	index = make([]int, len(l.addrs))
	// Headers in the order of the layout.
	for _, seg := range l.segments {
		for _, i := range seg.sections {
			s := l.file.Sections[i]
			index[i] = len(headers.list)
			headers.add(s.Name, elf.Section64{
				// Groups and links do not hold for the new order of sections.
				Type: uint32(s.Type), Flags: uint64(s.Flags &^ (elf.SHF_GROUP | elf.SHF_LINK_ORDER | elf.SHF_INFO_LINK)),
				Addr: l.addrs[i], Off: min(l.addrs[i], l.end),
				Size: s.Size, Addralign: s.Addralign, Entsize: s.Entsize,
			})
		}
		// A section for the names that the file does not define.
		if seg.addedUndefined {
			undefined = len(headers.list)
			headers.add(undefinedSection, elf.Section64{
				Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR),
				Addr: l.undefined, Off: l.undefined, Size: uint64(len(l.names)) * standIn, Addralign: standIn,
			})
		}
		// A global offset table, one slot a symbol.
		if seg.addedGOT {
			headers.add(gotSection, elf.Section64{
				Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_WRITE),
				Addr: l.got, Off: l.got, Size: uint64(len(l.symbols)+1) * slot, Addralign: slot,
			})
		}
	}
	for _, i := range slices.Sorted(maps.Keys(l.debug)) {
		s := l.file.Sections[i]
		headers.add(s.Name, elf.Section64{Type: uint32(s.Type), Off: l.debug[i], Size: s.Size, Addralign: 1,
			Entsize: s.Entsize})
	}
	return index, undefined
}

// symbolTable returns the symbols, local ones first, and the number of those. index and
// undefined are addSections' results.
func (l *linker) symbolTable(names *stringTable, index []int, undefined int) (symbols []elf.Sym64, locals int) {
	symbols = []elf.Sym64{{}}
	var globals []elf.Sym64
	for k := range l.symbols {
		s := &l.symbols[k]
		// Symbols of sections left out, and those without a section, are dropped.
		if int(s.Section) >= len(index) || index[s.Section] == 0 || s.Section == elf.SHN_UNDEF {
			continue
		}
		sym := elf.Sym64{
			Name: names.add(s.Name), Info: s.Info, Other: s.Other, Shndx: uint16(index[s.Section]),
			Value: l.addrs[s.Section] + s.Value, Size: s.Size,
		}
		if elf.ST_BIND(s.Info) == elf.STB_LOCAL {
			symbols = append(symbols, sym)
		} else {
			globals = append(globals, sym)
		}
	}
	// Each undefined name gets an address.
	for k, name := range l.names {
		globals = append(globals, elf.Sym64{
			Name: names.add(name), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: uint16(undefined),
			Value: l.undefined + uint64(k)*standIn, Size: 1,
		})
	}
	return append(symbols, globals...), len(symbols)
}

// programHeaders returns a PT_LOAD for each segment that is not empty.
func (l *linker) programHeaders() (progs []elf.Prog64) {
	for _, seg := range l.segments {
		if seg.memEnd > seg.start {
			progs = append(progs, elf.Prog64{
				Type: uint32(elf.PT_LOAD), Flags: uint32(seg.flags), Off: seg.start, Vaddr: seg.start, Paddr: seg.start,
				Filesz: seg.end - seg.start, Memsz: seg.memEnd - seg.start, Align: 0x1000,
			})
		}
	}
	return progs
}

// put writes fixed-size data.
func put(w *bytes.Buffer, data any) {
	if err := binary.Write(w, binary.LittleEndian, data); err != nil {
		panic(err) // not of fixed size
	}
}
