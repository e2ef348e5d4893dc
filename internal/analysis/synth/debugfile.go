package synth

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/internal/files/elffile"
)

// This file writes a debug file by hand: debug/elf only reads, and a file without contents needs none of elfout's
// segments.

// ErrNoBuildID is returned for an object without a build-id, whose debug file
// nothing would find.
var ErrNoBuildID = errors.New("no build-id: debuggers could not find its debug file")

// DebugFile returns a separate debug file, for the object in r, whose .debug_frame section has the contents frame. It
// has the headers of the object's sections without their contents, as debuggers expect (gdb's manual, "Debugging
// Information in Separate Files"), and the object's build-id. gdb finds the file as
// /usr/lib/debug/.build-id/xx/yy.debug. The error is ErrNoBuildID, or one of debug/elf.
func DebugFile(r io.ReaderAt, frame []byte) (image []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf does that on rare malformed files
			image, err = nil, fmt.Errorf("debug/elf: %v", p)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, err
	}
	// Sizes of Elf64_Ehdr, Elf64_Phdr and Elf64_Shdr. A note of more than 64 KB is no build-id; the bound is against
	// hostile sizes.
	const headerSize, progSize, sectionSize, maxNote = 64, 56, 64, 1 << 16
	var names bytes.Buffer
	names.WriteByte(0)
	name := func(s string) uint32 {
		off := names.Len()
		names.WriteString(s + "\x00")
		return uint32(off)
	}
	var loads []elf.ProgHeader // they say where the object begins
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			loads = append(loads, p.ProgHeader)
		}
	}
	body := make([]byte, headerSize+progSize*len(loads))
	lay := func(data []byte, align int) uint64 {
		body = append(body, make([]byte, -len(body)&(align-1))...)
		off := len(body)
		body = append(body, data...)
		return uint64(off)
	}
	headers := []elf.Section64{{}}
	hasID := false
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		h := elf.Section64{
			// As objcopy --only-keep-debug leaves them: NOBITS, with the object's address and size.
			Name: name(s.Name), Type: uint32(elf.SHT_NOBITS), Flags: uint64(s.Flags), Addr: s.Addr,
			Off: uint64(len(body)), Size: s.Size, Addralign: s.Addralign, Entsize: s.Entsize,
		}
		if s.Type == elf.SHT_NOTE && s.Size <= maxNote {
			note, err := s.Data()
			if err != nil {
				return nil, fmt.Errorf("section %s: %w", s.Name, err)
			}
			// Type NT_GNU_BUILD_ID (3) and the name GNU, as they lie in a note (LSB's ABI tag has type 1).
			hasID = hasID || bytes.Contains(note, []byte{3, 0, 0, 0, 'G', 'N', 'U', 0})
			h.Type, h.Off = uint32(elf.SHT_NOTE), lay(note, 4)
		}
		headers = append(headers, h)
	}
	if !hasID {
		return nil, ErrNoBuildID
	}
	headers = append(headers, elf.Section64{
		Name: name(".debug_frame"), Type: uint32(elf.SHT_PROGBITS), Off: lay(frame, 8), Size: uint64(len(frame)),
		Addralign: 8,
	})
	strings := elf.Section64{Name: name(".shstrtab"), Type: uint32(elf.SHT_STRTAB), Addralign: 1,
		Size: uint64(names.Len())}
	strings.Off = lay(names.Bytes(), 1)
	headers = append(headers, strings)
	shoff := lay(nil, 8)

	var tables, head bytes.Buffer
	put(&tables, headers)
	put(&head, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
			byte(f.OSABI)},
		Type: uint16(f.Type), Machine: uint16(f.Machine), Version: uint32(elf.EV_CURRENT), Entry: f.Entry,
		Phoff: headerSize, Shoff: shoff, Ehsize: headerSize, Phentsize: progSize, Phnum: uint16(len(loads)),
		Shentsize: sectionSize, Shnum: uint16(len(headers)), Shstrndx: uint16(len(headers) - 1),
	})
	for _, p := range loads { // the bytes are in the object
		put(&head, elf.Prog64{Type: uint32(p.Type), Flags: uint32(p.Flags), Vaddr: p.Vaddr, Paddr: p.Paddr, Memsz: p.Memsz,
			Align: p.Align})
	}
	copy(body, head.Bytes())
	return append(body, tables.Bytes()...), nil
}

// put writes fixed-size data.
func put(w *bytes.Buffer, data any) {
	if err := binary.Write(w, le, data); err != nil {
		panic(err) // not of fixed size
	}
}
