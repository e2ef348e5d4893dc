package prove

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ehasm/ehasm/abi"
)

// This file has the parts of the ELF file that the proof reads, and the checks of its headers.

var le = binary.LittleEndian

// image is the ELF file around the code, as the loader sees it: through its
// program headers and dynamic section.
type image struct {
	file     []byte
	segments []elf.Prog64 // PT_LOAD
	read     elf.Prog64   // the segment with the data, mapped at address 0
	exec     elf.Prog64   // the segment with the code
	dynamic  dynamic
	notes    notes
	hdr      span                 // .eh_frame_hdr
	frames   span                 // .eh_frame, which .eh_frame_hdr names
	fdes     []ownFDE             // of .eh_frame, in order of addresses
	cover    func(addr, n uint64) // called with the data and code that a proof uses; may be nil
}

// span is a part of the file: size bytes at addr.
type span struct{ addr, size uint64 }

// dynamic is the dynamic section with what it leads to.
type dynamic struct {
	b             []byte
	addr          uint64
	tags          map[elf.DynTag]uint64 // by tag; each occurs once
	symbols       map[string]elf.Sym64  // the exports
	hash, gnuHash uint64                // bytes of DT_HASH and DT_GNU_HASH
}

// notes is PT_NOTE.
type notes struct {
	span             // where and how large PT_NOTE is
	foreign   uint64 // bytes of notes before the first that is ehasm's
	identity  abi.Note
	sites     []byte // the table of sites, of whose content nothing is claimed; nil: none
	sitesAddr uint64 // address of sites
}

// errImage is wrapped by errors about the ELF file around the code.
var errImage = errors.New("a loader would not map the file as expected")

// imageError returns an error that wraps errImage.
func imageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errImage, fmt.Sprintf(format, args...))
}

// Sizes of ELF structures (gABI chapters 4 and 5), and of a page of x86-64.
const (
	ehdrSize = 64
	phdrSize = 56
	shdrSize = 64
	pageSize = 4096
)

