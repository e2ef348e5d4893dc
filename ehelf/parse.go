package ehelf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// ELF64 numbers (gABI chapters 4 and 5). This package does not use debug/elf: it
// reads an eh_elf as a loader does, through program headers, from untrusted
// bytes.
const (
	ehdrSize = 64
	phdrSize = 56
	symSize  = 24
	dynSize  = 16

	typeDyn     = 3  // ET_DYN
	machineX86  = 62 // EM_X86_64
	ptLoad      = 1
	ptDynamic   = 2
	ptNote      = 4
	ptRelro     = 0x6474e552 // PT_GNU_RELRO (LSB 5.0 Core, 12.1.3)
	pfX         = 1
	pfW         = 2
	pfR         = 4
	sttFunc     = 2
	ntBuildID   = 3       // NT_GNU_BUILD_ID
	maxPhdrs    = 64      // an eh_elf has fewer than ten
	maxSpan     = 1 << 32 // bytes of address space
	hostPage    = 0x1000
	maxNameSize = 64 // longer than any name looked up
)

// Tags of the dynamic section (gABI figure 5-10).
const (
	dtNull     = 0
	dtNeeded   = 1
	dtHash     = 4
	dtStrtab   = 5
	dtSymtab   = 6
	dtRela     = 7
	dtStrsz    = 10
	dtSyment   = 11
	dtInit     = 12
	dtRel      = 17
	dtTextrel  = 22
	dtJmprel   = 23
	dtInitArr  = 25
	dtRelr     = 36
	dtFlags    = 30
	flgTextrel = 4 // DF_TEXTREL
)

// segment is a PT_LOAD; all of it comes from the file.
type segment struct {
	addr, size uint64 // link-time address, bytes
	off        uint64 // file offset
	exec       bool
}

// layout is the result of parse.
type layout struct {
	segments []segment // ascending, no two on one page
	span     uint64    // bytes from address 0 to the end of the last, whole pages
	note     abi.Note
	buildID  []byte
	step     uint64 // link-time address of _eh_elf
	walk     uint64 // link-time address of _eh_elf_walk
	chain    uint64 // link-time address of abi.SymbolChain, 0: none
}

// phdr is a program header: file offset, link-time address, bytes in the file and in memory.
type phdr struct {
	typ, flags               uint32
	off, addr, filesz, memsz uint64
}

// bad returns an error around ErrNotEhElf.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrNotEhElf, fmt.Sprintf(format, args...))
}

// parse checks image and finds the parts that EhElf needs.
func parse(image []byte) (*layout, error) {
	phdrs, err := readPhdrs(image)
	if err != nil {
		return nil, err
	}
	l := &layout{}
	var dynamic []byte
	var relro phdr
	// The relro segment has to be known before the writable one that must lie in it, whatever their
	// order.
	for _, p := range phdrs {
		if p.typ == ptRelro {
			relro = p
		}
	}
	for i, p := range phdrs {
		if p.typ != ptLoad && p.typ != ptDynamic && p.typ != ptNote {
			continue
		}
		if p.off > uint64(len(image)) || p.filesz > uint64(len(image))-p.off {
			return nil, bad("segment %d: %#x bytes at %#x in a file of %#x", i, p.filesz, p.off, len(image))
		}
		content := image[p.off : p.off+p.filesz]
		switch p.typ {
		case ptLoad:
			err = l.addSegment(p, relro)
		case ptDynamic:
			dynamic = content
		case ptNote:
			err = l.readNotes(content)
		}
		if err != nil {
			return nil, fmt.Errorf("segment %d: %w", i, err)
		}
	}
	if l.note.Version == 0 {
		return nil, bad("no identity note")
	}
	if len(l.segments) == 0 {
		return nil, bad("no loadable segment")
	}
	if err := l.findFunctions(image, dynamic); err != nil {
		return nil, err
	}
	return l, nil
}

