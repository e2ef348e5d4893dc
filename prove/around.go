package prove

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/abi"
)

// ownCIE is the only CIE of the file's .eh_frame: 4-byte pcs relative to their
// place, CFA = rsp+8, the return address below it.
var ownCIE = [24]byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, abi.RIP, 1, 0x1b, 0x0c, abi.RSP, 8, 0x80 | abi.RIP, 1}

// frames checks .eh_frame_hdr (LSB 5.0 Core §10.6.2) against .eh_frame: its table has
// exactly the FDEs, in order of pcs, and both end where they should. The contents of the
// FDEs are checked while the code runs on terms.
func (im *image) frames() error {
	distance := func(b []byte) uint64 { return uint64(int64(int32(le.Uint32(b)))) }
	h := im.at(im.hdrAddr, im.hdrSize)
	if len(h) < 12 || !bytes.Equal(h[:4], []byte{1, 0x1b, 0x03, 0x3b}) || im.hdrAddr%4 != 0 {
		return imageError("the head of .eh_frame_hdr")
	}
	im.frameAddr = im.hdrAddr + 4 + distance(h[4:])
	count := uint64(le.Uint32(h[8:]))
	if im.hdrSize != 12+8*count {
		return imageError(".eh_frame_hdr: %d FDEs", count)
	}
	if !bytes.Equal(im.at(im.frameAddr, uint64(len(ownCIE))), ownCIE[:]) {
		return imageError("the CIE")
	}
	at, end := im.frameAddr+uint64(len(ownCIE)), im.exec.Vaddr
	for i := range count {
		b := im.at(at, 17)
		if b == nil || im.at(at, 4+uint64(le.Uint32(b))) == nil || le.Uint32(b) < 13 || uint64(le.Uint32(b[4:])) != at+4-im.frameAddr || b[16] != 0 {
			return imageError("FDE %d", i)
		}
		start, size := at+8+distance(b[8:]), uint64(le.Uint32(b[12:]))
		if start < end || start > im.exec.Vaddr+im.exec.Filesz || size == 0 || size > im.exec.Vaddr+im.exec.Filesz-start {
			return imageError("FDE %d is of %#x and %d bytes", i, start, size)
		}
		end = start + size
		if e := h[12+8*i:]; im.hdrAddr+distance(e) != start || im.hdrAddr+distance(e[4:]) != at {
			return imageError("entry %d of .eh_frame_hdr", i)
		}
		size = 4 + uint64(le.Uint32(b))
		im.fdes = append(im.fdes, ownFDE{start, end, im.at(at, size)[17:]})
		at += size
	}
	if last := im.at(at, 4); last == nil || le.Uint32(last) != 0 {
		return imageError(".eh_frame goes on behind the FDEs that .eh_frame_hdr has")
	}
	im.frameSize = at + 4 - im.frameAddr
	return nil
}

// hashes checks the complete contents of the symbol tables, since lookups of names
// that are not there must also work: loaders look up every name in every file.
func (im *image) hashes() error {
	count := uint32(len(exports)) + 1
	if !zero(im.at(im.tags[elf.DT_SYMTAB], elf.Sym64Size)) {
		return imageError("the first dynamic symbol")
	}
	// Each export was found after the first symbol, so that no symbol is left over.
	text := []byte{0}
	soname, _ := im.name(uint32(im.tags[elf.DT_SONAME]))
	type namedAt struct {
		offset uint32
		name   string
	}
	names := []namedAt{{uint32(im.tags[elf.DT_SONAME]), soname}}
	hashOf, sysvOf := make([]uint32, count), make([]uint32, count)
	for i := uint32(1); i < count; i++ {
		s, ok1 := im.sym(i)
		name, ok2 := im.name(s.Name)
		if !ok1 || !ok2 || im.symbols[name] != s {
			return imageError("dynamic symbol %d", i)
		}
		names = append(names, namedAt{s.Name, name})
		hashOf[i], sysvOf[i] = gnuHash(name), sysvHash(name)
	}
	slices.SortFunc(names, func(a, b namedAt) int { return int(int64(a.offset) - int64(b.offset)) })
	for _, n := range names {
		if int(n.offset) != len(text) {
			return imageError("the names of dynamic symbols")
		}
		text = append(append(text, n.name...), 0)
	}
	if uint64(len(text)) != im.tags[elf.DT_STRSZ] || !bytes.Equal(im.at(im.tags[elf.DT_STRTAB], uint64(len(text))), text) {
		return imageError("the names of dynamic symbols")
	}
	// DT_HASH: buckets and chains lead to their own symbols and end.
	b := im.at(im.tags[elf.DT_HASH], 8)
	buckets, chains := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])) // sysvLookup has read both
	b = im.at(im.tags[elf.DT_HASH]+8, 4*(buckets+chains))
	if b == nil || buckets > 64 {
		return imageError("DT_HASH")
	}
	word := func(i uint64) uint64 { return uint64(le.Uint32(b[4*i:])) }
	for k := range buckets {
		steps := uint64(0)
		for i := word(k); i != 0; i = word(buckets + i) {
			if steps++; i >= chains || steps > chains || uint64(sysvOf[i])%buckets != k {
				return imageError("bucket %d of DT_HASH", k)
			}
		}
	}
	if word(buckets) != 0 {
		return imageError("the chain of no symbol in DT_HASH")
	}
	im.hashSize = 4 * (2 + buckets + chains)
	return im.gnuTable(hashOf)
}

