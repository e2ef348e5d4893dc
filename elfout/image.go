package elfout

import (
	"crypto/sha1"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"ehasm/abi"
	"ehasm/asmgen"
)

var (
	// ErrBadCode is wrapped by errors about an asmgen.Code that contradicts itself.
	ErrBadCode = errors.New("inconsistent code")
	// ErrBadSource is wrapped by errors about a Source that no file can hold.
	ErrBadSource = errors.New("bad source description")
	// ErrTooLarge is returned where the image passes 2 GiB, the reach of a
	// rip-relative displacement.
	ErrTooLarge = errors.New("image larger than 2 GiB")
)

const (
	pageSize     = 0x1000
	codeAlign    = 64 // of Text and Data, see asmgen.Code
	ehdrSize     = 64 // Elf64_Ehdr
	phdrSize     = 56 // Elf64_Phdr
	shdrSize     = 64 // Elf64_Shdr
	sectionAlign = 8  // of the section header table
	numPhdrs     = 6
)

// Source describes the object whose unwind tables were compiled, and how.
type Source struct {
	Name     string   // file name without folders
	BuildID  []byte   // NT_GNU_BUILD_ID; empty where it has none
	FileSize int64    // bytes
	Build    []string // "key=value" lines for the note abi.NoteBuild
}

// Image is a finished eh_elf.
type Image struct {
	code *asmgen.Code
	src  Source

	chunks []*chunk // all sections, in file order
	loaded []*chunk // of those, the ones of the R segment
	notes  []*chunk // of those, the notes, which are adjacent

	text, dynamic, ehFrameHdr, shstrtab *chunk

	readEnd uint64 // file offset of the end of the R segment
	shoff   uint64 // file offset of the section header table
	bytes   []byte
	buildID []byte
}

// New lays the file out and writes it in memory. It applies code.Fixups to the
// image; code itself is not changed.
func New(code *asmgen.Code, src Source) (*Image, error) {
	if err := src.validate(); err != nil {
		return nil, err
	}
	if err := validate(code); err != nil {
		return nil, err
	}
	im := &Image{code: code, src: src}
	if err := im.makeChunks(); err != nil {
		return nil, err
	}
	if err := im.layout(); err != nil {
		return nil, err
	}
	// From here on every place is fixed.
	im.render()
	if err := im.fixup(); err != nil {
		return nil, err
	}
	im.identify()
	return im, nil
}

// Soname returns the file name of the eh_elf of an object of that name.
func (src Source) Soname() string { return src.Name + abi.Suffix }

func (src Source) validate() error {
	if src.Name == "" || strings.ContainsAny(src.Name, "/\x00") {
		return fmt.Errorf("%w: %q is not a file name", ErrBadSource, src.Name)
	}
	if src.FileSize < 0 {
		return fmt.Errorf("%w: file size %d", ErrBadSource, src.FileSize)
	}
	return nil
}

// validate checks what the sections rely on.
func validate(code *asmgen.Code) error {
	if uint64(len(code.Text))+uint64(len(code.Data)) > math.MaxInt32 {
		return ErrTooLarge
	}
	text := uint32(len(code.Text))
	if text == 0 {
		return fmt.Errorf("%w: no text", ErrBadCode)
	}
	exports := map[string]bool{}
	for _, s := range code.Symbols {
		if s.Name == "" || strings.ContainsRune(s.Name, 0) || s.Start > s.End || s.End > text {
			return fmt.Errorf("%w: symbol %q at %#x..%#x of %#x", ErrBadCode, s.Name, s.Start, s.End, text)
		}
		if s.Exported && exports[s.Name] {
			return fmt.Errorf("%w: symbol %q exported twice", ErrBadCode, s.Name)
		}
		exports[s.Name] = exports[s.Name] || s.Exported
	}
	var end uint32
	for _, f := range code.Frames {
		if f.Start < end || f.End <= f.Start || f.End > text {
			return fmt.Errorf("%w: frame %#x..%#x after %#x, text of %#x", ErrBadCode, f.Start, f.End, end, text)
		}
		end = f.End
	}
	if code.Ranges < 0 || int64(code.Ranges) > math.MaxUint32 || code.Rows < 0 || int64(code.Rows) > math.MaxUint32 {
		return fmt.Errorf("%w: %d ranges, %d rows", ErrBadCode, code.Ranges, code.Rows)
	}
	return nil
}

