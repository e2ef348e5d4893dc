package prove

import (
	"cmp"
	"debug/elf"
	"maps"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// This file checks section headers, if there are any. No loader reads them, but gdb and perf do, and take from them
// what is code and what a symbol's name is.

// section is the expected content of a section header.
type section struct {
	typ              elf.SectionType
	flags            elf.SectionFlag
	align            uint64
	entsize          uint64
	link             string
	info             uint32
	addr, size       uint64 // where known
	isKnown          bool
	needed, unmapped bool // in every file with section headers; in no segment
}

// expectedSections returns the headers that a file may have, by name.
func (im *image) expectedSections() map[string]section {
	const a = elf.SHF_ALLOC
	dyn := section{typ: elf.SHT_DYNAMIC, flags: a, align: 8, entsize: 16, link: ".dynstr", addr: im.dynamic.addr,
		size: uint64(len(im.dynamic.b)), isKnown: true, needed: true}
	list := map[string]section{
		// Readers that use sections find the same notes as in the segment.
		".note.gnu.build-id": {typ: elf.SHT_NOTE, flags: a, align: 4, addr: im.notes.addr, size: im.notes.foreign,
			isKnown: true, needed: im.notes.foreign > 0},
		".note.ehasm": {typ: elf.SHT_NOTE, flags: a, align: 4, addr: im.notes.addr + im.notes.foreign,
			size: im.notes.size - im.notes.foreign, isKnown: true, needed: true},
		".gnu.hash": {typ: elf.SHT_GNU_HASH, flags: a, align: 8, link: ".dynsym",
			addr: im.dynamic.tags[elf.DT_GNU_HASH], size: im.dynamic.gnuHash, isKnown: true, needed: true},
		".hash": {typ: elf.SHT_HASH, flags: a, align: 8, entsize: 4, link: ".dynsym",
			addr: im.dynamic.tags[elf.DT_HASH], size: im.dynamic.hash, isKnown: true, needed: true},
		".dynsym": {typ: elf.SHT_DYNSYM, flags: a, align: 8, entsize: elf.Sym64Size, link: ".dynstr", info: 1,
			addr: im.dynamic.tags[elf.DT_SYMTAB],
			size: elf.Sym64Size * (uint64(len(exports)) + 1), isKnown: true, needed: true},
		".dynstr": {typ: elf.SHT_STRTAB, flags: a, align: 1, addr: im.dynamic.tags[elf.DT_STRTAB],
			size: im.dynamic.tags[elf.DT_STRSZ], isKnown: true, needed: true},
		".eh_frame_hdr": {typ: elf.SHT_PROGBITS, flags: a, align: 4, addr: im.hdr.addr, size: im.hdr.size, isKnown: true,
			needed: true},
		".eh_frame": {typ: elf.SHT_PROGBITS, flags: a, align: 8, addr: im.frames.addr, size: im.frames.size,
			isKnown: true, needed: true},
		".rodata": {typ: elf.SHT_PROGBITS, flags: a, align: 64},
		abi.SitesSection: {typ: elf.SHT_PROGBITS, flags: a, align: 8, addr: im.notes.sitesAddr,
			size: uint64(len(im.notes.sites)), isKnown: true, needed: im.notes.sites != nil},
		".text": {typ: elf.SHT_PROGBITS, flags: a | elf.SHF_EXECINSTR, align: 64, addr: im.exec.Vaddr,
			size: im.exec.Filesz, isKnown: true, needed: true},
		".symtab":   {typ: elf.SHT_SYMTAB, align: 8, entsize: elf.Sym64Size, link: ".strtab", info: 1, unmapped: true},
		".strtab":   {typ: elf.SHT_STRTAB, align: 1, unmapped: true},
		".shstrtab": {typ: elf.SHT_STRTAB, align: 1, unmapped: true},
	}
	if len(im.segments) == 3 {
		dyn.flags |= elf.SHF_WRITE
		dyn.align = uint64(len(im.dynamic.b))
		w := im.segments[2]
		list[".padding"] = section{typ: elf.SHT_NOBITS, flags: a | elf.SHF_WRITE, align: 1, addr: w.Vaddr + w.Filesz,
			size: w.Memsz - w.Filesz, isKnown: true}
	}
	list[".dynamic"] = dyn
	return list
}

// headerTable is the table of section headers (gABI figure 4-8).
type headerTable struct {
	file    []byte
	off     uint64 // of the table in the file
	count   uint64
	headers map[string]elf.Section64 // by name
	index   map[string]uint64        // numbers of the sections, by name; "" is 0
}

// header decodes header i.
// As everywhere in this file, sizes have been compared with the file's.
func (h *headerTable) header(i uint64) elf.Section64 {
	b := h.file[h.off+shdrSize*i:]
	return elf.Section64{Name: le.Uint32(b), Type: le.Uint32(b[4:]), Flags: le.Uint64(b[8:]), Addr: le.Uint64(b[16:]),
		Off:  le.Uint64(b[24:]),
		Size: le.Uint64(b[32:]), Link: le.Uint32(b[40:]), Info: le.Uint32(b[44:]), Addralign: le.Uint64(b[48:]),
		Entsize: le.Uint64(b[56:])}
}

// content returns the bytes of a section in the file, nil if it lies outside.
func (h *headerTable) content(s elf.Section64) []byte {
	if size := uint64(len(h.file)); s.Off > size || s.Size > size-s.Off {
		return nil
	}
	return h.file[s.Off : s.Off+s.Size]
}

// readHeaders reads the section headers by their names, each of which there is once. has is false if there are none.
func (im *image) readHeaders() (h headerTable, has bool, err error) {
	shoff, count, names := le.Uint64(im.file[40:]), uint64(le.Uint16(im.file[60:])), uint64(le.Uint16(im.file[62:]))
	size := uint64(len(im.file))
	h = headerTable{im.file, shoff, count, map[string]elf.Section64{}, map[string]uint64{}}
	if count == 0 && shoff == 0 && names == 0 {
		return h, false, nil
	}
	// elfout writes at most 17; the bound keeps a hostile table small.
	if count == 0 || shoff > size || shoff%8 != 0 || count > 64 || shdrSize*count > size-shoff || names == 0 ||
		names >= count ||
		!zero(im.file[shoff:shoff+shdrSize]) {
		return h, true, imageError("section headers")
	}
	nameTable := h.content(h.header(names))
	if none, ok := textAt(nameTable, 0); !ok || none != "" {
		return h, true, imageError(".shstrtab")
	}
	for i := uint64(1); i < count; i++ {
		s := h.header(i)
		name, ok := textAt(nameTable, s.Name)
		if _, twice := h.headers[name]; !ok || twice {
			return h, true, imageError("the name of section %d", i)
		}
		h.headers[name], h.index[name] = s, i
	}
	if h.index[".shstrtab"] != names {
		return h, true, imageError(".shstrtab")
	}
	return h, true, nil
}

// checkSections checks the section headers, from which debuggers and profilers take
// addresses: they agree with what has been shown of the segments, and .symtab has the
// same exports as .dynsym. A file may have no section headers; it may be stripped.
func (im *image) checkSections() error {
	h, has, err := im.readHeaders()
	if err != nil {
		return err
	}
	if !has {
		return im.behind(nil)
	}
	expected := im.expectedSections()
	for name, want := range expected {
		if _, ok := h.headers[name]; want.needed && !ok {
			return imageError("no section %s", name)
		}
	}
	var read []elf.Section64 // of the segment with the data
	unmapped := []elf.Section64{{Off: h.off, Size: shdrSize * h.count, Addralign: 8}}
	for _, name := range slices.Sorted(maps.Keys(h.headers)) {
		// Debuggers trust these fields more than program headers, so each must be exact.
		s := h.headers[name]
		want, ok := expected[name]
		if !ok || !want.describes(s) || uint64(s.Link) != h.index[want.link] || !im.inPlace(s, want) {
			return imageError("section %s", strings.ToValidUTF8(name, "?"))
		}
		if want.typ != elf.SHT_NOBITS && h.content(s) == nil {
			return imageError("section %s is outside of the file", name)
		}
		switch {
		case want.unmapped:
			unmapped = append(unmapped, s)
		case want.flags == elf.SHF_ALLOC:
			read = append(read, s)
		}
	}
	if err := im.sideBySide(read); err != nil {
		return err
	}
	if err := im.behind(unmapped); err != nil {
		return err
	}
	for _, s := range im.dynamic.symbols {
		if uint64(s.Shndx) != h.index[".text"] {
			return imageError("the section of a symbol")
		}
	}
	if s, ok := h.headers[".symtab"]; ok {
		if _, ok := h.headers[".strtab"]; !ok {
			return imageError("no section .strtab")
		}
		return im.checkSymtab(h.content(s), h.content(h.headers[".strtab"]))
	}
	return nil
}

// describes reports whether a header is as expected, apart from its place in the file.
func (want *section) describes(h elf.Section64) bool {
	return elf.SectionType(h.Type) == want.typ && elf.SectionFlag(h.Flags) == want.flags && h.Addralign == want.align &&
		h.Entsize == want.entsize && h.Info == want.info &&
		(!want.isKnown || h.Addr == want.addr && h.Size == want.size) && (!want.unmapped || h.Addr == 0)
}

// inPlace reports whether a section lies in the file where its segment has it.
func (im *image) inPlace(h elf.Section64, want section) bool {
	switch {
	case want.typ == elf.SHT_NOBITS:
		return h.Off == im.segments[2].Off+im.segments[2].Filesz
	case want.unmapped: // behind all segments
		return !slices.ContainsFunc(im.segments, func(p elf.Prog64) bool { return h.Off < p.Off+p.Filesz })
	case want.flags&elf.SHF_EXECINSTR != 0:
		return h.Off == im.exec.Off
	case want.flags&elf.SHF_WRITE != 0:
		return h.Off == im.segments[2].Off
	}
	return h.Off == h.Addr // the segment begins at address 0
}

// sideBySide checks that the sections of the data lie side by side from the headers to the end of the segment, so
// that the size of each is right.
func (im *image) sideBySide(read []elf.Section64) error {
	slices.SortFunc(read, func(a, b elf.Section64) int { // an empty one comes first
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Size, b.Size))
	})
	end := ehdrSize + uint64(le.Uint16(im.file[56:]))*phdrSize
	for _, h := range read {
		if h.Off != (end+h.Addralign-1)&^(h.Addralign-1) {
			return imageError("the sections of the data")
		}
		end = h.Off + h.Size
	}
	if end != im.read.Filesz {
		return imageError("the sections end at %#x, their segment at %#x", end, im.read.Filesz)
	}
	return nil
}

