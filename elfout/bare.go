package elfout

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/abi"
)

// This file reads what ReadInfo wants of files of Source.Bare, and of files from which a tool such as sstrip has
// removed the section headers.

// readBare reads a file without section headers by its program headers and dynamic section. TextSize counts what is
// mapped executable. Errors name no file.
func readBare(f *elf.File) (Info, error) {
	var info Info
	var read []byte // the R segment, which is mapped at address 0
	var notes, dynamic *elf.Prog
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0:
			info.TextSize = int64(p.Filesz)
			if p.Filesz > maxInfoSection {
				return Info{}, fmt.Errorf("a segment of %d bytes", p.Filesz)
			}
			// The code itself is not wanted; its last byte shows that the file is whole.
			if p.Filesz > 0 && !readable(p, p.Filesz-1, 1) {
				return Info{}, errors.New("the file is truncated")
			}
		case p.Type == elf.PT_LOAD:
			// readBare's bytesAt takes addresses for offsets.
			if p.Filesz > maxInfoSection || p.Off != 0 || p.Vaddr != 0 {
				return Info{}, fmt.Errorf("a segment of %d bytes", p.Filesz)
			}
			read = make([]byte, p.Filesz)
			if _, err := io.ReadFull(p.Open(), read); err != nil {
				return Info{}, errors.New("the file is truncated")
			}
		case p.Type == elf.PT_NOTE:
			notes = p
		case p.Type == elf.PT_DYNAMIC:
			dynamic = p
		}
	}
	// All of the rest is read through addresses in the R segment, where file offset and address are
	// the same.
	bytesAt := func(addr, n uint64) []byte {
		if addr > uint64(len(read)) || n > uint64(len(read))-addr {
			return nil
		}
		return read[addr : addr+n]
	}
	if notes == nil || dynamic == nil || bytesAt(notes.Vaddr, notes.Filesz) == nil ||
		bytesAt(dynamic.Vaddr, dynamic.Filesz) == nil {
		return Info{}, errors.New("no notes or no dynamic section")
	}
	if err := info.addNotes(bytesAt(notes.Vaddr, notes.Filesz)); err != nil {
		return Info{}, err
	}
	if info.Note.Version == 0 {
		return Info{}, errors.New("no identity note")
	}
	end := uint64(len(read)) // of the data
	if err := eachNote(bytesAt(notes.Vaddr, notes.Filesz), func(owner string, typ uint32, desc []byte) bool {
		if owner == abi.NoteOwner && typ == abi.NoteSites && len(desc) >= abi.SitesNoteSize {
			info.SiteSize = int64(le.Uint64(desc[16:]))
			end = min(end, le.Uint64(desc[8:]))
		}
		return true
	}); err != nil {
		return Info{}, err
	}
	// The code's data lie between the dynamic section and the table of sites, if there is one.
	if from := alignUp(dynamic.Vaddr+dynamic.Filesz, bareAlign); from < end {
		info.DataSize = int64(end - from)
	}
	return info, info.addDynamic(bytesAt(dynamic.Vaddr, dynamic.Filesz), bytesAt)
}

// addDynamic takes the name and the functions from the dynamic section. bytesAt returns the n bytes at an address, nil
// outside of the R segment. All functions have a name there: .dynsym holds the exported ones alone.
func (info *Info) addDynamic(dynamic []byte, bytesAt func(addr, n uint64) []byte) error {
	tags := map[elf.DynTag]uint64{}
	for b := dynamic; len(b) >= dynSize; b = b[dynSize:] {
		tags[elf.DynTag(le.Uint64(b))] = le.Uint64(b[8:])
	}
	names, hash := bytesAt(tags[elf.DT_STRTAB], tags[elf.DT_STRSZ]), bytesAt(tags[elf.DT_HASH], 8)
	name := func(off uint64) (string, bool) {
		if off >= uint64(len(names)) {
			return "", false
		}
		end := bytes.IndexByte(names[off:], 0)
		if end < 0 {
			return "", false
		}
		return string(names[off : off+uint64(end)]), true
	}
	soname, ok := name(tags[elf.DT_SONAME])
	if !ok || hash == nil {
		return errors.New("the dynamic section leads nowhere")
	}
	info.Soname = soname
	// DT_HASH's second word is the number of dynamic symbols
	symbols := bytesAt(tags[elf.DT_SYMTAB], uint64(le.Uint32(hash[4:]))*elf.Sym64Size)
	for b := symbols; len(b) >= elf.Sym64Size; b = b[elf.Sym64Size:] {
		if elf.ST_TYPE(b[4]) != elf.STT_FUNC {
			continue
		}
		name, ok := name(uint64(le.Uint32(b)))
		if !ok {
			return errors.New("a symbol without a name")
		}
		info.Symbols = append(info.Symbols, SymbolInfo{
			Name: name, Addr: le.Uint64(b[8:]), Size: le.Uint64(b[16:]), Exported: elf.ST_BIND(b[4]) == elf.STB_GLOBAL,
		})
	}
	return nil
}