// gnuTable checks DT_GNU_HASH: filter and hashes are those of the names, each bucket has
// the first symbol of its chain, and chains end.
func (im *image) gnuTable(hashOf []uint32) error {
	base := im.tags[elf.DT_GNU_HASH]
	h := im.at(base, 16) // gnuLookup has read and bounded it
	buckets, first, words, shift := le.Uint32(h), le.Uint32(h[4:]), le.Uint32(h[8:]), le.Uint32(h[12:])
	count := uint32(len(hashOf))
	im.gnuSize = 16 + 8*uint64(words) + 4*uint64(buckets) + 4*uint64(count-1)
	b := im.at(base, im.gnuSize)
	if first != 1 || b == nil {
		return imageError("DT_GNU_HASH")
	}
	filter := make([]uint64, words)
	want := make([]uint32, buckets)
	for i := count - 1; i > 0; i-- {
		g := hashOf[i]
		filter[g/64%words] |= 1<<(g%64) | 1<<(g>>shift%64)
		want[g%buckets] = i
	}
	b = b[16:]
	for _, w := range filter {
		if le.Uint64(b) != w {
			return imageError("the filter of DT_GNU_HASH")
		}
		b = b[8:]
	}
	for _, w := range want {
		if le.Uint32(b) != w {
			return imageError("the buckets of DT_GNU_HASH")
		}
		b = b[4:]
	}
	for i := uint32(1); i < count; i++ {
		w := hashOf[i] &^ 1
		if i == count-1 || hashOf[i+1]%buckets != hashOf[i]%buckets {
			w |= 1
		}
		if le.Uint32(b) != w {
			return imageError("the chains of DT_GNU_HASH")
		}
		b = b[4:]
	}
	return nil
}

func sysvHash(name string) uint32 {
	h := uint32(0)
	for _, c := range []byte(name) {
		h = h<<4 + uint32(c)
		h = (h ^ h>>24&0xf0) & 0x0fffffff
	}
	return h
}

func gnuHash(name string) uint32 {
	h := uint32(5381)
	for _, c := range []byte(name) {
		h = h*33 + uint32(c)
	}
	return h
}