// readPhdrs reads the ELF header and the program headers.
func readPhdrs(image []byte) ([]phdr, error) {
	le := binary.LittleEndian
	if len(image) < ehdrSize || string(image[:4]) != "\x7fELF" {
		return nil, bad("no ELF header")
	}
	if image[4] != 2 || image[5] != 1 || le.Uint16(image[18:]) != machineX86 {
		return nil, bad("not a little-endian ELF64 file for x86-64")
	}
	if le.Uint16(image[16:]) != typeDyn {
		return nil, bad("not a shared object")
	}
	off, entsize, n := le.Uint64(image[32:]), le.Uint16(image[54:]), uint64(le.Uint16(image[56:]))
	if entsize != phdrSize || n > maxPhdrs {
		return nil, bad("%d program headers of %d bytes", n, entsize)
	}
	if off > uint64(len(image)) || n*phdrSize > uint64(len(image))-off {
		return nil, bad("program headers at %#x in a file of %#x bytes", off, len(image))
	}
	phdrs := make([]phdr, n)
	for i := range phdrs {
		b := image[off+uint64(i)*phdrSize:]
		phdrs[i] = phdr{
			typ: le.Uint32(b), flags: le.Uint32(b[4:]), off: le.Uint64(b[8:]),
			addr: le.Uint64(b[16:]), filesz: le.Uint64(b[32:]), memsz: le.Uint64(b[40:]),
		}
	}
	return phdrs, nil
}

// addSegment checks a PT_LOAD whose file range is valid. A writable one must lie
// in relro, as in a file made for dlopen of glibc before 2.35: it is writable
// only for a loader that relocates it, and this one does not.
func (l *layout) addSegment(p, relro phdr) error {
	writable := p.flags&pfW != 0
	switch {
	case p.flags&pfR == 0:
		return bad("not readable")
	case p.filesz == 0 || p.addr >= maxSpan || p.memsz > maxSpan-p.addr:
		return bad("%#x bytes at %#x", p.memsz, p.addr)
	case writable && (p.flags&pfX != 0 || !p.within(relro)):
		return bad("writable")
	case p.memsz != p.filesz && !(writable && p.memsz > p.filesz && pageUp(p.addr+p.memsz) == pageUp(p.addr+p.filesz)):
		return bad("%#x bytes of memory for %#x of file", p.memsz, p.filesz)
	case p.addr&^(hostPage-1) < l.span:
		return bad("at %#x, on or below a page of the one before", p.addr)
	}
	l.segments = append(l.segments, segment{addr: p.addr, size: p.filesz, off: p.off, exec: p.flags&pfX != 0})
	l.span = pageUp(p.addr + p.memsz)
	return nil
}

// within reports whether the memory of p is part of q's.
func (p phdr) within(q phdr) bool {
	return p.addr >= q.addr && p.addr-q.addr <= q.memsz && p.memsz <= q.memsz-(p.addr-q.addr)
}

// pageUp rounds an address up to whole pages.
func pageUp(addr uint64) uint64 { return (addr + hostPage - 1) &^ (hostPage - 1) }

// readNotes takes the identity and the build-id from a PT_NOTE segment.
func (l *layout) readNotes(b []byte) error {
	const header, align = 12, 4
	le := binary.LittleEndian
	for len(b) >= header {
		nameSize, descSize, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		b = b[header:]
		descOff := (nameSize + align - 1) &^ (align - 1)
		if descOff+descSize > uint64(len(b)) {
			return bad("note of %d+%d bytes in %d", nameSize, descSize, len(b))
		}
		owner, desc := string(bytes.TrimSuffix(b[:nameSize], []byte{0})), b[descOff:descOff+descSize]
		switch {
		case owner == abi.NoteOwner && typ == abi.NoteIdentity:
			note, err := abi.ParseNote(desc)
			if err != nil && len(desc) >= 4 && note.Version != abi.Version {
				return fmt.Errorf("%w %d, want %d", ErrVersion, note.Version, abi.Version)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", ErrNotEhElf, err)
			}
			l.note = note
		case owner == "GNU" && typ == ntBuildID:
			l.buildID = bytes.Clone(desc)
		}
		b = b[min(descOff+(descSize+align-1)&^(align-1), uint64(len(b))):]
	}
	return nil
}