// checkHeader checks the ELF header (gABI figure 4-3). The image is a shared object without an
// entry point; its program headers follow the header.
func (im *image) checkHeader() error {
	b := im.file
	if len(b) < ehdrSize {
		return imageError("%d bytes", len(b))
	}
	want := make([]byte, 16)
	copy(want, elf.ELFMAG)
	want[elf.EI_CLASS], want[elf.EI_DATA], want[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
		byte(elf.EV_CURRENT)
	switch {
	case !bytes.Equal(b[:16], want):
		return imageError("identification % x", b[:16])
	case le.Uint16(b[16:]) != uint16(elf.ET_DYN) || le.Uint16(b[18:]) != uint16(elf.EM_X86_64) ||
		le.Uint32(b[20:]) != uint32(elf.EV_CURRENT):
		return imageError("not a shared object of x86-64")
	case le.Uint64(b[24:]) != 0 || le.Uint64(b[32:]) != ehdrSize || le.Uint32(b[48:]) != 0:
		return imageError("entry point, program headers or flags")
	case le.Uint16(b[52:]) != ehdrSize || le.Uint16(b[54:]) != phdrSize || le.Uint16(b[58:]) != shdrSize:
		return imageError("sizes of headers")
	}
	return nil
}

// at returns the bytes of the data segment at an address, or nil if there are none. Each use is
// reported to cover: a test asks which bytes of a file no proof has looked at.
func (im *image) at(addr, n uint64) []byte {
	if addr > im.read.Filesz || n > im.read.Filesz-addr {
		return nil
	}
	im.covers(addr, n)
	return im.file[addr : addr+n]
}

// covers reports to cover, if there is one, that the proof uses n bytes at an address.
func (im *image) covers(addr, n uint64) {
	if im.cover != nil {
		im.cover(addr, n)
	}
}

// text returns the code from an address of the file to the end of its segment, nil outside of it.
func (im *image) text(addr uint64) []byte {
	if addr < im.exec.Vaddr || addr-im.exec.Vaddr >= im.exec.Filesz {
		return nil
	}
	return im.file[im.exec.Off+addr-im.exec.Vaddr : im.exec.Off+im.exec.Filesz]
}

// within reports whether a part of the file lies in a segment, at the same place in memory and in the file.
func within(p, s elf.Prog64) bool {
	return p.Off >= s.Off && p.Vaddr-s.Vaddr == p.Off-s.Off && p.Off-s.Off+p.Filesz <= s.Filesz && p.Filesz == p.Memsz
}

// programHeader decodes program header i. It refuses types that generated files do not have, alignments other than
// theirs, and parts outside of the file.
func (im *image) programHeader(i uint64) (elf.Prog64, error) {
	b := im.file[ehdrSize+i*phdrSize:]
	p := elf.Prog64{Type: le.Uint32(b), Flags: le.Uint32(b[4:]), Off: le.Uint64(b[8:]), Vaddr: le.Uint64(b[16:]),
		Paddr: le.Uint64(b[24:]), Filesz: le.Uint64(b[32:]), Memsz: le.Uint64(b[40:]), Align: le.Uint64(b[48:])}
	if p.Off > uint64(len(im.file)) || p.Filesz > uint64(len(im.file))-p.Off || p.Memsz < p.Filesz || p.Memsz > 1<<32 {
		return p, imageError("program header %d is outside of the file", i)
	}
	align := map[elf.ProgType]uint64{
		elf.PT_LOAD: pageSize, elf.PT_DYNAMIC: 8, elf.PT_NOTE: 4, elf.PT_GNU_EH_FRAME: 4, elf.PT_GNU_STACK: 16,
		elf.PT_GNU_RELRO: 1,
	}[elf.ProgType(p.Type)]
	if align == 0 || p.Align != align || p.Paddr != p.Vaddr {
		return p, imageError("program header %d, of type %v", i, elf.ProgType(p.Type))
	}
	return p, nil
}

// checkSegments checks that the segments share no page, and that data and code are what they should be. The first
// begins with the headers, of n bytes. Loaders map whole pages, so that two segments in one page would give code write
// permission or data execute permission.
func (im *image) checkSegments(headers uint64) error {
	if len(im.segments) < 2 || len(im.segments) > 3 {
		return imageError("%d segments", len(im.segments))
	}
	im.read, im.exec = im.segments[0], im.segments[1]
	for i, p := range im.segments {
		if (p.Vaddr-p.Off)%pageSize != 0 || p.Vaddr > 1<<32 ||
			i > 0 && p.Vaddr&^(pageSize-1) < (segmentEnd(im.segments[i-1])+pageSize-1)&^(pageSize-1) {
			return imageError("segment %d lies at %#x", i, p.Vaddr)
		}
	}
	r, x := im.read, im.exec
	if elf.ProgFlag(r.Flags) != elf.PF_R || r.Off != 0 || r.Vaddr != 0 || r.Memsz != r.Filesz || headers > r.Filesz ||
		elf.ProgFlag(x.Flags) != elf.PF_R|elf.PF_X || x.Memsz != x.Filesz || x.Filesz == 0 {
		return imageError("permissions or sizes of the segments")
	}
	return nil
}

// segmentEnd returns the address behind a segment in memory.
func segmentEnd(p elf.Prog64) uint64 { return p.Vaddr + p.Memsz }

// dynamicHome returns the segment of the dynamic section: the data, or one for it alone that is read-only
// after relocation.
func (im *image) dynamicHome(seen map[elf.ProgType]elf.Prog64) (elf.Prog64, error) {
	relro, hasRelro := seen[elf.PT_GNU_RELRO]
	if len(im.segments) < 3 {
		if hasRelro {
			return im.read, imageError("PT_GNU_RELRO without a segment")
		}
		return im.read, nil
	}
	home := im.segments[2]
	if elf.ProgFlag(home.Flags) != elf.PF_R|elf.PF_W || !hasRelro || elf.ProgFlag(relro.Flags) != elf.PF_R ||
		relro.Off != home.Off || relro.Vaddr != home.Vaddr || relro.Memsz != home.Memsz || relro.Filesz != home.Filesz ||
		segmentEnd(relro)%pageSize != 0 { // loaders protect whole pages
		return home, imageError("a writable segment")
	}
	return home, nil
}

// readDynamic checks the dynamic section: a name, a symbol table with both hashes, and
// nothing else, so that the loader relocates and runs nothing.
func (im *image) readDynamic() error {
	im.dynamic.tags = map[elf.DynTag]uint64{}
	ended := false
	for b := im.dynamic.b; len(b) > 0; b = b[16:] {
		word, v := le.Uint64(b), le.Uint64(b[8:])
		tag := elf.DynTag(word & (1<<31 - 1))
		if word != uint64(tag) { // an elf.DynTag is an int, of 32 bits on some hosts
			return imageError("a dynamic entry of type %#x", word)
		}
		if tag == elf.DT_NULL {
			ended = true
			if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
				return imageError("entries behind DT_NULL")
			}
			break
		}
		if _, twice := im.dynamic.tags[tag]; twice {
			return imageError("%v twice", tag)
		}
		im.dynamic.tags[tag] = v
	}
	if !ended {
		return imageError("no DT_NULL")
	}
	allowed := []elf.DynTag{elf.DT_SONAME, elf.DT_HASH, elf.DT_GNU_HASH, elf.DT_STRTAB, elf.DT_SYMTAB, elf.DT_STRSZ,
		elf.DT_SYMENT}
	for _, tag := range allowed {
		if _, ok := im.dynamic.tags[tag]; !ok {
			return imageError("no %v", tag)
		}
	}
	for tag := range im.dynamic.tags {
		if !slices.Contains(allowed, tag) {
			return imageError("a dynamic entry of type %v", tag)
		}
	}
	if im.dynamic.tags[elf.DT_SYMENT] != elf.Sym64Size {
		return imageError("DT_SYMENT")
	}
	return nil
}

