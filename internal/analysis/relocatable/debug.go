package relocatable

import (
	"debug/elf"
	"fmt"
	"slices"
)

// debugSections are the sections from which source lines are read (DWARF 5 section 7.31, figure B.1).
var debugSections = []string{
	".debug_info", ".debug_abbrev", ".debug_line", ".debug_line_str", ".debug_str", ".debug_str_offsets",
	".debug_addr", ".debug_ranges", ".debug_rnglists", ".debug_aranges",
}

// addDebug appends debug sections, decompressed, to the image. It leaves out sections of groups of which a linker keeps
// one, such as type units: they have no lines.
func (l *linker) addDebug() error {
	for i, s := range l.file.Sections {
		if !slices.Contains(debugSections, s.Name) || s.Type != elf.SHT_PROGBITS ||
			s.Flags&(elf.SHF_ALLOC|elf.SHF_GROUP) != 0 {
			continue
		}
		data, err := s.Data()
		if err != nil {
			return fmt.Errorf("%w: section %q: %v", ErrMalformed, s.Name, err)
		}
		// 16 bytes of alignment, more than any of these sections needs
		l.image = append(l.image, make([]byte, -len(l.image)&15)...)
		l.debug[i] = uint64(len(l.image))
		l.image = append(l.image, data...)
	}
	return nil
}