// makeChunks decides on the sections and their sizes.
func (im *Image) makeChunks() error {
	lines, err := buildLines(im.src.Build)
	if err != nil {
		return err
	}
	unwind, err := newEhFrame(im.code.Frames)
	if err != nil {
		return err
	}
	const alloc = elf.SHF_ALLOC

	im.text = bytesChunk(".text", elf.SHT_PROGBITS, alloc|elf.SHF_EXECINSTR, codeAlign, im.code.Text)

	ownID := bytesChunk(".note.gnu.build-id", elf.SHT_NOTE, alloc, noteAlign,
		appendNote(nil, "GNU", noteGNUBuildID, make([]byte, buildIDSize)))
	identity := appendNote(nil, abi.NoteOwner, abi.NoteIdentity, im.identity())
	if len(lines) > 0 {
		identity = appendNote(identity, abi.NoteOwner, abi.NoteBuild, lines)
	}
	note := bytesChunk(abi.NoteSection, elf.SHT_NOTE, alloc, noteAlign, identity)
	im.notes = []*chunk{ownID, note}

	dynStrings := newStrtab()
	soname := dynStrings.add(im.src.Soname())
	exports := exported(im.code.Symbols)
	names := make([]string, len(exports))
	for i, s := range exports {
		names[i] = s.Name
	}
	dynsym := symbolTable(".dynsym", elf.SHT_DYNSYM, alloc, exports, dynStrings, im.text)
	dynstr := bytesChunk(".dynstr", elf.SHT_STRTAB, alloc, 1, dynStrings.bytes)
	gnu := bytesChunk(".gnu.hash", elf.SHT_GNU_HASH, alloc, 8, gnuHashTable(names))
	sysv := bytesChunk(".hash", elf.SHT_HASH, alloc, 8, sysvHashTable(names))
	sysv.entsize = 4
	dynsym.link, gnu.link, sysv.link = dynstr, dynsym, dynsym

	hdr, frame := unwind.chunks(im.text)
	im.ehFrameHdr = hdr
	im.dynamic = dynamicSection(soname, gnu, sysv, dynsym, dynstr)

	im.loaded = []*chunk{ownID, note, gnu, sysv, dynsym, dynstr, hdr, frame, im.dynamic}
	if len(im.code.Data) > 0 {
		im.loaded = append(im.loaded, bytesChunk(".rodata", elf.SHT_PROGBITS, alloc, codeAlign, im.code.Data))
	}

	strs := newStrtab()
	symtab := symbolTable(".symtab", elf.SHT_SYMTAB, 0, localsFirst(im.code.Symbols), strs, im.text)
	strtab := bytesChunk(".strtab", elf.SHT_STRTAB, 0, 1, strs.bytes)
	symtab.link = strtab
	im.shstrtab = &chunk{name: ".shstrtab", typ: elf.SHT_STRTAB, align: 1}

	im.chunks = append(append([]*chunk{}, im.loaded...), im.text, symtab, strtab, im.shstrtab)
	sectionNames := newStrtab()
	for i, c := range im.chunks {
		c.index = uint16(i + 1) // section 0 is the null section
		c.nameOff = sectionNames.add(c.name)
	}
	im.shstrtab.size = uint64(len(sectionNames.bytes))
	im.shstrtab.write = func(dst []byte) { copy(dst, sectionNames.bytes) }
	return nil
}

// localsFirst orders symbols as .symtab asks: local ones before global ones,
// each in order of address.
func localsFirst(symbols []asmgen.Symbol) []asmgen.Symbol {
	out := append([]asmgen.Symbol{}, symbols...)
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Exported != b.Exported {
			return b.Exported
		}
		return a.Start < b.Start
	})
	return out
}

// layout gives every chunk its offset and address.
//
// No page of the file is padded: .text follows the read-only sections directly,
// and its address is congruent to its offset modulo the page size, one page
// further on (as ld lays out with -z noseparate-code). The page of the file in
// which both meet is therefore mapped twice: once readable, where its tail shows
// the first instructions, and once executable, where its head shows the last
// read-only data. Neither is writable, and no jump of the code leads there.
func (im *Image) layout() error {
	off := uint64(ehdrSize + numPhdrs*phdrSize)
	for _, c := range im.loaded {
		c.off = alignUp(off, c.align)
		c.addr = c.off
		off = c.end()
	}
	im.readEnd = off
	im.text.off = alignUp(off, codeAlign)
	im.text.addr = alignUp(im.readEnd, pageSize) + im.text.off%pageSize
	off = im.text.end()
	for _, c := range im.chunks[len(im.loaded)+1:] {
		c.off = alignUp(off, c.align)
		off = c.end()
	}
	im.shoff = alignUp(off, sectionAlign)
	size := im.shoff + uint64(len(im.chunks)+1)*shdrSize
	if size > math.MaxInt32 || im.text.addr+im.text.size > math.MaxInt32 {
		return ErrTooLarge
	}
	im.bytes = make([]byte, size)
	return nil
}

