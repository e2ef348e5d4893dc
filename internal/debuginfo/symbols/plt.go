package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"github.com/ehasm/ehasm/internal/files/elffile"
)

// pltMark ends the name of an entry of a procedure linkage table.
const pltMark = "@plt"

// plt names the entries of the procedure linkage tables after the functions that
// their relocations name: NAME@plt, as objdump and perf do. An entry jumps to the
// address in a slot that a relocation fills (x86-64 psABI 5.2), or pushes the
// number of its relocation and goes on to the dynamic loader: the entries of .plt
// where .plt.sec has those that are called, made for indirect branch tracking.
func plt(f *elf.File) []Symbol {
	dyn := f.SectionByType(elf.SHT_DYNSYM)
	if dyn == nil || int(dyn.Link) >= len(f.Sections) {
		return nil
	}
	tab, err1 := contents(dyn)
	str, err2 := contents(f.Sections[dyn.Link])
	if err1 != nil || err2 != nil {
		return nil
	}
	names, slots := newStringTable(str), make(map[uint64]string)
	var byNumber []string // functions by the number of their relocation
	for r, err := range elffile.Relocs(f) {
		name := ""
		if err == nil && (r.Type == elf.R_X86_64_JMP_SLOT || r.Type == elf.R_X86_64_GLOB_DAT) {
			name = symbolName(tab, names, uint64(r.Symbol))
		}
		if name != "" {
			slots[r.Addr] = name
		}
		// the number that .plt pushes counts these relocations, from 0: x86-64 psABI 5.2
		if r.Type == elf.R_X86_64_JMP_SLOT { // those of other types follow
			byNumber = append(byNumber, name)
		}
	}
	room := 3*len(str) + 1<<20 // for names, which are copied: each function has an entry in each of three tables at most
	var list []Symbol
	for _, name := range []string{".plt", ".plt.sec", ".plt.got"} {
		sec := f.Section(name)
		if sec == nil || sec.Type != elf.SHT_PROGBITS {
			continue
		}
		code, err := contents(sec)
		if err != nil {
			continue
		}
		// Entries have 16 bytes, those of older .plt.got 8.
		size := uint64(16)
		if sec.Entsize == 8 {
			size = 8
		}
		for offset := uint64(0); offset+size <= uint64(len(code)); offset += size {
			start := sec.Addr + offset
			if n := entryName(code[offset:offset+size], start, slots, byNumber); n != "" && len(n) <= room {
				room -= len(n)
				list = append(list, Symbol{Start: start, End: start + size, Name: n + pltMark, rank: rankLocal})
			}
		}
	}
	return list
}

// entryName returns the function that an entry at addr leads to, or "".
func entryName(code []byte, addr uint64, slots map[uint64]string, byNumber []string) string {
	// The bytes before the jump count for its operand, which is relative to the next instruction.
	full := code
	for _, prefix := range [][]byte{{0xf3, 0x0f, 0x1e, 0xfa}, {0xf2}} { // endbr64; bnd
		code = bytes.TrimPrefix(code, prefix)
	}
	const jmp, push = 6, 5 // sizes of jmp *disp32(%rip) and push imm32
	switch {
	case len(code) >= jmp && code[0] == 0xff && code[1] == 0x25:
		next := addr + uint64(len(full)-len(code)) + jmp
		return slots[next+uint64(int64(int32(binary.LittleEndian.Uint32(code[2:]))))]
	case len(code) >= push && code[0] == 0x68:
		if i := binary.LittleEndian.Uint32(code[1:]); uint64(i) < uint64(len(byNumber)) {
			return byNumber[i]
		}
	}
	return ""
}

// symbolName returns the name of symbol i, or "" if there is none.
func symbolName(tab []byte, names *stringTable, i uint64) string {
	if i == 0 || (i+1)*symSize > uint64(len(tab)) {
		return ""
	}
	return names.get(uint64(binary.LittleEndian.Uint32(tab[i*symSize:])))
}