func zero(b []byte) bool {
	return b != nil && !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

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

func (im *image) expectedSections() map[string]section {
	const a = elf.SHF_ALLOC
	dyn := section{typ: elf.SHT_DYNAMIC, flags: a, align: 8, entsize: 16, link: ".dynstr", addr: im.dynAddr, size: uint64(len(im.dyn)), isKnown: true, needed: true}
	list := map[string]section{
		// Readers that use sections find the same notes as in the segment.
		".note.gnu.build-id": {typ: elf.SHT_NOTE, flags: a, align: 4, addr: im.noteAddr, size: im.gnuNotes, isKnown: true, needed: im.gnuNotes > 0},
		".note.ehasm":        {typ: elf.SHT_NOTE, flags: a, align: 4, addr: im.noteAddr + im.gnuNotes, size: im.noteSize - im.gnuNotes, isKnown: true, needed: true},
		".gnu.hash":          {typ: elf.SHT_GNU_HASH, flags: a, align: 8, link: ".dynsym", addr: im.tags[elf.DT_GNU_HASH], size: im.gnuSize, isKnown: true, needed: true},
		".hash":              {typ: elf.SHT_HASH, flags: a, align: 8, entsize: 4, link: ".dynsym", addr: im.tags[elf.DT_HASH], size: im.hashSize, isKnown: true, needed: true},
		".dynsym": {typ: elf.SHT_DYNSYM, flags: a, align: 8, entsize: elf.Sym64Size, link: ".dynstr", info: 1, addr: im.tags[elf.DT_SYMTAB],
			size: elf.Sym64Size * (uint64(len(exports)) + 1), isKnown: true, needed: true},
		".dynstr":        {typ: elf.SHT_STRTAB, flags: a, align: 1, addr: im.tags[elf.DT_STRTAB], size: im.tags[elf.DT_STRSZ], isKnown: true, needed: true},
		".eh_frame_hdr":  {typ: elf.SHT_PROGBITS, flags: a, align: 4, addr: im.hdrAddr, size: im.hdrSize, isKnown: true, needed: true},
		".eh_frame":      {typ: elf.SHT_PROGBITS, flags: a, align: 8, addr: im.frameAddr, size: im.frameSize, isKnown: true, needed: true},
		".rodata":        {typ: elf.SHT_PROGBITS, flags: a, align: 64},
		abi.SitesSection: {typ: elf.SHT_PROGBITS, flags: a, align: 8, addr: im.sitesAddr, size: uint64(len(im.sites)), isKnown: true, needed: im.sites != nil},
		".text":          {typ: elf.SHT_PROGBITS, flags: a | elf.SHF_EXECINSTR, align: 64, addr: im.exec.Vaddr, size: im.exec.Filesz, isKnown: true, needed: true},
		".symtab":        {typ: elf.SHT_SYMTAB, align: 8, entsize: elf.Sym64Size, link: ".strtab", info: 1, unmapped: true},
		".strtab":        {typ: elf.SHT_STRTAB, align: 1, unmapped: true},
		".shstrtab":      {typ: elf.SHT_STRTAB, align: 1, unmapped: true},
	}
	if len(im.segments) == 3 {
		dyn.flags |= elf.SHF_WRITE
		dyn.align = uint64(len(im.dyn))
		w := im.segments[2]
		list[".padding"] = section{typ: elf.SHT_NOBITS, flags: a | elf.SHF_WRITE, align: 1, addr: w.Vaddr + w.Filesz, size: w.Memsz - w.Filesz, isKnown: true}
	}
	list[".dynamic"] = dyn
	return list
}

// sections checks the section headers, from which debuggers and profilers take
// addresses: they agree with what has been shown of the segments, and .symtab has the
// same exports as .dynsym. A file may have no section headers; it may be stripped.
func (im *image) sections() error {
	shoff, count, names := le.Uint64(im.file[40:]), uint64(le.Uint16(im.file[60:])), uint64(le.Uint16(im.file[62:]))
	size := uint64(len(im.file))
	if count == 0 {
		if shoff != 0 || names != 0 {
			return imageError("section headers")
		}
		return im.behind(nil)
	}
	if shoff > size || shoff%8 != 0 || count > 64 || shdrSize*count > size-shoff || names == 0 || names >= count || !zero(im.file[shoff:shoff+shdrSize]) {
		return imageError("section headers")
	}
	header := func(i uint64) elf.Section64 {
		b := im.file[shoff+shdrSize*i:]
		return elf.Section64{Name: le.Uint32(b), Type: le.Uint32(b[4:]), Flags: le.Uint64(b[8:]), Addr: le.Uint64(b[16:]), Off: le.Uint64(b[24:]),
			Size: le.Uint64(b[32:]), Link: le.Uint32(b[40:]), Info: le.Uint32(b[44:]), Addralign: le.Uint64(b[48:]), Entsize: le.Uint64(b[56:])}
	}
	content := func(h elf.Section64) []byte {
		if h.Off > size || h.Size > size-h.Off {
			return nil
		}
		return im.file[h.Off : h.Off+h.Size]
	}
	nameTable := content(header(names))
	if none, ok := textAt(nameTable, 0); !ok || none != "" {
		return imageError(".shstrtab")
	}
	headers := map[string]elf.Section64{}
	index := map[string]uint64{}
	for i := uint64(1); i < count; i++ {
		h := header(i)
		name, ok := textAt(nameTable, h.Name)
		if _, twice := headers[name]; !ok || twice {
			return imageError("the name of section %d", i)
		}
		headers[name], index[name] = h, i
	}
	if index[".shstrtab"] != names {
		return imageError(".shstrtab")
	}
	expected := im.expectedSections()
	for name, want := range expected {
		if _, ok := headers[name]; want.needed && !ok {
			return imageError("no section %s", name)
		}
	}
	var read []elf.Section64 // of the segment with the data
	unmapped := []elf.Section64{{Off: shoff, Size: shdrSize * count, Addralign: 8}}
	for name, h := range headers {
		want, ok := expected[name]
		if !ok || elf.SectionType(h.Type) != want.typ || elf.SectionFlag(h.Flags) != want.flags || h.Addralign != want.align ||
			h.Entsize != want.entsize || h.Info != want.info || uint64(h.Link) != index[want.link] ||
			want.isKnown && (h.Addr != want.addr || h.Size != want.size) || want.unmapped && h.Addr != 0 {
			return imageError("section %s", name)
		}
		if want.typ == elf.SHT_NOBITS {
			if h.Off != im.segments[2].Off+im.segments[2].Filesz {
				return imageError("section %s", name)
			}
			continue
		}
		if content(h) == nil {
			return imageError("section %s is outside of the file", name)
		}
		switch {
		case want.unmapped:
			for _, p := range im.segments {
				if h.Off < p.Off+p.Filesz {
					return imageError("section %s lies in a segment", name)
				}
			}
			unmapped = append(unmapped, h)
		case want.flags&elf.SHF_EXECINSTR != 0:
			if h.Off != im.exec.Off {
				return imageError("section %s", name)
			}
		case want.flags&elf.SHF_WRITE != 0:
			if h.Off != im.segments[2].Off {
				return imageError("section %s", name)
			}
		default:
			if h.Off != h.Addr { // the segment begins at address 0
				return imageError("section %s", name)
			}
			read = append(read, h)
		}
	}
	// They lie side by side from the headers to the end of the segment, so that the size
	// of each is right.
	slices.SortFunc(read, func(a, b elf.Section64) int { return int(int64(a.Off) - int64(b.Off)) })
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
	if err := im.behind(unmapped); err != nil {
		return err
	}
	for _, s := range im.symbols {
		if uint64(s.Shndx) != index[".text"] {
			return imageError("the section of a symbol")
		}
	}
	if h, ok := headers[".symtab"]; ok {
		if _, ok := headers[".strtab"]; !ok {
			return imageError("no section .strtab")
		}
		return im.symtab(content(h), content(headers[".strtab"]))
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

// symbolSizes checks that the exports cover the text without gaps.
func (im *image) symbolSizes() error {
	var all []elf.Sym64
	for _, s := range im.symbols {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b elf.Sym64) int { return int(int64(a.Value) - int64(b.Value)) })
	end := im.exec.Vaddr
	for _, s := range all {
		if s.Value != end {
			return imageError("the functions are not side by side")
		}
		end += s.Size
	}
	if end != im.exec.Vaddr+im.exec.Filesz {
		return imageError("the functions end at %#x, the code at %#x", end, im.exec.Vaddr+im.exec.Filesz)
	}
	return nil
}

// symtab compares .symtab with the dynamic symbols.
func (im *image) symtab(b, names []byte) error {
	if len(b) != elf.Sym64Size*(len(exports)+1) || !zero(b[:elf.Sym64Size]) || len(names) == 0 || names[0] != 0 {
		return imageError(".symtab")
	}
	seen := map[string]bool{}
	for b = b[elf.Sym64Size:]; len(b) > 0; b = b[elf.Sym64Size:] {
		name, ok := textAt(names, le.Uint32(b))
		want, exported := im.symbols[name]
		got := elf.Sym64{Name: want.Name, Info: b[4], Other: b[5], Shndx: le.Uint16(b[6:]), Value: le.Uint64(b[8:]), Size: le.Uint64(b[16:])}
		if !ok || !exported || seen[name] || got != want {
			return imageError("the symbol %s of .symtab", strings.ToValidUTF8(name, "?"))
		}
		seen[name] = true
	}
	return nil
}

// textAt returns the name at a place of a string table.
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
