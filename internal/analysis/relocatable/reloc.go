package relocatable

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// relaSize is the size of an Elf64_Rela (gABI chapter 4, "Relocation").
const relaSize = 24

// relocate applies the relocations in section i, if it holds relocations for a
// section of the image.
func (l *linker) relocate(i int) error {
	s := l.file.Sections[i]
	if s.Type != elf.SHT_RELA || uint64(s.Info) >= uint64(len(l.addrs)) {
		return nil
	}
	// Debug sections have a place in the file, but no address.
	base, isDebug := l.debug[int(s.Info)]
	if !isDebug {
		base = l.addrs[s.Info]
	}
	if base == 0 {
		return nil // the target is not in the image
	}
	target := l.file.Sections[s.Info]
	if target.Type == elf.SHT_NOBITS || s.FileSize > uint64(l.fileSize) {
		return fmt.Errorf("%w: section %q", ErrMalformed, s.Name)
	}
	data, err := s.Data()
	if err != nil {
		return fmt.Errorf("%w: section %q: %v", ErrMalformed, s.Name, err)
	}
	end := uint64(len(l.image))
	// r_offset, r_info, r_addend.
	for ; len(data) >= relaSize; data = data[relaSize:] {
		off, info := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		addend := binary.LittleEndian.Uint64(data[16:])
		typ, sym := elf.R_X86_64(uint32(info)), uint32(info>>32)
		width := fieldSize(typ)
		// A field must lie in its section and in the image.
		if off > target.Size || uint64(width) > target.Size-off || base+off+uint64(width) > end {
			return fmt.Errorf("%w: section %q: offset %#x lies outside %s", ErrMalformed, s.Name, off, target.Name)
		}
		value, ok, err := l.value(typ, sym, addend, base+off)
		if err != nil {
			return fmt.Errorf("section %q: offset %#x: %w", s.Name, off, err)
		}
		if !ok {
			// The field keeps its addend, or zero.
			continue
		}
		// Values that do not fit are cut off.
		field := l.image[base+off:]
		switch width {
		case 1:
			field[0] = byte(value)
		case 2:
			binary.LittleEndian.PutUint16(field, uint16(value))
		case 4:
			binary.LittleEndian.PutUint32(field, uint32(value))
		case 8:
			binary.LittleEndian.PutUint64(field, value)
		}
	}
	return nil
}

// fieldSize returns the number of bytes that a relocation changes (x86-64 psABI table 4.10).
func fieldSize(typ elf.R_X86_64) int {
	switch typ {
	case elf.R_X86_64_NONE, elf.R_X86_64_TLSDESC_CALL:
		return 0
	case elf.R_X86_64_8, elf.R_X86_64_PC8:
		return 1
	case elf.R_X86_64_16, elf.R_X86_64_PC16:
		return 2
	case elf.R_X86_64_64, elf.R_X86_64_PC64, elf.R_X86_64_GOTOFF64, elf.R_X86_64_GOTPC64, elf.R_X86_64_GOT64,
		elf.R_X86_64_GOTPCREL64, elf.R_X86_64_PLTOFF64, elf.R_X86_64_SIZE64, elf.R_X86_64_DTPOFF64, elf.R_X86_64_TPOFF64:
		return 8
	}
	return 4
}

// value computes a relocation at address p (x86-64 psABI table 4.10). ok is false for
// relocations that leave the field unchanged: thread-local storage has no address in
// the image.
func (l *linker) value(typ elf.R_X86_64, sym uint32, addend, p uint64) (v uint64, ok bool, err error) {
	// A symbol without an address leaves the field as it is.
	s, known := l.address(sym)
	switch typ {
	// S + A
	case elf.R_X86_64_64, elf.R_X86_64_32, elf.R_X86_64_32S, elf.R_X86_64_16, elf.R_X86_64_8:
		return s + addend, known, nil
	// S + A - P; calls through the PLT go directly.
	case elf.R_X86_64_PC64, elf.R_X86_64_PC32, elf.R_X86_64_PLT32, elf.R_X86_64_PC16, elf.R_X86_64_PC8:
		return s + addend - p, known, nil
	// G + GOT + A - P
	case elf.R_X86_64_GOTPCREL, elf.R_X86_64_GOTPCRELX, elf.R_X86_64_REX_GOTPCRELX, elf.R_X86_64_GOTPCREL64:
		return l.slotOf(sym) + addend - p, known, nil
	// GOT + A - P
	case elf.R_X86_64_GOTPC32, elf.R_X86_64_GOTPC64:
		return l.got + addend - p, true, nil
	// G + A
	case elf.R_X86_64_GOT32, elf.R_X86_64_GOT64:
		return l.slotOf(sym) - l.got + addend, known, nil
	// S + A - GOT
	case elf.R_X86_64_GOTOFF64, elf.R_X86_64_PLTOFF64:
		return s - l.got + addend, known, nil
	case elf.R_X86_64_NONE, elf.R_X86_64_SIZE32, elf.R_X86_64_SIZE64,
		elf.R_X86_64_TLSGD, elf.R_X86_64_TLSLD, elf.R_X86_64_DTPOFF32, elf.R_X86_64_DTPOFF64, elf.R_X86_64_GOTTPOFF,
		elf.R_X86_64_TPOFF32, elf.R_X86_64_TPOFF64, elf.R_X86_64_GOTPC32_TLSDESC, elf.R_X86_64_TLSDESC_CALL,
		44, 45, 43, 50: // CODE_4_* and CODE_6_*: of APX, with a GOTPCREL or TLS operand
		return 0, false, nil
	}
	return 0, false, fmt.Errorf("%w: relocation type %d", ErrMalformed, uint32(typ))
}

// slotOf returns the address of a symbol's slot in the GOT, and fills it.
func (l *linker) slotOf(sym uint32) uint64 {
	if uint64(sym) > uint64(len(l.symbols)) {
		return l.got
	}
	// Each symbol has its slot.
	entry := l.got + uint64(sym)*slot
	if addr, ok := l.address(sym); ok {
		binary.LittleEndian.PutUint64(l.image[entry:], addr)
	}
	return entry
}
