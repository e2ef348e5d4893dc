package elfout

import (
	"bytes"
	"crypto/sha1"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen"
)

// This file decides which sections a file has, and writes them.

var (
	// ErrBadCode is wrapped by errors about an asmgen.Code that contradicts itself.
	ErrBadCode = errors.New("inconsistent code")
	// ErrBadSource is wrapped by errors about a Source that no file can hold.
	ErrBadSource = errors.New("bad source description")
	// ErrTooLarge is returned if the image exceeds 2 GiB, the reach of a
	// rip-relative displacement.
	ErrTooLarge = errors.New("image larger than 2 GiB")
)

const (
	pageSize     = 0x1000
	codeAlign    = 64 // of Text and Data, see asmgen.Code
	bareAlign    = 16 // the same in a bare file
	ehdrSize     = 64 // Elf64_Ehdr
	phdrSize     = 56 // Elf64_Phdr
	shdrSize     = 64 // Elf64_Shdr
	sectionAlign = 8  // of the section header table
)

// Source describes the object whose unwind tables were compiled, and how.
type Source struct {
	Name     string      // file name without folders
	BuildID  []byte      // NT_GNU_BUILD_ID; empty if it has none
	FileSize int64       // bytes
	Content  abi.Content // identifies it; empty: the file is no object's
	Build    []string    // "key=value" lines for the note abi.NoteBuild
	Relro    bool        // .dynamic in a writable segment under PT_GNU_RELRO: see the package comment
	Bare     bool        // no section headers, no .symtab: for small files; not with Relro
	HasSites bool        // the builder looked for sites; without Sites, exceptions pass over all frames
	Sites    []byte      // table of sites; empty: exceptions pass over all frames
}

// Image is a finished eh_elf.
type Image struct {
	code *asmgen.Code
	src  Source

	chunks []*chunk // all sections, in file order
	loaded []*chunk // of those, the ones of the R segment
	notes  []*chunk // of those, the notes, which are adjacent
	others []*chunk // the sections after the segments

	text, dynamic, ehFrameHdr, rodata, sites, shstrtab *chunk
	padding                                            *chunk // Source.Relro: the rest of the page of .dynamic

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

// validate checks that a file can be made for the source.
func (src Source) validate() error {
	if src.Name == "" || strings.ContainsAny(src.Name, "/\x00") {
		return fmt.Errorf("%w: %q is not a file name", ErrBadSource, src.Name)
	}
	if src.Bare && src.Relro {
		return fmt.Errorf("%w: bare, with relro", ErrBadSource)
	}
	if src.FileSize < 0 {
		return fmt.Errorf("%w: file size %d", ErrBadSource, src.FileSize)
	}
	return nil
}

// validate checks the assumptions of the sections. asmgen keeps them; a Code that another caller made may not.
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
	align := uint64(codeAlign)
	if im.src.Bare {
		align = bareAlign
	}
	im.text = bytesChunk(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, align, im.code.Text)
	im.makeNotes(lines)
	dynamic := im.makeDynamic()
	hdr, frame := unwind.chunks(im.text)
	im.ehFrameHdr = hdr

	im.loaded = append(slices.Clone(im.notes), dynamic...)
	im.loaded = append(im.loaded, hdr, frame)
	if !im.src.Relro {
		im.loaded = append(im.loaded, im.dynamic)
	}
	if len(im.code.Data) > 0 {
		im.rodata = bytesChunk(".rodata", elf.SHT_PROGBITS, elf.SHF_ALLOC, align, im.code.Data)
		im.loaded = append(im.loaded, im.rodata)
	}
	if len(im.src.Sites) > 0 {
		im.sites = bytesChunk(abi.SitesSection, elf.SHT_PROGBITS, elf.SHF_ALLOC, 8, im.src.Sites)
		im.loaded = append(im.loaded, im.sites)
	}
	im.makeOthers()

	im.chunks = append(slices.Clone(im.loaded), im.text)
	if im.src.Relro {
		im.chunks = append(im.chunks, im.dynamic, im.padding)
	}
	im.chunks = append(im.chunks, im.others...)
	im.nameChunks()
	return nil
}

// makeNotes makes the notes: the file's own build-id, and whose eh_elf it is, built from what.
func (im *Image) makeNotes(lines []byte) {
	ownID := bytesChunk(".note.gnu.build-id", elf.SHT_NOTE, elf.SHF_ALLOC, noteAlign,
		appendNote(nil, "GNU", noteGNUBuildID, make([]byte, buildIDSize)))
	identity := appendNote(nil, abi.NoteOwner, abi.NoteIdentity, im.identity())
	if len(lines) > 0 {
		identity = appendNote(identity, abi.NoteOwner, abi.NoteBuild, lines)
	}
	im.notes = []*chunk{ownID, im.noteChunk(identity)}
}

