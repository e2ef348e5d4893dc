package prove

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

var le = binary.LittleEndian

// image is the ELF file around the code, as the loader sees it: through its
// program headers and dynamic section.
type image struct {
	file              []byte
	read              elf.Prog64 // the segment with the data, mapped at address 0
	exec              elf.Prog64 // the segment with the code
	dyn               []byte
	dynAddr           uint64
	segments          []elf.Prog64 // PT_LOAD
	hdrAddr           uint64       // .eh_frame_hdr
	hdrSize           uint64
	frameAddr         uint64 // .eh_frame, which .eh_frame_hdr names
	frameSize         uint64
	fdes              []ownFDE
	hashSize, gnuSize uint64 // of DT_HASH and DT_GNU_HASH
	noteAddr          uint64 // PT_NOTE
	noteSize          uint64
	sites             []byte // the table of sites, of whose content nothing is claimed; nil: none
	sitesAddr         uint64
	gnuNotes          uint64 // bytes of notes before the first that is ehasm's
	note              abi.Note
	cover             func(addr, n uint64) // called with the data and code that a proof uses; may be nil
	symbols           map[string]elf.Sym64
	tags              map[elf.DynTag]uint64
}

// errImage is wrapped by errors about the ELF file around the code.
var errImage = errors.New("a loader would not map the file as expected")

func imageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errImage, fmt.Sprintf(format, args...))
}

const (
	ehdrSize = 64
	phdrSize = 56
	shdrSize = 64
	pageSize = 4096
)

// openImage reads and checks the ELF file.
func openImage(file []byte) (*image, error) {
	im := &image{file: file}
	for _, check := range []func() error{im.header, im.programHeaders, im.dynamic, im.dynamicSymbols, im.hashes, im.notes, im.frames, im.symbolSizes, im.sections} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return im, nil
}