// render writes headers and sections.
func (im *Image) render() {
	im.writeEhdr(im.bytes)
	im.writePhdrs(im.bytes[ehdrSize:])
	for i, c := range im.chunks {
		c.write(im.bytes[c.off:c.end():c.end()])
		c.header(im.bytes[im.shoff+uint64(i+1)*shdrSize:])
	}
}

// writeEhdr writes the ELF header (gABI figure 4-3).
func (im *Image) writeEhdr(b []byte) {
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	b[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	b[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	le.PutUint16(b[16:], uint16(elf.ET_DYN))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], uint32(elf.EV_CURRENT))
	le.PutUint64(b[32:], ehdrSize) // e_phoff; e_entry stays 0
	le.PutUint64(b[40:], im.shoff)
	le.PutUint16(b[52:], ehdrSize)
	le.PutUint16(b[54:], phdrSize)
	le.PutUint16(b[56:], numPhdrs)
	le.PutUint16(b[58:], shdrSize)
	le.PutUint16(b[60:], uint16(len(im.chunks)+1))
	le.PutUint16(b[62:], im.shstrtab.index)
}

// writePhdrs writes the program headers (gABI figure 5-1).
func (im *Image) writePhdrs(b []byte) {
	noteEnd := im.notes[len(im.notes)-1].end()
	for i, p := range [numPhdrs]elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: im.readEnd, Align: pageSize},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: im.text.off, Vaddr: im.text.addr, Filesz: im.text.size, Align: pageSize},
		{Type: uint32(elf.PT_DYNAMIC), Flags: uint32(elf.PF_R), Off: im.dynamic.off, Vaddr: im.dynamic.addr, Filesz: im.dynamic.size, Align: 8},
		{Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: im.notes[0].off, Vaddr: im.notes[0].addr, Filesz: noteEnd - im.notes[0].off, Align: noteAlign},
		{Type: uint32(elf.PT_GNU_EH_FRAME), Flags: uint32(elf.PF_R), Off: im.ehFrameHdr.off, Vaddr: im.ehFrameHdr.addr, Filesz: im.ehFrameHdr.size, Align: 4},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	} {
		e := b[i*phdrSize:]
		le.PutUint32(e[0:], p.Type)
		le.PutUint32(e[4:], p.Flags)
		le.PutUint64(e[8:], p.Off)
		le.PutUint64(e[16:], p.Vaddr)
		le.PutUint64(e[24:], p.Vaddr) // p_paddr
		le.PutUint64(e[32:], p.Filesz)
		le.PutUint64(e[40:], p.Filesz) // p_memsz
		le.PutUint64(e[48:], p.Align)
	}
}

// fixup writes the distances between Text and Data.
func (im *Image) fixup() error {
	if len(im.code.Fixups) == 0 && im.code.TextWords == 0 {
		return nil
	}
	if len(im.code.Data) < 4*im.code.TextWords || len(im.code.Data) == 0 {
		return fmt.Errorf("%w: %d fixups, %d words, and %d bytes of data", ErrBadCode, len(im.code.Fixups), im.code.TextWords, len(im.code.Data))
	}
	data := im.loaded[len(im.loaded)-1]
	text := im.bytes[im.text.off:im.text.end()]
	for _, f := range im.code.Fixups {
		if uint64(f.TextOff)+4 > im.text.size || uint64(f.DataOff) > data.size {
			return fmt.Errorf("%w: fixup at text+%#x to data+%#x", ErrBadCode, f.TextOff, f.DataOff)
		}
		from := im.text.addr + uint64(f.TextOff) + 4
		le.PutUint32(text[f.TextOff:], uint32(data.addr+uint64(f.DataOff)-from))
	}
	words := im.bytes[data.off:data.end()]
	for i := range im.code.TextWords {
		w := words[4*i:]
		off := le.Uint32(w)
		if uint64(off) >= im.text.size {
			return fmt.Errorf("%w: word %d of the data leads to text+%#x", ErrBadCode, i, off)
		}
		le.PutUint32(w, uint32(im.text.addr+uint64(off)-data.addr))
	}
	return nil
}

// identify fills in the file's own build-id: SHA-1 of the file in which the
// build-id is zero.
func (im *Image) identify() {
	sum := sha1.Sum(im.bytes)
	own := im.notes[0]
	im.buildID = im.bytes[own.end()-buildIDSize : own.end() : own.end()]
	copy(im.buildID, sum[:])
}
