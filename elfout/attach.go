package elfout

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// This file adds a section to a finished program or library: .sframe, made from its DWARF. objcopy --add-section makes
// sections that no segment loads, and unwinders look in memory.

// Attachment is what Attach adds to a file.
type Attachment struct {
	Section string       // its name
	Segment elf.ProgType // that says where the contents are, beside the PT_LOAD
	// Contents returns the contents for their link-time address.
	Contents func(addr uint64) ([]byte, error)
}

const (
	attachAlign = 0x1000    // of the segment: the page size of x86-64
	attachHole  = 256 << 20 // bound of the bytes between the file's end and the segment
)

// Attach returns a copy of an executable or a shared object with one more loaded, read-only segment at its end. The
// segment holds a larger table of program headers and the attachment's contents. Everything else stays in its place in
// the file and in memory. A file with section headers gets a section for the contents too.
//
// The new segment's address is as far from its place in the file as the first segment's. Kernels before 5.18 take this
// for granted when they tell a program where its program headers are. Errors say which property of the file prevents
// it.
func Attach(file []byte, a Attachment) ([]byte, error) {
	h, progs, err := programHeaders(file)
	if err != nil {
		return nil, err
	}
	first, last, end := -1, -1, uint64(0)
	for i := range progs {
		p := &progs[i]
		if elf.ProgType(p.Type) == a.Segment {
			return nil, fmt.Errorf("the file has %s in memory already", a.Section)
		}
		if elf.ProgType(p.Type) == elf.PT_LOAD {
			if first < 0 {
				first = i
			}
			last, end = i, max(end, p.Vaddr+p.Memsz)
		}
	}
	if first < 0 {
		return nil, errors.New("the file has no segment that is loaded")
	}
	bias := progs[first].Vaddr - progs[first].Off
	// Behind the end of the last segment in memory, too: .bss reaches beyond the file.
	off := (max(uint64(len(file)), end-bias) + attachAlign - 1) &^ (attachAlign - 1)
	if off-uint64(len(file)) > attachHole { // also if an address overflowed
		return nil, fmt.Errorf("the segment would not begin within %d bytes after the file's end", attachHole)
	}
	// One PT_LOAD more, and one of type a.Segment.
	headers := uint64(len(progs)+2) * uint64(h.Phentsize)
	start := off + (headers+15)&^15 // of the contents
	contents, err := a.Contents(start + bias)
	if err != nil {
		return nil, err
	}
	load := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: off, Vaddr: off + bias, Paddr: off + bias,
		Align: attachAlign}
	load.Filesz = start + uint64(len(contents)) - off
	load.Memsz = load.Filesz
	where := elf.Prog64{Type: uint32(a.Segment), Flags: uint32(elf.PF_R), Off: start,
		Vaddr: start + bias, Paddr: start + bias,
		Filesz: uint64(len(contents)), Memsz: uint64(len(contents)), Align: 8}
	var table []elf.Prog64 // PT_LOADs ascend
	table = append(table, progs[:last+1]...)
	table = append(append(append(table, load), progs[last+1:]...), where)
	for i := range table {
		// glibc takes a program's load bias from AT_PHDR and this address.
		if p := &table[i]; elf.ProgType(p.Type) == elf.PT_PHDR {
			p.Off, p.Vaddr, p.Paddr, p.Filesz, p.Memsz = off, off+bias, off+bias, headers, headers
		}
	}
	h.Phoff, h.Phnum = off, uint16(len(table))

	out := append(bytes.Clone(file), make([]byte, start-uint64(len(file)))...)
	if _, err := binary.Encode(out[off:], le, table); err != nil {
		return nil, err
	}
	out = append(out, contents...)
	if out, err = attachSection(out, h, a.Section, where); err != nil {
		return nil, err
	}
	_, err = binary.Encode(out, le, h)
	return out, err
}

// programHeaders returns the headers of an ELF file that a kernel or a loader loads. The bound of 1000 is far above the
// number that linkers write, about a dozen.
func programHeaders(file []byte) (*elf.Header64, []elf.Prog64, error) {
	h := new(elf.Header64)
	if _, err := binary.Decode(file, le, h); err != nil || string(h.Ident[:4]) != elf.ELFMAG ||
		h.Ident[elf.EI_CLASS] != byte(elf.ELFCLASS64) {
		return nil, nil, errors.New("not a 64-bit ELF file")
	}
	progs := make([]elf.Prog64, h.Phnum)
	if h.Phentsize != uint16(binary.Size(elf.Prog64{})) || h.Phoff > uint64(len(file)) || h.Phnum > 1000 {
		return nil, nil, errors.New("program headers of another size, too many, or beyond the file's end")
	}
	if _, err := binary.Decode(file[h.Phoff:], le, progs); err != nil {
		return nil, nil, fmt.Errorf("program headers: %w", err)
	}
	return h, progs, nil
}

// attachSection appends a table of section headers with one more to out, and a larger table of their names. The old
// table and the old names stay in the file, unused: what lies behind them keeps its place.
func attachSection(out []byte, h *elf.Header64, name string, where elf.Prog64) ([]byte, error) {
	if h.Shoff == 0 || h.Shnum == 0 {
		return out, nil // sstrip removes them
	}
	// From SHN_LORESERVE (0xff00) sections on, section 0 has the number and the index of the names instead (gABI
	// chapter 4, e_shnum).
	sections := make([]elf.Section64, h.Shnum)
	if h.Shnum >= uint16(elf.SHN_LORESERVE)-1 || h.Shentsize != uint16(binary.Size(elf.Section64{})) ||
		h.Shoff > uint64(len(out)) || int(h.Shstrndx) >= len(sections) {
		return nil, errors.New("section headers of another size, too many, or beyond the file's end")
	}
	if _, err := binary.Decode(out[h.Shoff:], le, sections); err != nil {
		return nil, fmt.Errorf("section headers: %w", err)
	}
	names := &sections[h.Shstrndx]
	if names.Off > uint64(len(out)) || names.Size > uint64(len(out))-names.Off {
		return nil, errors.New("the names of sections are beyond the file's end")
	}
	text := append(bytes.Clone(out[names.Off:names.Off+names.Size]), name+"\x00"...)
	sections = append(sections, elf.Section64{Name: uint32(names.Size), Type: uint32(elf.SHT_PROGBITS),
		Flags: uint64(elf.SHF_ALLOC),
		Addr:  where.Vaddr, Off: where.Off, Size: where.Filesz, Addralign: where.Align})
	names = &sections[h.Shstrndx]
	names.Off, names.Size = uint64(len(out)), uint64(len(text))
	out = padTo(append(out, text...), 8)
	h.Shoff, h.Shnum = uint64(len(out)), uint16(len(sections))
	return binary.Append(out, le, sections)
}
