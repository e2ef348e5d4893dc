package elfout

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/elffile"
)

// This file reads back what New wrote. Commands show it, and caches select files by it; whoever runs the code has
// package ehelf check it first.

// ErrNotEhElf is wrapped by the errors of ReadInfo.
var ErrNotEhElf = errors.New("not an eh_elf")

// maxInfoSection bounds the bytes that ReadInfo reads of one section. A hostile size must not make it take memory.
const maxInfoSection = 64 << 20

// Info holds what an eh_elf says about itself.
type Info struct {
	Note     abi.Note
	Build    []string // "key=value" lines: how the file was made
	BuildID  []byte   // the file's own, not the object's
	Soname   string
	TextSize int64  // bytes of generated code
	DataSize int64  // bytes of data that the code reads
	SiteSize int64  // bytes of the table of sites
	Sites    uint32 // version of the table of sites; 0: the file has none
	Relro    bool   // made with Source.Relro
	Symbols  []SymbolInfo
}

// SymbolInfo is a function of an eh_elf.
type SymbolInfo struct {
	Name     string
	Addr     uint64 // link-time address in the eh_elf
	Size     uint64 // bytes
	Exported bool
}

// ReadInfo reads what an eh_elf says about itself, through section headers if there are
// any, otherwise through program headers. It does not judge the code. The error wraps
// ErrNotEhElf if the file is not an eh_elf.
func ReadInfo(r io.ReaderAt) (info Info, err error) {
	defer func() {
		// debug/elf is not hardened against hostile input.
		if p := recover(); p != nil {
			info, err = Info{}, fmt.Errorf("%w: damaged: %v", ErrNotEhElf, p)
		}
	}()
	info, err = readInfo(r)
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrNotEhElf, err)
	}
	return info, nil
}

// readInfo reads an eh_elf by its section headers, or by its segments if it has none.
func readInfo(r io.ReaderAt) (Info, error) {
	// The headers are checked before any section is read: readers get files of any kind.
	f, err := elffile.Open(r)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return Info{}, errors.New("the file is truncated")
	case err != nil:
		return Info{}, err
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || f.Machine != elf.EM_X86_64 || f.Type != elf.ET_DYN {
		return Info{}, fmt.Errorf("not an x86-64 shared object, but %v %v %v %v", f.Class, f.Data, f.Machine, f.Type)
	}
	if len(f.Sections) == 0 {
		return readBare(f)
	}
	var info Info
	for _, s := range f.Sections {
		if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL {
			continue
		}
		end := s.Offset + s.FileSize
		if end < s.Offset || !readable(r, s.Offset, s.FileSize) {
			return Info{}, fmt.Errorf("section %s: %#x bytes at %#x are not in the file", s.Name, s.FileSize, s.Offset)
		}
		if s.Type == elf.SHT_NOTE {
			b, err := sectionBytes(s)
			if err == nil {
				err = info.addNotes(b)
			}
			if err != nil {
				return Info{}, fmt.Errorf("section %s: %w", s.Name, err)
			}
		}
		switch s.Name {
		case ".text":
			info.TextSize = int64(s.Size)
		case ".rodata":
			info.DataSize = int64(s.Size)
		case abi.SitesSection:
			info.SiteSize = int64(s.Size)
		}
	}
	for _, p := range f.Progs {
		info.Relro = info.Relro || p.Type == elf.PT_GNU_RELRO
	}
	if info.Note.Version == 0 {
		return Info{}, errors.New("no identity note")
	}
	sonames, err := f.DynString(elf.DT_SONAME)
	if err != nil {
		return Info{}, err
	}
	if len(sonames) > 0 {
		info.Soname = sonames[0]
	}
	return info, info.addSymbols(f)
}

// readable reports whether the bytes [off, off+size) are in the file. It reads the last byte alone: files have no holes
// that can't be read.
func readable(r io.ReaderAt, off, size uint64) bool {
	if off+size > 1<<62 {
		return false
	}
	if size == 0 {
		return true
	}
	n, _ := r.ReadAt(make([]byte, 1), int64(off+size-1))
	return n == 1
}

// sectionBytes reads a section of bounded size.
func sectionBytes(s *elf.Section) ([]byte, error) {
	if s.Flags&elf.SHF_COMPRESSED != 0 || s.FileSize > maxInfoSection {
		return nil, fmt.Errorf("%v of %d bytes, %v", s.Type, s.FileSize, s.Flags)
	}
	b := make([]byte, s.FileSize)
	_, err := io.ReadFull(io.NewSectionReader(s, 0, int64(s.FileSize)), b)
	return b, err
}

// addNotes reads the notes of a section or segment. Notes of other owners are passed over. The error is of a malformed
// note or of an identity note that abi.ParseNote refuses.
func (info *Info) addNotes(b []byte) error {
	var bad error
	err := eachNote(b, func(owner string, typ uint32, desc []byte) bool {
		switch {
		case owner == "GNU" && typ == noteGNUBuildID:
			info.BuildID = bytes.Clone(desc)
		case owner == abi.NoteOwner && typ == abi.NoteIdentity:
			info.Note, bad = abi.ParseNote(desc)
		case owner == abi.NoteOwner && typ == abi.NoteSites && len(desc) >= abi.SitesNoteSize:
			info.Sites = le.Uint32(desc)
		case owner == abi.NoteOwner && typ == abi.NoteBuild:
			for line := range strings.Lines(string(desc)) {
				if line = strings.TrimRight(line, "\n\x00"); line != "" {
					info.Build = append(info.Build, line)
				}
			}
		}
		return bad == nil
	})
	return errors.Join(bad, err)
}

// addSymbols takes the functions of .symtab or, in a stripped file, .dynsym. debug/elf reads those sections whole, so
// their sizes are checked first.
func (info *Info) addSymbols(f *elf.File) error {
	for _, s := range f.Sections {
		if (s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM || s.Type == elf.SHT_STRTAB) &&
			(s.FileSize > maxInfoSection || s.Flags&elf.SHF_COMPRESSED != 0) {
			return fmt.Errorf("section %s: %d bytes, %v", s.Name, s.FileSize, s.Flags)
		}
	}
	symbols, err := f.Symbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		symbols, err = f.DynamicSymbols()
	}
	if err != nil {
		return err
	}
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			info.Symbols = append(info.Symbols, SymbolInfo{
				Name: s.Name, Addr: s.Value, Size: s.Size, Exported: elf.ST_BIND(s.Info) == elf.STB_GLOBAL,
			})
		}
	}
	return nil
}
