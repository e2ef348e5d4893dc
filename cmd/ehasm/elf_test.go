package main

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallELF makes a small x86-64 shared object with two functions and their
// .eh_frame; seed makes files that differ. Section headers come last, so that
// every cut of the file takes something away. It has no build-id.
func smallELF(t testing.TB, seed byte) []byte {
	t.Helper()
	f := frames{text: 0x40}
	f.cie()
	for i := range uint32(2) {
		// push %rbp; mov %rsp,%rbp; ...; ret
		f.fde(0, i*0x20, 0x20, 0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x40|(8+seed%8), 0x0c, 7, 8)
	}
	return f.elf()
}

// patched returns the small file with bytes replaced.
func patched(t *testing.T, off int, b ...byte) []byte {
	f := smallELF(t, 1)
	copy(f[off:], b)
	return f
}

// frames is the .eh_frame of a shared object without build-id.
type frames struct {
	text  uint32 // its size, in bytes
	frame []byte
}

const textOff = 0x100

func (f *frames) entry(body []byte) {
	for (len(body)+4)%8 != 0 {
		body = append(body, 0) // DW_CFA_nop
	}
	f.frame = append(binary.LittleEndian.AppendUint32(f.frame, uint32(len(body))), body...)
}

// cie adds a CIE and returns where: version 1, "zR", code alignment 1, data alignment
// -8, return address 16, pcrel|sdata4, DW_CFA_def_cfa rsp 8, DW_CFA_offset rip 1, and
// what is given.
func (f *frames) cie(more ...byte) uint32 {
	offset := uint32(len(f.frame))
	f.entry(append([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1}, more...))
	return offset
}

// fde adds an FDE for a stretch of the text.
func (f *frames) fde(cie, start, size uint32, insts ...byte) {
	le := binary.LittleEndian
	offset := uint32(len(f.frame))
	body := le.AppendUint32(nil, offset+4-cie)
	body = le.AppendUint32(body, start-f.text-(offset+8)) // relative to its own place
	body = le.AppendUint32(body, size)
	f.entry(append(append(body, 0), insts...))
}

func (f *frames) elf() []byte {
	le := binary.LittleEndian
	frame := append(f.frame, 0, 0, 0, 0)
	textSize := int(f.text)
	frameOff := textOff + textSize
	names := "\x00.text\x00.eh_frame\x00.shstrtab\x00"
	namesOff := frameOff + len(frame)
	shoff := (namesOff + len(names) + 7) &^ 7
	const sections = 4
	b := make([]byte, shoff+sections*64)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 3)  // ET_DYN
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[32:], 64)
	le.PutUint64(b[40:], uint64(shoff))
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	le.PutUint16(b[58:], 64)
	le.PutUint16(b[60:], sections)
	le.PutUint16(b[62:], sections-1)

	load := b[64:]
	le.PutUint32(load, 1)                     // PT_LOAD
	le.PutUint32(load[4:], 5)                 // R+X
	le.PutUint64(load[32:], uint64(namesOff)) // p_filesz
	le.PutUint64(load[40:], uint64(namesOff)) // p_memsz
	le.PutUint64(load[48:], 0x1000)           // p_align
	for i := range textSize {
		b[textOff+i] = 0x90
	}
	copy(b[frameOff:], frame)
	copy(b[namesOff:], names)
	section := func(i int, name uint32, typ uint32, flags, off, size uint64) {
		s := b[shoff+i*64:]
		le.PutUint32(s, name)
		le.PutUint32(s[4:], typ)
		le.PutUint64(s[8:], flags)
		if flags != 0 {
			le.PutUint64(s[16:], off)
		}
		le.PutUint64(s[24:], off)
		le.PutUint64(s[32:], size)
		le.PutUint64(s[48:], 1)
	}
	section(1, 1, 1, 6, textOff, uint64(textSize))
	section(2, 7, 1, 2, uint64(frameOff), uint64(len(frame)))
	section(3, 17, 3, 0, uint64(namesOff), uint64(len(names)))
	return b
}

func TestSmallELF(t *testing.T) {
	require.NotEqual(t, smallELF(t, 0), smallELF(t, 1))
}
