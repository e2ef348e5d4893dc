package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// plt names the entries of the procedure linkage tables after the functions that
// their relocations name: NAME@plt, as objdump and perf do. An entry jumps to the
// address in a slot that a relocation fills (x86-64 psABI 5.2), or pushes the
// number of its relocation and goes on to the dynamic loader: the entries of .plt
// where .plt.sec has those that are called, made for indirect branch tracking.
func plt(f *elf.File) []Symbol {
	slots := make(map[uint64]string)
	byNumber, room := relocated(f, ".rela.plt", slots)
	_, more := relocated(f, ".rela.dyn", slots)
	room = max(room, more)
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
		size := uint64(16)
		if sec.Entsize == 8 {
			size = 8
		}
		for at := uint64(0); at+size <= uint64(len(code)); at += size {
			start := sec.Addr + at
			if n := entryName(code[at:at+size], start, slots, byNumber); n != "" && len(n) <= room {
				room -= len(n)
				list = append(list, Symbol{Start: start, End: start + size, Name: n + "@plt", rank: rankLocal})
			}
		}
	}
	return list
}

// entryName returns the function that an entry at addr leads to, or "".
func entryName(code []byte, addr uint64, slots map[uint64]string, byNumber []string) string {
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

// relocated adds to slots the addresses that the section's relocations fill with
// the address of a function, and returns the functions in their order. room is what the names of their entries, which are
// copied, may take in bytes: each function has an entry in each of three tables at most.
func relocated(f *elf.File, section string, slots map[uint64]string) (list []string, room int) {
	const relaSize = 24
	rela := f.Section(section)
	if rela == nil || int(rela.Link) >= len(f.Sections) {
		return nil, 0
	}
	dyn := f.Sections[rela.Link]
	if int(dyn.Link) >= len(f.Sections) {
		return nil, 0
	}
	relocs, err1 := contents(rela)
	tab, err2 := contents(dyn)
	str, err3 := contents(f.Sections[dyn.Link])
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, 0
	}
	names := newStringTable(str)
	for ; len(relocs) >= relaSize; relocs = relocs[relaSize:] {
		info := binary.LittleEndian.Uint64(relocs[8:])
		name := ""
		switch elf.R_X86_64(uint32(info)) {
		case elf.R_X86_64_JMP_SLOT, elf.R_X86_64_GLOB_DAT:
			name = symbolName(tab, names, info>>32)
		}
		if name != "" {
			slots[binary.LittleEndian.Uint64(relocs)] = name
		}
		list = append(list, name)
	}
	return list, 3*len(str) + 1<<20
}

// symbolName returns the name of symbol i, or "" if there is none.
func symbolName(tab []byte, names *stringTable, i uint64) string {
	if i == 0 || (i+1)*symSize > uint64(len(tab)) {
		return ""
	}
	return names.get(uint64(binary.LittleEndian.Uint32(tab[i*symSize:])))
}
