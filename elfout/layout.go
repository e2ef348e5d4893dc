package elfout

import (
	"debug/elf"
	"math"
)

// layout gives every chunk its offset and address.
//
// No page of the file is padded: .text follows the read-only sections directly,
// and its address is congruent to its offset modulo the page size, one page
// further on (as ld lays out with -z noseparate-code). The page of the file in
// which both meet is therefore mapped twice: once readable, where its tail shows
// the first instructions, and once executable, where its head shows the last
// read-only data. Neither is writable, and no jump of the code leads there.
//
// With Source.Relro, .dynamic follows .text in the same way, and alone is on its
// page of memory.
func (im *Image) layout() error {
	off := ehdrSize + uint64(len(im.phdrs()))*phdrSize
	for _, c := range im.loaded {
		c.off = alignUp(off, c.align)
		c.addr = c.off
		off = c.end()
	}
	im.readEnd = off
	im.text.follow(off, off)
	off = im.text.end()
	end := im.text.addr + im.text.size
	if im.src.Relro {
		im.dynamic.follow(off, end)
		off = im.dynamic.end()
		im.padding.off = off
		im.padding.addr = im.dynamic.addr + im.dynamic.size
		// Up to the end of the page: glibc before 2.35 makes those pages of
		// PT_GNU_RELRO read-only that end in it.
		end = alignUp(im.padding.addr, pageSize)
		im.padding.size = end - im.padding.addr
	}
	for _, c := range im.others {
		c.off = alignUp(off, c.align)
		off = c.end()
	}
	size := off
	if !im.src.Bare {
		im.shoff = alignUp(off, sectionAlign)
		size = im.shoff + uint64(len(im.chunks)+1)*shdrSize
	}
	if size > math.MaxInt32 || end > math.MaxInt32 {
		return ErrTooLarge
	}
	im.bytes = make([]byte, size)
	return nil
}

// follow places c, which begins a segment, on the next page of memory after a
// segment that ends at the file offset off and the address end.
func (c *chunk) follow(off, end uint64) {
	c.off = alignUp(off, c.align)
	c.addr = alignUp(end, pageSize) + c.off%pageSize
}

// writeEhdr writes the ELF header (gABI figure 4-3).
func (im *Image) writeEhdr(b []byte) {
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	b[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	b[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	le.PutUint16(b[16:], uint16(elf.ET_DYN))
	le.PutUint16(b[18:], uint16(elf.EM_X86_64))
	le.PutUint32(b[20:], uint32(elf.EV_CURRENT))
	le.PutUint64(b[32:], ehdrSize) // e_phoff; e_entry stays 0
	le.PutUint64(b[40:], im.shoff)
	le.PutUint16(b[52:], ehdrSize)
	le.PutUint16(b[54:], phdrSize)
	le.PutUint16(b[56:], uint16(len(im.phdrs())))
	le.PutUint16(b[58:], shdrSize)
	if !im.src.Bare {
		le.PutUint16(b[60:], uint16(len(im.chunks)+1))
		le.PutUint16(b[62:], im.shstrtab.index)
	}
}

// phdrs returns the program headers, whose number is known before layout.
func (im *Image) phdrs() []elf.Prog64 {
	const read = uint32(elf.PF_R)
	access := read // to .dynamic
	if im.src.Relro {
		access |= uint32(elf.PF_W)
	}
	list := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: read, Filesz: im.readEnd, Align: pageSize},
		{Type: uint32(elf.PT_LOAD), Flags: read | uint32(elf.PF_X), Off: im.text.off, Vaddr: im.text.addr,
			Filesz: im.text.size, Align: pageSize},
	}
	if im.src.Relro {
		list = append(list, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: access, Off: im.dynamic.off, Vaddr: im.dynamic.addr,
			Filesz: im.dynamic.size, Memsz: im.dynamic.size + im.padding.size, Align: pageSize,
		})
	}
	noteEnd := im.notes[len(im.notes)-1].end()
	list = append(list,
		elf.Prog64{Type: uint32(elf.PT_DYNAMIC), Flags: access, Off: im.dynamic.off, Vaddr: im.dynamic.addr,
			Filesz: im.dynamic.size, Align: 8},
		// one segment of notes: readers that know only PT_NOTE find both
		elf.Prog64{Type: uint32(elf.PT_NOTE), Flags: read, Off: im.notes[0].off, Vaddr: im.notes[0].addr,
			Filesz: noteEnd - im.notes[0].off, Align: noteAlign},
		elf.Prog64{Type: uint32(elf.PT_GNU_EH_FRAME), Flags: read, Off: im.ehFrameHdr.off, Vaddr: im.ehFrameHdr.addr,
			Filesz: im.ehFrameHdr.size, Align: 4},
		elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: read | uint32(elf.PF_W), Align: 16},
	)
	if im.src.Relro {
		list = append(list, elf.Prog64{
			Type: uint32(elf.PT_GNU_RELRO), Flags: read, Off: im.dynamic.off, Vaddr: im.dynamic.addr,
			Filesz: im.dynamic.size, Memsz: im.dynamic.size + im.padding.size, Align: 1,
		})
	}
	return list
}

// writePhdrs writes the program headers (gABI figure 5-1).
func (im *Image) writePhdrs(b []byte) {
	for i, p := range im.phdrs() {
		e := b[i*phdrSize:]
		le.PutUint32(e[0:], p.Type)
		le.PutUint32(e[4:], p.Flags)
		le.PutUint64(e[8:], p.Off)
		le.PutUint64(e[16:], p.Vaddr)
		le.PutUint64(e[24:], p.Vaddr) // p_paddr
		le.PutUint64(e[32:], p.Filesz)
		le.PutUint64(e[40:], max(p.Filesz, p.Memsz))
		le.PutUint64(e[48:], p.Align)
	}
}