// siteNote checks where the table of sites lies: readers take nothing from outside the data.
func (im *image) siteNote(desc []byte) error {
	if len(desc) != abi.SitesNoteSize || im.notes.identity.Flags&abi.FlagSites == 0 {
		return imageError("the note of the sites")
	}
	n := abi.SitesNote{Version: abi.SitesVersion, Addr: le.Uint64(desc[8:]), Size: le.Uint64(desc[16:])}
	if im.notes.sites = im.at(n.Addr, n.Size); !bytes.Equal(desc, n.Bytes()) || n.Size == 0 || im.notes.sites == nil {
		return imageError("a table of sites of %d bytes at %#x", n.Size, n.Addr)
	}
	im.notes.sitesAddr = n.Addr
	return nil
}

// sym decodes entry i of the dynamic symbol table.
func (im *image) sym(i uint32) (elf.Sym64, bool) {
	b := im.at(im.dynamic.tags[elf.DT_SYMTAB]+uint64(i)*elf.Sym64Size, elf.Sym64Size)
	if b == nil {
		return elf.Sym64{}, false
	}
	return elf.Sym64{Name: le.Uint32(b), Info: b[4], Other: b[5], Shndx: le.Uint16(b[6:]), Value: le.Uint64(b[8:]),
		Size: le.Uint64(b[16:])}, true
}

// name returns the string at an offset of the dynamic string table, and whether it ends inside the
// table.
func (im *image) name(off uint32) (string, bool) {
	size := im.dynamic.tags[elf.DT_STRSZ]
	b := im.at(im.dynamic.tags[elf.DT_STRTAB], size)
	if b == nil || uint64(off) >= size {
		return "", false
	}
	end := bytes.IndexByte(b[off:], 0)
	if end < 0 {
		return "", false
	}
	return string(b[off : int(off)+end]), true
}

// exports are the functions of the file. No other name may be found in it.
var exports = []string{abi.SymbolStep, abi.SymbolWalk, abi.SymbolChain}

// ownFDE is an entry of the file's .eh_frame. readFrames has checked all but its program.
type ownFDE struct {
	start, end uint64 // link-time addresses in the file
	program    []byte // call frame instructions, DWARF 5 section 6.4.2
}

// zero reports whether bytes exist (b is not nil) and are all 0.
func zero(b []byte) bool {
	return b != nil && !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

// textAt returns the string at an offset of a string table, and whether it ends inside the table.
func textAt(table []byte, off uint32) (string, bool) {
	if uint64(off) >= uint64(len(table)) {
		return "", false
	}
	end := bytes.IndexByte(table[off:], 0)
	if end < 0 {
		return "", false
	}
	return string(table[off : int(off)+end]), true
}