// behind checks that only unmapped, the parts of the file in no segment, lies behind the last segment, and
// zeros to align them.
func (im *image) behind(unmapped []elf.Section64) error {
	last := im.segments[len(im.segments)-1]
	end := last.Off + last.Filesz
	slices.SortFunc(unmapped, func(a, b elf.Section64) int { return cmp.Compare(a.Off, b.Off) })
	for _, h := range unmapped {
		if h.Off != (end+h.Addralign-1)&^(h.Addralign-1) || !zero(im.file[end:h.Off:h.Off]) {
			return imageError("the bytes from %#x to %#x belong to nothing", end, h.Off)
		}
		end = h.Off + h.Size
	}
	if rest := uint64(len(im.file)) - end; rest != 0 {
		return imageError("%d bytes behind its end at %#x", rest, end)
	}
	return nil
}

// checkSymtab compares .symtab with the dynamic symbols.
func (im *image) checkSymtab(b, names []byte) error {
	if len(b) != elf.Sym64Size*(len(exports)+1) || !zero(b[:elf.Sym64Size]) || len(names) == 0 || names[0] != 0 {
		return imageError(".symtab")
	}
	seen := map[string]bool{}
	for b = b[elf.Sym64Size:]; len(b) > 0; b = b[elf.Sym64Size:] {
		name, ok := textAt(names, le.Uint32(b))
		want, exported := im.dynamic.symbols[name]
		got := elf.Sym64{Name: want.Name, Info: b[4], Other: b[5], Shndx: le.Uint16(b[6:]), Value: le.Uint64(b[8:]),
			Size: le.Uint64(b[16:])}
		if !ok || !exported || seen[name] || got != want {
			return imageError("the symbol %s of .symtab", strings.ToValidUTF8(name, "?"))
		}
		seen[name] = true
	}
	return nil
}
