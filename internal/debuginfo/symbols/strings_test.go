package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStringTable compares the strings with those that a search finds.
func TestStringTable(t *testing.T) {
	for _, text := range []string{"", "\x00", "a", "\x00a\x00", strings.Repeat("b", nameBlock) + "\x00c",
		strings.Repeat("b", nameBlock-1) + "\x00" + strings.Repeat("c", 3*nameBlock) + "\x00\x00d"} {
		table := newStringTable([]byte(text))
		for off := range len(text) {
			want, _, _ := strings.Cut(text[off:], "\x00")
			require.Equal(t, want, table.get(uint64(off)), "%d of %d", off, len(text))
		}
		assert.Empty(t, table.get(uint64(len(text))))
		assert.Empty(t, table.get(1<<63))
	}
}

// TestLongNames: functions, and entries of the procedure linkage table, with one name of a megabyte share it.
func TestLongNames(t *testing.T) {
	const count, text = 4000, 0x1000
	var syms, relocs, plt []byte
	for i := range uint64(count) {
		syms = binary.LittleEndian.AppendUint64(syms, uint64(elf.STT_FUNC)<<32|1<<48)
		syms = binary.LittleEndian.AppendUint64(syms, text+i/8)
		syms = binary.LittleEndian.AppendUint64(syms, 1)
		relocs = binary.LittleEndian.AppendUint64(relocs, 0x100000)
		relocs = binary.LittleEndian.AppendUint64(relocs, 1<<32|uint64(elf.R_X86_64_JMP_SLOT))
		relocs = binary.LittleEndian.AppendUint64(relocs, 0)
		jmp := binary.LittleEndian.AppendUint32([]byte{0xff, 0x25}, uint32(0x100000-(0x80000+16*i+6)))
		plt = append(plt, append(jmp, make([]byte, 10)...)...)
	}
	image := elfWith([]section{
		{name: ".text", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: 6, Addr: text},
			data: make([]byte, 4096)},
		{name: ".strtab", Section64: elf.Section64{Type: uint32(elf.SHT_STRTAB)}, data: bytes.Repeat([]byte("_"), 1<<20)},
		{name: ".symtab", Section64: elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: 2, Entsize: symSize}, data: syms},
		{name: ".dynsym", Section64: elf.Section64{Type: uint32(elf.SHT_DYNSYM), Link: 2, Entsize: symSize}, data: syms},
		{name: ".rela.plt", Section64: elf.Section64{Type: uint32(elf.SHT_RELA), Flags: 2, Link: 4, Entsize: 24},
			data: relocs},
		{name: ".plt", Section64: elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: 6, Addr: 0x80000}, data: plt},
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table, err := FromELF(bytes.NewReader(image), "", nil, nil)
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "of a file of %d", len(image))
	require.NotNil(t, table.Find(text))
	assert.Len(t, table.Find(text).Name, 1<<20)
	require.NotNil(t, table.Find(0x80000))
	assert.Len(t, table.Find(0x80000).Name, 1<<20+len("@plt"))
	assert.Nil(t, table.Find(0x80000+16*(count-1)), "entries of more bytes than the names of a linker's have no names")
}

type section struct {
	elf.Section64
	name string
	data []byte
}

// elfWith returns an ELF file of sections, the first of which has number 1. Those in memory without an address are at
// their offset.
func elfWith(list []section) []byte {
	list = append([]section{{}}, append(list,
		section{name: ".shstrtab", Section64: elf.Section64{Type: uint32(elf.SHT_STRTAB)}})...)
	names := &list[len(list)-1].data
	for i := range list {
		list[i].Name = uint32(len(*names))
		*names = append(append(*names, list[i].name...), 0)
	}
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56,
		Shentsize: 64,
		Shnum:     uint16(len(list)), Shstrndx: uint16(len(list) - 1)}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	var data, headers []byte
	for _, s := range list {
		s.Off, s.Size = uint64(64+len(data)), uint64(len(s.data))
		data = append(data, s.data...)
		if s.Addr == 0 && s.Flags&uint64(elf.SHF_ALLOC) != 0 {
			s.Addr = s.Off
		}
		headers, _ = binary.Append(headers, binary.LittleEndian, s.Section64)
	}
	h.Shoff = uint64(64 + len(data))
	h.Phoff, h.Phnum = h.Shoff+uint64(len(headers)), 1
	headers, _ = binary.Append(headers, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_LOAD), Filesz: h.Shoff,
		Memsz: h.Shoff})
	image, _ := binary.Append(nil, binary.LittleEndian, h)
	return append(append(image, data...), headers...)
}
