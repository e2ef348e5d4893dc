package elfout

import (
	"debug/elf"

	"github.com/ehasm/ehasm/asmgen"
)

// This file makes the symbol tables and the dynamic section. A loader needs the hash tables, .dynsym and .dynstr, to
// answer dlsym; profilers and debuggers read .symtab.

const (
	symSize = 24 // bytes of an Elf64_Sym (gABI figure 4-16)
	dynSize = 16 // bytes of an Elf64_Dyn (gABI figure 5-9)
)

// symbol is one entry of .dynsym or .symtab.
type symbol struct {
	asmgen.Symbol
	nameOff uint32 // in the table's string table
}

// exported returns the exported functions in the order of .dynsym.
func exported(symbols []asmgen.Symbol) []asmgen.Symbol {
	var out []asmgen.Symbol
	for _, s := range symbols {
		if s.Exported {
			out = append(out, s)
		}
	}
	sortForGNUHash(len(out),
		func(i int) string { return out[i].Name },
		func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// symbolTable returns a symbol table section for functions in text. Local symbols must come first; sh_info is the index
// of the first global one (gABI chapter 4, "Symbol Table"). strs gets the names.
func symbolTable(name string, typ elf.SectionType, flags elf.SectionFlag, symbols []asmgen.Symbol, strs *strtab,
	text *chunk) *chunk {
	entries := make([]symbol, len(symbols))
	locals := uint32(1) // the null symbol
	for i, s := range symbols {
		entries[i] = symbol{s, strs.add(s.Name)}
		if !s.Exported {
			locals++
		}
	}
	return &chunk{
		name: name, typ: typ, flags: flags, align: 8, entsize: symSize, info: locals,
		size: symSize * uint64(len(entries)+1),
		write: func(dst []byte) {
			for i, s := range entries {
				bind := elf.STB_LOCAL
				if s.Exported {
					bind = elf.STB_GLOBAL
				}
				e := dst[symSize*(i+1):]
				le.PutUint32(e[0:], s.nameOff)
				// STV_DEFAULT: dlsym does not find hidden ones.
				e[4] = elf.ST_INFO(bind, elf.STT_FUNC)
				e[5] = uint8(elf.STV_DEFAULT)
				le.PutUint16(e[6:], text.index)
				le.PutUint64(e[8:], text.addr+uint64(s.Start))
				le.PutUint64(e[16:], uint64(s.End-s.Start))
			}
		},
	}
}

// dynamicSection returns .dynamic. Without relocations, dependencies and initialisers it holds only the name and the
// symbol tables. DT_HASH is beside DT_GNU_HASH for tools, and for loaders other than glibc's and musl's;
// runtime/src/load.c counts symbols by it. The tags are the ones of gABI figure 5-10.
func dynamicSection(soname uint32, gnuHash, hash, dynsym, dynstr *chunk) *chunk {
	const entries = 8
	return &chunk{
		name: ".dynamic", typ: elf.SHT_DYNAMIC, flags: elf.SHF_ALLOC, align: 8, entsize: dynSize,
		link: dynstr, size: entries * dynSize,
		write: func(dst []byte) {
			for i, e := range [entries]struct {
				tag elf.DynTag
				val uint64
			}{
				{elf.DT_SONAME, uint64(soname)},
				{elf.DT_GNU_HASH, gnuHash.addr},
				{elf.DT_HASH, hash.addr},
				{elf.DT_STRTAB, dynstr.addr},
				{elf.DT_SYMTAB, dynsym.addr},
				{elf.DT_STRSZ, dynstr.size},
				{elf.DT_SYMENT, symSize},
				{elf.DT_NULL, 0},
			} {
				le.PutUint64(dst[i*dynSize:], uint64(e.tag))
				le.PutUint64(dst[i*dynSize+8:], e.val)
			}
		},
	}
}
