// Package relocatable lays out a relocatable object (a .o file) as if it had been
// linked alone, so that readers of linked files can read it: each section gets its
// own address, and relocations are applied. Each undefined symbol becomes a stand-in
// of one return instruction, under the symbol's name.
package relocatable

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/internal/files/elffile"
)

// Names of the sections that Link adds.
const (
	undefinedSection = ".undefined" // stand-ins for what other objects define
	gotSection       = ".got"
)

// Errors that Link wraps.
var (
	ErrNotRelocatable = errors.New("not a relocatable x86-64 object")
	ErrMalformed      = errors.New("malformed")
)

// Bounds: alignment cannot make the image larger than some multiple of the
// file, and section indices fit their 16 bits.
const (
	maxGrowth   = 16
	maxSections = 0xff00 - 8
	maxAlign    = 1 << 16
	maxNoBits   = 1 << 31
)

// firstAddr is the address of the first section. No address is 0, which means
// none in several fields.
const firstAddr = 0x10000

// IsRelocatable reports whether r holds an ELF file of type ET_REL.
func IsRelocatable(r io.ReaderAt) bool {
	var h [18]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return false
	}
	return string(h[:4]) == elf.ELFMAG && elf.Data(h[elf.EI_DATA]) == elf.ELFDATA2LSB &&
		elf.Type(binary.LittleEndian.Uint16(h[16:])) == elf.ET_REL
}

// Link returns an ELF image of type ET_EXEC with the sections, the symbols and the
// relocated contents of the relocatable object in r, which has size bytes. Addresses
// and file offsets of the image are the same.
func Link(r io.ReaderAt, size int64) (image []byte, err error) { return link(r, size, false) }

// LinkWithLines is Link plus the sections for source lines: .debug_info, .debug_line and the sections that these refer
// to. The rest of the image is the same.
func LinkWithLines(r io.ReaderAt, size int64) (image []byte, err error) { return link(r, size, true) }

// link is Link, or with lines LinkWithLines.
func link(r io.ReaderAt, size int64, lines bool) (image []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/elf does that on rare malformed files
			image, err = nil, fmt.Errorf("%w: debug/elf: %v", ErrMalformed, p)
		}
	}()
	f, err := elffile.Open(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	if f.Type != elf.ET_REL || f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return nil, ErrNotRelocatable
	}
	l := &linker{file: f, fileSize: size, addrs: make([]uint64, len(f.Sections)), debug: map[int]uint64{}}
	if l.symbols, err = f.Symbols(); err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	if err := l.layout(); err != nil {
		return nil, err
	}
	if l.image = make([]byte, l.end); lines {
		if err := l.addDebug(); err != nil {
			return nil, err
		}
	}
	l.layOut()
	for i := range f.Sections {
		if err := l.relocate(i); err != nil {
			return nil, err
		}
	}
	return l.write(), nil
}

// linker holds the object and what has been laid out so far.
type linker struct {
	file     *elf.File
	fileSize int64
	symbols  []elf.Symbol // symbol i+1 of the file

	segments  []segment
	addrs     []uint64          // of sections; 0: not in the image
	undefined uint64            // address of undefinedSection
	names     []string          // of undefined symbols, in the order of their stand-ins
	byName    map[string]uint64 // their addresses
	got       uint64            // address of the section
	end       uint64            // of the part with bytes in the file
	image     []byte            // addresses from 0 to end, then debug
	debug     map[int]uint64    // sections with debug information: their places in image
}

// segment is a run of sections with the same access.
type segment struct {
	flags          elf.ProgFlag
	start, end     uint64 // with bytes
	memEnd         uint64
	sections       []int // of the file
	addedUndefined bool  // undefinedSection follows the sections
	addedGOT       bool  // gotSection follows them
}

// Sizes in bytes: of a stand-in, and of a slot of the GOT.
const (
	standIn = 16
	gap     = 32 // minimum between sections, so that no function seems to continue in the next
	slot    = 8
)