// at returns the size bytes of image that are mapped readable at addr.
func (l *layout) at(image []byte, addr, size uint64) ([]byte, bool) {
	for _, s := range l.segments {
		if addr >= s.addr && addr-s.addr <= s.size && size <= s.size-(addr-s.addr) {
			off := s.off + addr - s.addr
			return image[off : off+size], true
		}
	}
	return nil, false
}

// findFunctions looks the two exported functions up in the dynamic symbols.
func (l *layout) findFunctions(image, dynamic []byte) error {
	d, err := readDynamic(dynamic)
	if err != nil {
		return err
	}
	symbols, names, err := d.tables(l, image)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	for ; len(symbols) > 0; symbols = symbols[symSize:] {
		nameOff, info, shndx := uint64(le.Uint32(symbols)), symbols[4], le.Uint16(symbols[6:])
		if nameOff >= uint64(len(names)) || info&0xf != sttFunc || shndx == 0 {
			continue
		}
		name := names[nameOff:min(nameOff+maxNameSize, uint64(len(names)))]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		addr := le.Uint64(symbols[8:])
		switch string(name) {
		case abi.SymbolStep:
			l.step = addr
		case abi.SymbolWalk:
			l.walk = addr
		case abi.SymbolChain:
			l.chain = addr
		default:
			continue
		}
		if !l.executable(addr) {
			return bad("%s at %#x is not in executable memory", name, addr)
		}
	}
	var missing []string
	if l.step == 0 {
		missing = append(missing, abi.SymbolStep)
	}
	if l.walk == 0 {
		missing = append(missing, abi.SymbolWalk)
	}
	if missing != nil {
		return bad("does not export %s", strings.Join(missing, " and "))
	}
	return nil
}

// dynamicEntries are the entries of a dynamic section that say where its symbols are: gABI chapter 5, "Dynamic
// Section".
type dynamicEntries struct{ hash, strtab, symtab, strsz, syment uint64 }

// readDynamic reads the dynamic section. It refuses entries that ask for work of a dynamic linker.
func readDynamic(list []byte) (e dynamicEntries, err error) {
	le := binary.LittleEndian
	e.syment = symSize
	for ; len(list) >= dynSize; list = list[dynSize:] {
		tag, val := le.Uint64(list), le.Uint64(list[8:])
		switch tag {
		case dtNull:
			return e, nil
		case dtHash:
			e.hash = val
		case dtStrtab:
			e.strtab = val
		case dtSymtab:
			e.symtab = val
		case dtStrsz:
			e.strsz = val
		case dtSyment:
			e.syment = val
		case dtNeeded, dtRela, dtRel, dtRelr, dtJmprel, dtInit, dtInitArr, dtTextrel:
			return e, bad("dynamic section: tag %d: needs a dynamic linker", tag)
		case dtFlags:
			if val&flgTextrel != 0 {
				return e, bad("dynamic section: text relocations")
			}
		}
	}
	return e, nil
}

// tables returns the dynamic symbols and the strings of their names.
func (e *dynamicEntries) tables(l *layout, image []byte) (symbols, names []byte, err error) {
	header, ok := l.at(image, e.hash, 8)
	if e.hash == 0 || !ok || e.syment != symSize {
		return nil, nil, bad("no usable symbol table")
	}
	count := uint64(binary.LittleEndian.Uint32(header[4:])) // nchain is the number of symbols
	if symbols, ok = l.at(image, e.symtab, count*symSize); !ok {
		return nil, nil, bad("%d dynamic symbols at %#x", count, e.symtab)
	}
	if names, ok = l.at(image, e.strtab, e.strsz); !ok {
		return nil, nil, bad("dynamic strings: %#x bytes at %#x", e.strsz, e.strtab)
	}
	return symbols, names, nil
}

// executable reports whether addr lies in an R+X segment.
func (l *layout) executable(addr uint64) bool {
	for _, s := range l.segments {
		if s.exec && addr >= s.addr && addr-s.addr < s.size {
			return true
		}
	}
	return false
}