// makeDynamic makes what the dynamic loader reads, and returns it without the dynamic section, whose place depends on
// Relro. The names of .dynstr are all added before its chunk is made.
func (im *Image) makeDynamic() []*chunk {
	const alloc = elf.SHF_ALLOC
	strs := newStrtab()
	soname := strs.add(im.src.Soname())
	exports := exported(im.code.Symbols)
	names := make([]string, len(exports))
	for i, s := range exports {
		names[i] = s.Name
	}
	dynsym := symbolTable(".dynsym", elf.SHT_DYNSYM, alloc, exports, strs, im.text)
	dynstr := bytesChunk(".dynstr", elf.SHT_STRTAB, alloc, 1, strs.bytes)
	gnu := bytesChunk(".gnu.hash", elf.SHT_GNU_HASH, alloc, 8, gnuHashTable(names))
	sysv := bytesChunk(".hash", elf.SHT_HASH, alloc, 8, sysvHashTable(names))
	sysv.entsize = 4
	dynsym.link, gnu.link, sysv.link = dynstr, dynsym, dynsym

	im.dynamic = dynamicSection(soname, gnu, sysv, dynsym, dynstr)
	if im.src.Relro {
		im.dynamic.flags |= elf.SHF_WRITE
		im.dynamic.align = im.dynamic.size // a power of two: it lies on one page
		// Without a section, strip would remove the rest of the page from the segment. (lld
		// calls its own .relro_padding; to eu-elflint what begins with .rel is SHT_REL.)
		im.padding = bytesChunk(".padding", elf.SHT_NOBITS, alloc|elf.SHF_WRITE, 1, nil)
	}
	return []*chunk{gnu, sysv, dynsym, dynstr}
}

// makeOthers makes the sections that are not loaded: symbols for debuggers, and the names of sections.
func (im *Image) makeOthers() {
	strs := newStrtab()
	symtab := symbolTable(".symtab", elf.SHT_SYMTAB, 0, localsFirst(im.code.Symbols), strs, im.text)
	strtab := bytesChunk(".strtab", elf.SHT_STRTAB, 0, 1, strs.bytes)
	symtab.link = strtab
	im.shstrtab = &chunk{name: ".shstrtab", typ: elf.SHT_STRTAB, align: 1}
	if !im.src.Bare {
		im.others = []*chunk{symtab, strtab, im.shstrtab}
	}
}

// nameChunks numbers the sections and fills .shstrtab with their names.
func (im *Image) nameChunks() {
	names := newStrtab()
	for i, c := range im.chunks {
		c.index = uint16(i + 1) // section 0 is the null section
		c.nameOff = names.add(c.name)
	}
	im.shstrtab.size = uint64(len(names.bytes))
	im.shstrtab.write = func(dst []byte) { copy(dst, names.bytes) }
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

// render writes headers and sections.
func (im *Image) render() {
	im.writeEhdr(im.bytes)
	im.writePhdrs(im.bytes[ehdrSize:])
	for i, c := range im.chunks {
		c.write(im.bytes[c.off:c.end():c.end()])
		if !im.src.Bare {
			c.header(im.bytes[im.shoff+uint64(i+1)*shdrSize:])
		}
	}
}

// fixup writes the distances between Text and Data. asmgen knows neither place: a fixup is a rip-relative displacement
// in Text, relative to the end of its 4 bytes; the first TextWords words of Data are offsets in Text, which become
// distances from the start of Data.
func (im *Image) fixup() error {
	if len(im.code.Fixups) == 0 && im.code.TextWords == 0 {
		return nil
	}
	if len(im.code.Data) < 4*im.code.TextWords || im.rodata == nil {
		return fmt.Errorf("%w: %d fixups, %d words, and %d bytes of data", ErrBadCode, len(im.code.Fixups), im.code.TextWords,
			len(im.code.Data))
	}
	data := im.rodata
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

// identify fills in the file's own build-id: SHA-1 of the file in which the build-id is zero. So equal code has an
// equal id, as with ld --build-id=sha1.
func (im *Image) identify() {
	sum := sha1.Sum(im.bytes)
	own := im.notes[0]
	im.buildID = im.bytes[own.end()-buildIDSize : own.end() : own.end()]
	copy(im.buildID, sum[:])
}

// OwnBuildID reports whether id is the build-id that New computes for a file, in which it is. The first place at which
// id's bytes occur is the note: only headers lie before it.
func OwnBuildID(file, id []byte) bool {
	off := bytes.Index(file, id)
	if len(id) != buildIDSize || off < 0 {
		return false
	}
	file = bytes.Clone(file)
	clear(file[off : off+len(id)])
	sum := sha1.Sum(file)
	return bytes.Equal(sum[:], id)
}