// layout gives addresses to all sections that a program would have in memory: first
// read-only data, then code, then data, then sections without bytes in the file.
func (l *linker) layout() error {
	// Stand-ins are placed first, relative to their section, since its address depends on the
	// others.
	l.byName = map[string]uint64{}
	for _, s := range l.symbols {
		if _, ok := l.byName[s.Name]; s.Section == elf.SHN_UNDEF && s.Name != "" && !ok {
			l.byName[s.Name] = uint64(len(l.names)) * standIn // relative for now
			l.names = append(l.names, s.Name)
		}
	}
	next, limit := uint64(firstAddr), 1<<20+maxGrowth*uint64(l.fileSize) // what a hostile file may make of alignments
	if len(l.file.Sections) > maxSections {
		return fmt.Errorf("%w: %d sections", ErrMalformed, len(l.file.Sections))
	}
	for _, flags := range []elf.ProgFlag{elf.PF_R, elf.PF_R | elf.PF_X, elf.PF_R | elf.PF_W} {
		seg := segment{flags: flags, start: next}
		for _, nobits := range []bool{false, true} {
			for i, s := range l.file.Sections {
				if s.Flags&elf.SHF_ALLOC == 0 || accessOf(s) != flags || (s.Type == elf.SHT_NOBITS) != nobits {
					continue
				}
				align := max(s.Addralign, 1)
				if align&(align-1) != 0 || align > maxAlign || s.Size > maxNoBits ||
					!nobits && (s.Size != s.FileSize || s.Offset > uint64(l.fileSize) || s.FileSize > uint64(l.fileSize)-s.Offset) {
					return fmt.Errorf("%w: section %q", ErrMalformed, s.Name)
				}
				next = (next + gap + align - 1) &^ (align - 1)
				l.addrs[i] = next
				next += s.Size
				if !nobits && next > limit || next > 1<<40 {
					return fmt.Errorf("%w: sections larger than the file", ErrMalformed)
				}
				seg.sections = append(seg.sections, i)
			}
			if !nobits {
				next = l.addOwn(&seg, next)
				seg.end = next
			}
		}
		seg.memEnd = next
		l.segments = append(l.segments, seg)
		next = (next + 0xfff) &^ 0xfff // the next segment has other permissions: another page
	}
	// Now the section of stand-ins has its address.
	for name := range l.byName {
		l.byName[name] += l.undefined
	}
	l.end = l.segments[len(l.segments)-1].end
	return nil
}

// addOwn adds the sections that the object does not have.
func (l *linker) addOwn(seg *segment, next uint64) uint64 {
	next = (next + gap + standIn - 1) &^ (standIn - 1)
	switch seg.flags {
	case elf.PF_R | elf.PF_X:
		l.undefined, seg.addedUndefined = next, true
		next += uint64(len(l.names)) * standIn
	case elf.PF_R | elf.PF_W:
		l.got, seg.addedGOT = next, true
		next += uint64(len(l.symbols)+1) * slot
	}
	return next
}

// accessOf returns the permissions of a section's segment.
func accessOf(s *elf.Section) elf.ProgFlag {
	switch {
	case s.Type == elf.SHT_NOBITS:
		return elf.PF_R | elf.PF_W // at the end of the last segment
	case s.Flags&elf.SHF_EXECINSTR != 0:
		return elf.PF_R | elf.PF_X
	case s.Flags&elf.SHF_WRITE != 0:
		return elf.PF_R | elf.PF_W
	}
	return elf.PF_R
}

// layOut copies the sections' contents.
func (l *linker) layOut() {
	for i, s := range l.file.Sections {
		if l.addrs[i] != 0 && s.Type != elf.SHT_NOBITS && l.addrs[i]+s.FileSize <= l.end {
			// A short read leaves zeros, as in a file that was cut off.
			_, _ = s.ReaderAt.ReadAt(l.image[l.addrs[i]:l.addrs[i]+s.FileSize], 0)
		}
	}
	// A stand-in returns at once; the bytes behind it trap.
	const retInstruction, int3 = 0xc3, 0xcc
	for addr := l.undefined; addr < l.undefined+uint64(len(l.names))*standIn; addr++ {
		l.image[addr] = int3
		if addr%standIn == 0 {
			l.image[addr] = retInstruction
		}
	}
}

// address returns the address of a symbol in the image; ok is false if it has none.
func (l *linker) address(sym uint32) (addr uint64, ok bool) {
	if sym == 0 {
		return 0, true
	}
	if uint64(sym) > uint64(len(l.symbols)) {
		return 0, false
	}
	s := &l.symbols[sym-1]
	switch {
	case s.Section == elf.SHN_UNDEF:
		addr, ok = l.byName[s.Name]
		return addr, ok
	case s.Section == elf.SHN_ABS:
		return s.Value, true
	// Common symbols have no place of their own.
	case s.Section == elf.SHN_COMMON:
		return l.got, true // any address with data
	case int(s.Section) < len(l.addrs) && l.addrs[s.Section] != 0:
		return l.addrs[s.Section] + s.Value, true
	}
	// A symbol of a debug section counts from the section's beginning.
	_, ok = l.debug[int(s.Section)]
	return s.Value, ok
}