// header checks the ELF header (gABI figure 4-3).
func (im *image) header() error {
	b := im.file
	if len(b) < ehdrSize {
		return imageError("%d bytes", len(b))
	}
	want := make([]byte, 16)
	copy(want, elf.ELFMAG)
	want[elf.EI_CLASS], want[elf.EI_DATA], want[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	switch {
	case !bytes.Equal(b[:16], want):
		return imageError("identification % x", b[:16])
	case le.Uint16(b[16:]) != uint16(elf.ET_DYN) || le.Uint16(b[18:]) != uint16(elf.EM_X86_64) || le.Uint32(b[20:]) != uint32(elf.EV_CURRENT):
		return imageError("not a shared object of x86-64")
	case le.Uint64(b[24:]) != 0 || le.Uint64(b[32:]) != ehdrSize || le.Uint32(b[48:]) != 0:
		return imageError("entry point, program headers or flags")
	case le.Uint16(b[52:]) != ehdrSize || le.Uint16(b[54:]) != phdrSize || le.Uint16(b[58:]) != shdrSize:
		return imageError("sizes of headers")
	}
	return nil
}

// at returns the bytes of the data segment at an address, or nil if there are none.
func (im *image) at(addr, n uint64) []byte {
	if addr > im.read.Filesz || n > im.read.Filesz-addr {
		return nil
	}
	im.covers(addr, n)
	return im.file[addr : addr+n]
}

func (im *image) covers(addr, n uint64) {
	if im.cover != nil {
		im.cover(addr, n)
	}
}

// text returns the code from an address on.
func (im *image) text(addr uint64) []byte {
	if addr < im.exec.Vaddr || addr-im.exec.Vaddr >= im.exec.Filesz {
		return nil
	}
	return im.file[im.exec.Off+addr-im.exec.Vaddr : im.exec.Off+im.exec.Filesz]
}

// programHeaders checks segments and permissions: R for the headers and the data at
// address 0, R+X for the code after, with --relro RW under PT_GNU_RELRO for the
// dynamic section alone, and a stack without X.
func (im *image) programHeaders() error {
	count := uint64(le.Uint16(im.file[56:]))
	if ehdrSize+count*phdrSize > uint64(len(im.file)) {
		return imageError("%d program headers", count)
	}
	aligned := map[elf.ProgType]uint64{elf.PT_LOAD: pageSize, elf.PT_DYNAMIC: 8, elf.PT_NOTE: 4, elf.PT_GNU_EH_FRAME: 4, elf.PT_GNU_STACK: 16, elf.PT_GNU_RELRO: 1}
	seen := map[elf.ProgType]elf.Prog64{}
	for i := range count {
		b := im.file[ehdrSize+i*phdrSize:]
		p := elf.Prog64{Type: le.Uint32(b), Flags: le.Uint32(b[4:]), Off: le.Uint64(b[8:]), Vaddr: le.Uint64(b[16:]),
			Paddr: le.Uint64(b[24:]), Filesz: le.Uint64(b[32:]), Memsz: le.Uint64(b[40:]), Align: le.Uint64(b[48:])}
		if p.Off > uint64(len(im.file)) || p.Filesz > uint64(len(im.file))-p.Off || p.Memsz < p.Filesz || p.Memsz > 1<<32 {
			return imageError("program header %d is outside of the file", i)
		}
		typ := elf.ProgType(p.Type)
		if align, ok := aligned[typ]; !ok || p.Align != align || p.Paddr != p.Vaddr {
			return imageError("program header %d, of type %v", i, typ)
		}
		if typ == elf.PT_LOAD {
			im.segments = append(im.segments, p)
			continue
		}
		if _, twice := seen[typ]; twice {
			return imageError("two program headers of type %v", typ)
		}
		seen[typ] = p
	}
	if len(im.segments) < 2 || len(im.segments) > 3 {
		return imageError("%d segments", len(im.segments))
	}
	im.read, im.exec = im.segments[0], im.segments[1]
	r, x := im.read, im.exec
	end := func(p elf.Prog64) uint64 { return p.Vaddr + p.Memsz }
	for i, p := range im.segments {
		if (p.Vaddr-p.Off)%pageSize != 0 || p.Vaddr > 1<<32 ||
			i > 0 && p.Vaddr&^(pageSize-1) < (end(im.segments[i-1])+pageSize-1)&^(pageSize-1) {
			return imageError("segment %d lies at %#x", i, p.Vaddr)
		}
	}
	if elf.ProgFlag(r.Flags) != elf.PF_R || r.Off != 0 || r.Vaddr != 0 || r.Memsz != r.Filesz || ehdrSize+count*phdrSize > r.Filesz ||
		elf.ProgFlag(x.Flags) != elf.PF_R|elf.PF_X || x.Memsz != x.Filesz || x.Filesz == 0 {
		return imageError("permissions or sizes of the segments")
	}
	dyn, stack, hdr := seen[elf.PT_DYNAMIC], seen[elf.PT_GNU_STACK], seen[elf.PT_GNU_EH_FRAME]
	within := func(p, s elf.Prog64) bool {
		return p.Off >= s.Off && p.Vaddr-s.Vaddr == p.Off-s.Off && p.Off-s.Off+p.Filesz <= s.Filesz && p.Filesz == p.Memsz
	}
	relro, hasRelro := seen[elf.PT_GNU_RELRO]
	home := r
	if len(im.segments) == 3 {
		home = im.segments[2]
		if elf.ProgFlag(home.Flags) != elf.PF_R|elf.PF_W || !hasRelro || elf.ProgFlag(relro.Flags) != elf.PF_R ||
			relro.Off != home.Off || relro.Vaddr != home.Vaddr || relro.Memsz != home.Memsz || relro.Filesz != home.Filesz || end(relro)%pageSize != 0 { // loaders protect whole pages
			return imageError("a writable segment")
		}
		im.dyn = im.file[home.Off : home.Off+home.Filesz]
	} else if hasRelro {
		return imageError("PT_GNU_RELRO without a segment")
	}
	if _, ok := seen[elf.PT_GNU_STACK]; !ok || elf.ProgFlag(stack.Flags) != elf.PF_R|elf.PF_W || stack.Off|stack.Vaddr|stack.Filesz|stack.Memsz != 0 {
		return imageError("PT_GNU_STACK")
	}
	if _, ok := seen[elf.PT_DYNAMIC]; !ok || !within(dyn, home) || dyn.Flags != home.Flags || dyn.Filesz%16 != 0 {
		return imageError("PT_DYNAMIC")
	}
	if _, ok := seen[elf.PT_GNU_EH_FRAME]; !ok || !within(hdr, r) || elf.ProgFlag(hdr.Flags) != elf.PF_R {
		return imageError("PT_GNU_EH_FRAME")
	}
	note, ok := seen[elf.PT_NOTE]
	if !ok || !within(note, r) || elf.ProgFlag(note.Flags) != elf.PF_R {
		return imageError("PT_NOTE")
	}
	im.dyn, im.dynAddr = im.file[dyn.Off:dyn.Off+dyn.Filesz], dyn.Vaddr
	im.hdrAddr, im.hdrSize = hdr.Vaddr, hdr.Filesz
	im.noteAddr, im.noteSize = note.Vaddr, note.Filesz
	return im.noteSegment(im.file[note.Off : note.Off+note.Filesz])
}

// dynamic checks the dynamic section: a name, a symbol table with both hashes, and
// nothing else, so that the loader relocates and runs nothing.
func (im *image) dynamic() error {
	im.tags = map[elf.DynTag]uint64{}
	ended := false
	for b := im.dyn; len(b) > 0; b = b[16:] {
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
		if _, twice := im.tags[tag]; twice {
			return imageError("%v twice", tag)
		}
		im.tags[tag] = v
	}
	if !ended {
		return imageError("no DT_NULL")
	}
	known := []elf.DynTag{elf.DT_SONAME, elf.DT_HASH, elf.DT_GNU_HASH, elf.DT_STRTAB, elf.DT_SYMTAB, elf.DT_STRSZ, elf.DT_SYMENT}
	for _, tag := range known {
		if _, ok := im.tags[tag]; !ok {
			return imageError("no %v", tag)
		}
	}
	for tag := range im.tags {
		if !slices.Contains(known, tag) {
			return imageError("a dynamic entry of type %v", tag)
		}
	}
	if im.tags[elf.DT_SYMENT] != elf.Sym64Size {
		return imageError("DT_SYMENT")
	}
	return nil
}

// noteSegment reads the identity.
func (im *image) noteSegment(b []byte) error {
	found, ours := false, false
	for len(b) > 0 {
		if len(b) < 12 {
			return imageError("a truncated note")
		}
		nameSize, descSize, typ := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		descOff := 12 + (nameSize+3)&^3
		end := descOff + (descSize+3)&^3
		if end > uint64(len(b)) {
			return imageError("a truncated note")
		}
		name, desc := string(b[12:12+nameSize]), b[descOff:descOff+descSize]
		b = b[end:]
		if ours = ours || name == abi.NoteOwner+"\x00"; !ours {
			im.gnuNotes += end
		}
		switch {
		case name == "GNU\x00" && typ == 3 && len(desc) == 20:
		case name == abi.NoteOwner+"\x00" && typ == abi.NoteBuild:
		case name == abi.NoteOwner+"\x00" && typ == abi.NoteSites && found && im.sites == nil: // readers need the flag before
			if err := im.siteNote(desc); err != nil {
				return err
			}
		case name == abi.NoteOwner+"\x00" && typ == abi.NoteIdentity && !found:
			note, err := abi.ParseNote(desc)
			if err != nil {
				return fmt.Errorf("%w: %w", errImage, err)
			}
			im.note, found = note, true
		default:
			return imageError("a note %q of type %d", name, typ)
		}
	}
	if !found {
		return imageError("no identity note")
	}
	return nil
}

// siteNote checks where the table of sites lies: readers take nothing from outside the data.
func (im *image) siteNote(desc []byte) error {
	if len(desc) != abi.SitesNoteSize || im.note.Flags&abi.FlagSites == 0 {
		return imageError("the note of the sites")
	}
	n := abi.SitesNote{Version: abi.SitesVersion, Addr: le.Uint64(desc[8:]), Size: le.Uint64(desc[16:])}
	if im.sites = im.at(n.Addr, n.Size); !bytes.Equal(desc, n.Bytes()) || n.Size == 0 || im.sites == nil {
		return imageError("a table of sites of %d bytes at %#x", n.Size, n.Addr)
	}
	im.sitesAddr = n.Addr
	return nil
}

func (im *image) notes() error {
	if im.note.Flags&^(abi.FlagNoDeref|abi.FlagPacked|abi.FlagSites) != 0 {
		return imageError("flags %#x of the note, which are not known here", im.note.Flags)
	}
	return nil
}

// sym decodes entry i of the dynamic symbol table.
func (im *image) sym(i uint32) (elf.Sym64, bool) {
	b := im.at(im.tags[elf.DT_SYMTAB]+uint64(i)*elf.Sym64Size, elf.Sym64Size)
	if b == nil {
		return elf.Sym64{}, false
	}
	return elf.Sym64{Name: le.Uint32(b), Info: b[4], Other: b[5], Shndx: le.Uint16(b[6:]), Value: le.Uint64(b[8:]), Size: le.Uint64(b[16:])}, true
}

func (im *image) name(off uint32) (string, bool) {
	size := im.tags[elf.DT_STRSZ]
	b := im.at(im.tags[elf.DT_STRTAB], size)
	if b == nil || uint64(off) >= size {
		return "", false
	}
	end := bytes.IndexByte(b[off:], 0)
	if end < 0 {
		return "", false
	}
	return string(b[off : int(off)+end]), true
}

// exports are the functions of the file.
var exports = []string{abi.SymbolStep, abi.SymbolWalk, abi.SymbolChain}

// dynamicSymbols looks the exports up as loaders do, through both hashes.
func (im *image) dynamicSymbols() error {
	soname, ok := im.name(uint32(im.tags[elf.DT_SONAME]))
	object, isEHElf := strings.CutSuffix(soname, abi.Suffix)
	if !ok || im.tags[elf.DT_SONAME] > 1<<31 || !isEHElf || object == "" || strings.Contains(object, "/") {
		return imageError("DT_SONAME %q, which is not NAME%s: the loader would take the file for another library", soname, abi.Suffix)
	}
	im.symbols = map[string]elf.Sym64{}
	for _, name := range exports {
		for _, lookup := range []func(string) (uint32, error){im.sysvLookup, im.gnuLookup} {
			i, err := lookup(name)
			if err != nil {
				return err
			}
			s, _ := im.sym(i)
			if before, ok := im.symbols[name]; ok && before != s {
				return imageError("the hashes lead to two symbols %s", name)
			}
			im.symbols[name] = s
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC || elf.ST_BIND(s.Info) != elf.STB_GLOBAL || s.Other != 0 || s.Shndx == 0 ||
				s.Shndx >= uint16(elf.SHN_LORESERVE) || im.text(s.Value) == nil || s.Size > im.exec.Filesz-(s.Value-im.exec.Vaddr) {
				return imageError("symbol %s", name)
			}
		}
	}
	return nil
}

// sysvLookup returns the lookup through DT_HASH (gABI chapter 5).
func (im *image) sysvLookup(name string) (uint32, error) {
	h := sysvHash(name)
	word := func(i uint64) (uint32, bool) {
		b := im.at(im.tags[elf.DT_HASH]+4*i, 4)
		if b == nil {
			return 0, false
		}
		return le.Uint32(b), true
	}
	buckets, ok1 := word(0)
	chains, ok2 := word(1)
	if !ok1 || !ok2 || buckets == 0 || chains != uint32(len(exports))+1 {
		return 0, imageError("DT_HASH")
	}
	i, ok := word(2 + uint64(h%buckets))
	for range chains {
		if !ok || i == 0 || i >= chains {
			break
		}
		if s, ok := im.sym(i); ok {
			if n, ok := im.name(s.Name); ok && n == name {
				return i, nil
			}
		}
		i, ok = word(2 + uint64(buckets) + uint64(i))
	}
	return 0, imageError("DT_HASH does not lead to %s", name)
}

// gnuLookup returns the lookup through DT_GNU_HASH, its filter included.
func (im *image) gnuLookup(name string) (uint32, error) {
	h := gnuHash(name)
	base := im.tags[elf.DT_GNU_HASH]
	bad := imageError("DT_GNU_HASH does not lead to %s", name)
	hdr := im.at(base, 16)
	if hdr == nil {
		return 0, bad
	}
	buckets, first, words, shift := le.Uint32(hdr), le.Uint32(hdr[4:]), le.Uint32(hdr[8:]), le.Uint32(hdr[12:])
	if buckets == 0 || words == 0 || words&(words-1) != 0 || shift > 31 || buckets > 64 || words > 64 || first == 0 {
		return 0, bad
	}
	filter := im.at(base+16+8*uint64(h/64&(words-1)), 8)
	bucket := im.at(base+16+8*uint64(words)+4*uint64(h%buckets), 4)
	if filter == nil || bucket == nil {
		return 0, bad
	}
	if f := le.Uint64(filter); f>>(h%64)&1 == 0 || f>>(h>>shift%64)&1 == 0 {
		return 0, bad
	}
	for i := le.Uint32(bucket); i >= first && i < 64; i++ {
		b := im.at(base+16+8*uint64(words)+4*uint64(buckets)+4*uint64(i-first), 4)
		if b == nil {
			break
		}
		c := le.Uint32(b)
		if c|1 == h|1 {
			if s, ok := im.sym(i); ok {
				if n, ok := im.name(s.Name); ok && n == name {
					return i, nil
				}
			}
		}
		if c&1 != 0 {
			break
		}
	}
	return 0, bad
}
