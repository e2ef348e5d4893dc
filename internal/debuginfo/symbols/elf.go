package symbols

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/ehasm/ehasm/internal/files/elffile"
	"github.com/ehasm/ehasm/internal/files/gotable"
	"github.com/ehasm/ehasm/internal/files/input"
)

// Files says where the symbols of an ELF file may be, besides in the file
// itself.
type Files struct {
	Dir        string   // of the file, for .gnu_debuglink; "" if there is none
	DebugPaths []string // possible paths of its debug file
	DebugDirs  []string // folders like /usr/lib/debug
	// Fetch returns the path of its debug file, or "", if none of these has a .symtab.
	// May be nil.
	Fetch func() string
	// Open bounds the files that stay open, to read names when they are needed. If it is nil, all names are kept in
	// memory.
	Open *OpenFiles
}

// FromELF reads the functions of an ELF file: from .symtab if it has one,
// otherwise from .gopclntab of a Go program, or from .dynsym. debugPaths are possible paths of its separate debug
// file; the first that has a .symtab is used instead. dir is the folder of the
// file, for .gnu_debuglink; it may be empty. Addresses are link-time.
func FromELF(r io.ReaderAt, dir string, debugPaths, debugDirs []string) (*Table, error) {
	return FromFiles(r, &Files{Dir: dir, DebugPaths: debugPaths, DebugDirs: debugDirs})
}

// FromFiles is FromELF with all options. If the table Keeps r, the caller must not close r. A file without symbols
// gives an empty table and no error; of a section that is damaged, other sources are tried.
func FromFiles(r io.ReaderAt, files *Files) (t *Table, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf does that on rare malformed files
			t, err = nil, fmt.Errorf("debug/elf: %v", p)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, err
	}
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("for machine %v", f.Machine)
	}
	// In order of value: .symtab names all functions, .gopclntab all of a Go program, .dynsym only
	// the exported ones. The server is asked before .dynsym is taken, since it may have the
	// .symtab.
	own := func(typ elf.SectionType) found { return fromSection(f, typ, r, files.Open) }
	got := own(elf.SHT_SYMTAB)
	var debug *elffile.DebugFile
	if got.list == nil {
		debug = elffile.DebugFileOf(f, r, files.Dir, files.DebugDirs)
		for i, path := range slices.Concat(files.DebugPaths, debug.Linked) {
			if got = fromDebugFile(path, debug, i >= len(files.DebugPaths), files.Open); got.list != nil {
				break
			}
		}
	}
	if got.list == nil {
		got = fromGo(f, r, files.Open)
	}
	if got.list == nil && files.Fetch != nil {
		if path := files.Fetch(); path != "" {
			got = fromDebugFile(path, debug, false, files.Open)
		}
	}
	if got.list == nil {
		got = own(elf.SHT_DYNSYM)
	}
	t = newTable(append(got.list, plt(f)...), got.names)
	t.dialect = got.dialect
	return t, nil
}

// found holds symbols of a file, and where their names are; names is nil if they are in memory.
type found struct {
	list  []Symbol
	names *fileNames
	dialect
}

// fromGo returns the functions of a stripped Go program, as fromSection does: .gopclntab stays in it, as tracebacks
// need it.
func fromGo(f *elf.File, r io.ReaderAt, open *OpenFiles) (got found) {
	t, err := gotable.Open(f)
	if err != nil {
		return found{}
	}
	got.names = namesIn(t.Section(), r, open)
	for _, fn := range t.Functions() {
		if fn.Name == "" {
			continue
		}
		s := Symbol{Start: fn.Lo, End: fn.Hi, Name: fn.Name}
		// a longer one was cut; read from the file again, it would be another name
		if len(fn.Name) < gotable.LongestName {
			s.inFile = fn.NameAt + 1
		}
		got.list = append(got.list, s)
	}
	return got
}

// fromDebugFile reads the symbols of a separate debug file, if it is the object's; for linked see Is. What cannot be
// read gives nothing: debug files are an extra, and the next place may have a good one.
func fromDebugFile(path string, debug *elffile.DebugFile, linked bool, open *OpenFiles) (got found) {
	defer func() {
		if recover() != nil {
			got = found{}
		}
	}()
	file, err := input.Open(path)
	if err != nil {
		return found{}
	}
	defer func() {
		if got.names == nil {
			file.Close()
		}
	}()
	f, err := elffile.Open(file)
	if err != nil || !debug.Is(file, linked) {
		return found{}
	}
	return fromSection(f, elf.SHT_SYMTAB, file, open)
}

// symSize is the size of a symbol table entry in bytes: gABI chapter 4, "Symbol Table".
const symSize = 24

// fromSection reads the functions, and the labels and objects in executable sections. r is the file; for open see
// Files. Entries are decoded in place, as a large program has a million, of which most are left out.
func fromSection(f *elf.File, typ elf.SectionType, r io.ReaderAt, open *OpenFiles) (got found) {
	s := f.SectionByType(typ)
	if s == nil || int(s.Link) >= len(f.Sections) || s.Type == elf.SHT_NOBITS {
		return found{}
	}
	got.names = namesIn(f.Sections[s.Link], r, open)
	tab, err := contents(s)
	if err != nil {
		return found{}
	}
	str, err := contents(f.Sections[s.Link])
	if err != nil {
		return found{}
	}
	got.dialect = dialectOf(str)
	names := newStringTable(str)
	list := make([]Symbol, 0, len(tab)/symSize/2) // about half of the entries are functions
	for ; len(tab) >= symSize; tab = tab[symSize:] {
		name := binary.LittleEndian.Uint32(tab)
		info, shndx := tab[4], elf.SectionIndex(binary.LittleEndian.Uint16(tab[6:]))
		value, size := binary.LittleEndian.Uint64(tab[8:]), binary.LittleEndian.Uint64(tab[16:])
		if shndx == elf.SHN_UNDEF || value+size < value { // undefined, or its end lies beyond the last address
			continue
		}
		switch elf.ST_TYPE(info) {
		case elf.STT_FUNC, elf.STT_GNU_IFUNC:
		case elf.STT_NOTYPE, elf.STT_OBJECT: // GHC's code and some assembler code is of the latter
			if int(shndx) >= len(f.Sections) || f.Sections[shndx].Flags&elf.SHF_EXECINSTR == 0 {
				continue
			}
		default:
			continue
		}
		n := names.get(uint64(name))
		if n == "" {
			continue
		}
		sym := Symbol{Start: value, End: value + size, Name: n, inFile: name + 1}
		switch elf.ST_BIND(info) {
		case elf.STB_LOCAL:
			sym.rank |= rankLocal
		case elf.STB_WEAK:
			sym.rank |= rankWeak
		}
		list = append(list, sym)
	}
	if len(list) == 0 {
		return found{}
	}
	got.list = list
	return got
}

// mostContents is the largest section that is read, in bytes: no table of symbols is larger. A section header may
// claim any size, and Data allocates it.
const mostContents = 1 << 30

// contents reads a section.
func contents(s *elf.Section) ([]byte, error) {
	if s.Size > mostContents {
		return nil, fmt.Errorf("section %s: %#x bytes", s.Name, s.Size)
	}
	return s.Data()
}
