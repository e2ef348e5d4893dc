package prototypes

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/ehasm/ehasm/internal/debuginfo/ctf"
	"github.com/ehasm/ehasm/internal/files/elffile"
)

// This file finds the sections with prototypes in an ELF file, or takes raw BTF, and makes a Table
// of each. Both may be there; one that is damaged does not hide the other.

// ErrNone is wrapped if a file has no section with prototypes.
var ErrNone = errors.New("no .ctf and no .BTF section")

// ErrFormat is wrapped if a file is of another kind, by its first bytes.
var ErrFormat = errors.New("neither an ELF file nor BTF")

// magicBTF begins raw BTF: include/uapi/linux/btf.h.
const magicBTF = 0xeb9f

// maxSection bounds the sections that are read; vmlinux has 6 MB.
const maxSection = 1 << 28

// OfFile reads the sections of an ELF object, CTF before BTF, or raw BTF. With an error it also
// returns the tables that could be read.
func OfFile(r io.ReaderAt) (list []*Table, err error) {
	err = try(func() error {
		magic := make([]byte, len(elf.ELFMAG))
		// ReadAt may return fewer bytes: a short file is of no kind.
		n, _ := r.ReadAt(magic, 0)
		if n == len(magic) && binary.LittleEndian.Uint16(magic) == magicBTF {
			b, err := io.ReadAll(io.NewSectionReader(r, 0, maxSection))
			if err != nil {
				return err
			}
			t, err := openBTF(nil, b)
			if err == nil {
				list = []*Table{t}
			}
			return err
		}
		if string(magic[:n]) != elf.ELFMAG {
			return ErrFormat
		}
		f, err := elffile.Open(r)
		if err != nil {
			return fmt.Errorf("headers of the file: %w", err)
		}
		list, err = ofSections(f)
		return err
	})
	return list, err
}

// ofSections reads .ctf and .BTF. If one of them is bad, the other is still returned.
func ofSections(f *elf.File) (list []*Table, failed error) {
	found := false
	// Symbols are read at most once, and only if a section is there.
	several := sync.OnceValue(func() map[string]int { return severalFunctions(f.Symbols()) })
	for _, s := range []struct {
		name string
		open func(*elf.File, []byte) (*Table, error)
	}{{".ctf", openCTF}, {".BTF", openBTF}} {
		sec := f.Section(s.name)
		// SHT_NOBITS: the section was stripped and its header stays.
		if sec == nil || sec.Type == elf.SHT_NOBITS {
			continue
		}
		found = true
		b, err := sectionData(sec)
		var t *Table
		if err == nil {
			t, err = s.open(f, b)
		}
		if t != nil {
			// Names of several functions are ambiguous in both formats.
			t.several = several()
			list = append(list, t)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("section %s: %w", s.name, err))
		}
	}
	if !found {
		return nil, ErrNone
	}
	return list, failed
}

// sectionData returns a section, decompressed.
func sectionData(sec *elf.Section) ([]byte, error) {
	if sec.Size > maxSection {
		return nil, fmt.Errorf("more than %d bytes", maxSection)
	}
	return sec.Data()
}

// openCTF reads the functions at once: their names are in no order.
func openCTF(f *elf.File, b []byte) (*Table, error) {
	// CTF may name functions by their position in a symbol table, and strings by a string table of
	// the file.
	return tableOfCTF(ctf.Read(b, ctf.Symbols{
		Dynamic:        sync.OnceValue(func() []string { return functionNames(f.DynamicSymbols()) }),
		Static:         sync.OnceValue(func() []string { return functionNames(f.Symbols()) }),
		DynamicStrings: sync.OnceValue(func() []byte { return stringTable(f, ".dynstr") }),
		StaticStrings:  sync.OnceValue(func() []byte { return stringTable(f, ".strtab") }),
	}))
}

// tableOfCTF returns the functions of a .ctf section by name.
func tableOfCTF(list []ctf.Function, err error) (*Table, error) {
	byName := make(map[string][]function)
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
		byName[list[i].Name] = append(byName[list[i].Name], &list[i])
	}
	return &Table{
		source:    CTF,
		mu:        new(sync.Mutex),
		functions: func(name string) ([]function, error) { return byName[name], nil },
		names:     func() []string { return names },
	}, err
}

// stringTable returns a string table, nil if it cannot be read.
func stringTable(f *elf.File, name string) []byte {
	sec := f.Section(name)
	// A section without contents counts as missing.
	if sec == nil || sec.Type == elf.SHT_NOBITS {
		return nil
	}
	b, err := sectionData(sec)
	if err != nil {
		return nil
	}
	return b
}

// functionNames are the symbols in the order that .ctf counts them in: functions that are
// defined, and have a name.
func functionNames(list []elf.Symbol, err error) (names []string) {
	if err != nil {
		return nil
	}
	for _, s := range list {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Section != elf.SHN_UNDEF && s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// severalFunctions counts the functions of each name that several functions have: static
// ones of several units.
func severalFunctions(list []elf.Symbol, err error) map[string]int {
	if err != nil {
		return nil
	}
	type place struct {
		section elf.SectionIndex
		value   uint64
	}
	// The first place of each name, and all others, which few names have.
	first := make(map[string]place)
	others := make(map[string]map[place]bool)
	for _, s := range list {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		// Symbols at one place are aliases, which share a prototype.
		at := place{s.Section, s.Value}
		was, met := first[s.Name]
		switch {
		case !met:
			first[s.Name] = at
		case was != at:
			if others[s.Name] == nil {
				others[s.Name] = make(map[place]bool)
			}
			others[s.Name][at] = true
		}
	}
	several := make(map[string]int)
	for name, at := range others {
		// The first place counts, too.
		several[name] = 1 + len(at)
	}
	return several
}

// try turns panics into errors: files may shrink while they are mapped, and other packages'
// readers may panic on malformed input.
func try(f func() error) (err error) {
	// A fault in a mapped file becomes a panic of this goroutine, which recover can end.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading types: %v", p)
		}
	}()
	return f()
}
