package elffile

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math/bits"
)

// This file reads what a loader will change before code runs: words in .got, .data.rel.ro and elsewhere. A reader of
// the file alone sees zeros, or offsets, where the process has addresses.

// Reloc is one relocation of an executable or shared object.
type Reloc struct {
	Addr   uint64 // link-time address of the bytes that it changes
	Type   elf.R_X86_64
	Symbol uint32 // number of the dynamic symbol; 0: none
	Addend uint64
	InFile bool // the addend is the word at Addr in the file (DT_RELR, DT_REL)
	// Rel says that the relocation is of DT_REL: glibc ignores these on x86-64, musl applies them.
	Rel bool
}

// Dynamic returns the entries of the dynamic section by their tags. Of several with one tag the last counts, as for
// loaders. A static object has none.
func Dynamic(f *elf.File) (map[elf.DynTag]uint64, error) {
	const maxDynamic = 1 << 16 // bytes; large ones have some hundred entries of 16 bytes
	tags := make(map[elf.DynTag]uint64)
	for _, p := range f.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		b := make([]byte, min(p.Filesz, maxDynamic))
		n, err := p.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return nil, err
		}
		for b = b[:n]; len(b) >= 16; b = b[16:] {
			tag := elf.DynTag(binary.LittleEndian.Uint64(b))
			if tag == elf.DT_NULL {
				break
			}
			tags[tag] = binary.LittleEndian.Uint64(b[8:])
		}
	}
	return tags, nil
}

// Relocs yields the relocations of an object in the order of its tables. It stops at an error.
func Relocs(f *elf.File) iter.Seq2[Reloc, error] {
	return func(yield func(Reloc, error) bool) {
		tables, err := find(f)
		if err != nil {
			yield(Reloc{}, err)
			return
		}
		for _, t := range tables {
			if !t.each(f, yield) {
				return
			}
		}
	}
}

// table is a table of relocations; tag is DT_RELA, DT_REL or DT_RELR. addr is link-time, size in bytes.
type table struct {
	tag        elf.DynTag
	addr, size uint64
}

const dtRELR = elf.DynTag(36) // gABI, "Relative relocation table"; DT_RELRSZ is 35

// find returns the tables that the dynamic section names, or those of a static object, which its own start-up code
// applies.
func find(f *elf.File) ([]table, error) {
	tags, err := Dynamic(f)
	if err != nil {
		return nil, fmt.Errorf("reading the dynamic section: %w", err)
	}
	var tables []table
	if len(tags) == 0 {
		for _, s := range f.Sections {
			if s.Type == elf.SHT_RELA && s.Flags&elf.SHF_ALLOC != 0 {
				tables = append(tables, table{elf.DT_RELA, s.Addr, s.FileSize})
			}
		}
		return tables, nil
	}
	rela := table{elf.DT_RELA, tags[elf.DT_RELA], tags[elf.DT_RELASZ]}
	plt := table{elf.DynTag(tags[elf.DT_PLTREL]), tags[elf.DT_JMPREL], tags[elf.DT_PLTRELSZ]}
	tables = []table{{dtRELR, tags[dtRELR], tags[dtRELR-1]}, {elf.DT_REL, tags[elf.DT_REL], tags[elf.DT_RELSZ]}, rela}
	if plt.addr-rela.addr >= rela.size { // some linkers count them twice
		tables = append(tables, plt)
	}
	return tables, nil
}

// each yields the relocations of a table, and reports whether to go on. A table that the file does not hold is an
// error: an object without some of its relocations would be another one.
func (t table) each(f *elf.File, yield func(Reloc, error) bool) bool {
	if t.size == 0 {
		return true
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || t.addr < p.Vaddr || t.addr-p.Vaddr > p.Filesz || t.size > p.Filesz-(t.addr-p.Vaddr) {
			continue
		}
		const buffer = 64 << 10 // bytes: of a table of a million relocations little is in memory at a time
		b := bufio.NewReaderSize(io.NewSectionReader(p, int64(t.addr-p.Vaddr), int64(t.size)), buffer)
		if t.tag == dtRELR {
			return relr(b, yield)
		}
		return t.rela(b, yield)
	}
	return yield(Reloc{}, fmt.Errorf("a table of relocations, %#x bytes at %#x, which the file does not hold", t.size,
		t.addr))
}

// rela reads a table of DT_RELA or DT_REL.
func (t table) rela(r io.Reader, yield func(Reloc, error) bool) bool {
	var b [24]byte // Elf64_Rela; Elf64_Rel has no addend
	entry := b[:]
	if t.tag == elf.DT_REL {
		entry = b[:16]
	}
	for {
		if _, err := io.ReadFull(r, entry); err != nil {
			return err == io.EOF || err == io.ErrUnexpectedEOF || yield(Reloc{}, err)
		}
		info := binary.LittleEndian.Uint64(b[8:])
		if !yield(Reloc{
			Addr: binary.LittleEndian.Uint64(b[:]), Type: elf.R_X86_64(uint32(info)), Symbol: uint32(info >> 32),
			Addend: binary.LittleEndian.Uint64(b[16:]), InFile: t.tag == elf.DT_REL, Rel: t.tag == elf.DT_REL,
		}, nil) {
			return false
		}
	}
}

// maxRELR bounds the relocations of a table of DT_RELR, whose words name up to 63 each. Large programs have a million.
const maxRELR = 1 << 25

// relr reads a table of DT_RELR: addresses, and bit maps of the 63 words behind. An even entry is an address, and the
// base of the maps that follow; bit n of an odd one stands for the word n-1 behind what was covered so far.
func relr(r io.Reader, yield func(Reloc, error) bool) bool {
	const mapped = 63 // words that a bit map is about: its lowest bit says that it is one
	var b [8]byte
	var next, count uint64
	holds := func(addr uint64) bool {
		if count++; count > maxRELR {
			yield(Reloc{}, fmt.Errorf("a table of more than %d relative relocations", maxRELR))
			return false
		}
		return yield(Reloc{Addr: addr, Type: elf.R_X86_64_RELATIVE, InFile: true}, nil)
	}
	for {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return err == io.EOF || err == io.ErrUnexpectedEOF || yield(Reloc{}, err)
		}
		entry := binary.LittleEndian.Uint64(b[:])
		if entry&1 == 0 {
			if !holds(entry) {
				return false
			}
			next = entry + 8
			continue
		}
		for m := entry >> 1; m != 0; m &= m - 1 {
			if !holds(next + 8*uint64(bits.TrailingZeros64(m))) {
				return false
			}
		}
		next += 8 * mapped
	}
}
