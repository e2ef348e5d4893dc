package prototypes

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/ehasm/ehasm/internal/files/elffile"
)

// This file finds the .BTF section of an ELF file, or takes raw BTF, and makes a Table of it.

// ErrNone is wrapped if a file has no section with prototypes.
var ErrNone = errors.New("no .BTF section")

// ErrFormat is wrapped if a file is of another kind, by its first bytes.
var ErrFormat = errors.New("neither an ELF file nor BTF")

// magicBTF begins raw BTF: include/uapi/linux/btf.h.
const magicBTF = 0xeb9f

// maxSection bounds the sections that are read; vmlinux has 6 MB.
const maxSection = 1 << 28

// OfFile reads the .BTF section of an ELF object, or raw BTF.
func OfFile(r io.ReaderAt) (t *Table, err error) {
	err = try(func() error {
		magic := make([]byte, len(elf.ELFMAG))
		// ReadAt may return fewer bytes: a short file is of no kind.
		n, _ := r.ReadAt(magic, 0)
		if n == len(magic) && binary.LittleEndian.Uint16(magic) == magicBTF {
			b, err := io.ReadAll(io.NewSectionReader(r, 0, maxSection))
			if err == nil {
				t, err = openBTF(b)
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
		t, err = ofSection(f)
		return err
	})
	return t, err
}

// ofSection reads .BTF.
func ofSection(f *elf.File) (*Table, error) {
	sec := f.Section(".BTF")
	// SHT_NOBITS: the section was stripped and its header stays.
	if sec == nil || sec.Type == elf.SHT_NOBITS {
		return nil, ErrNone
	}
	b, err := sectionData(sec)
	var t *Table
	if err == nil {
		t, err = openBTF(b)
	}
	if err != nil {
		return nil, fmt.Errorf("section .BTF: %w", err)
	}
	// BTF has no addresses: names of several functions are ambiguous.
	t.several = severalFunctions(f.Symbols())
	return t, nil
}

// sectionData returns a section, decompressed.
func sectionData(sec *elf.Section) ([]byte, error) {
	if sec.Size > maxSection {
		return nil, fmt.Errorf("more than %d bytes", maxSection)
	}
	return sec.Data()
}

// severalFunctions counts the functions of each name that several functions have: static
// ones of several units.
func severalFunctions(list []elf.Symbol, err error) map[string]int {
	if err != nil {
		return nil
	}
	type definition struct {
		section elf.SectionIndex
		value   uint64
	}
	// The first place of each name, and all others, which few names have.
	first := make(map[string]definition)
	others := make(map[string]map[definition]bool)
	for _, s := range list {
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Section == elf.SHN_UNDEF {
			continue
		}
		// Symbols at one place are aliases, which share a prototype.
		where := definition{s.Section, s.Value}
		was, met := first[s.Name]
		switch {
		case !met:
			first[s.Name] = where
		case was != where:
			if others[s.Name] == nil {
				others[s.Name] = make(map[definition]bool)
			}
			others[s.Name][where] = true
		}
	}
	several := make(map[string]int)
	for name, where := range others {
		// The first place counts, too.
		several[name] = 1 + len(where)
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
