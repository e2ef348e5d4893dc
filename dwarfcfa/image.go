package dwarfcfa

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
)

// segment is a range of addresses of the object, half-open.
type segment struct {
	start, end Addr
}

// inFile returns how many bytes of a segment the file has.
func inFile(p *elf.Prog) uint64 { return p.Filesz }

// codeSegments returns the first size bytes of executable segments without
// the ELF and program headers, ascending and merged where they touch. No pc of
// the object lies outside their file-backed parts.
func codeSegments(f *elf.File, size func(*elf.Prog) uint64) []segment {
	var segs []segment
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Flags&elf.PF_X == 0 || size(p) == 0 || p.Vaddr+size(p) < p.Vaddr {
			continue
		}
		s := segment{Addr(p.Vaddr), Addr(p.Vaddr + size(p))}
		const headers, perSegment = 64, 56
		if n := headers + perSegment*Addr(len(f.Progs)); p.Off == 0 && p.Filesz > 0 {
			// The file's first bytes are its headers, not code; the tombstones
			// of discarded functions in .debug_frame point there.
			s.start = min(s.start+n, s.end)
		}
		segs = append(segs, s)
	}
	slices.SortFunc(segs, func(a, b segment) int { return cmp.Compare(a.start, b.start) })
	merged := segs[:0]
	for _, s := range segs {
		if n := len(merged); n > 0 && s.start <= merged[n-1].end {
			merged[n-1].end = max(merged[n-1].end, s.end)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// ReadImage reads the file's bytes for the addresses from addr on into b and
// returns their number: len(b), or fewer if the segment ends before.
func (o *Object) ReadImage(addr Addr, b []byte) int {
	for _, p := range o.file.Progs {
		if p.Type != elf.PT_LOAD || uint64(addr) < p.Vaddr || uint64(addr)-p.Vaddr >= p.Filesz {
			continue
		}
		skip := uint64(addr) - p.Vaddr
		b = b[:min(uint64(len(b)), p.Filesz-skip)]
		n, err := o.r.ReadAt(b, int64(p.Off+skip))
		if err != nil && err != io.EOF {
			return 0
		}
		return n
	}
	return 0
}

// word reads the word at addr of the object's image, before relocation.
func (o *Object) word(addr Addr) (uint64, bool) {
	var b [8]byte
	if o.ReadImage(addr, b[:]) < len(b) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

// bases returns the base addresses of encoded pointers of the object's
// .eh_frame. For DW_EH_PE_datarel this is the global offset table, as in libgcc
// for pointers in FDEs.
func (o *Object) bases() Bases {
	b := Bases{Word: o.word}
	if s := o.file.Section(".text"); s != nil {
		b.Text = Addr(s.Addr)
	}
	if v, err := o.dynValue(elf.DT_PLTGOT); err == nil && len(v) > 0 {
		b.Data = Addr(v[0])
	} else if s := o.file.Section(".got"); s != nil {
		b.Data = Addr(s.Addr)
	}
	return b
}

// dynValue reads a tag of the dynamic section from its segment. It returns all its values; of a
// static object, none.
func (o *Object) dynValue(tag elf.DynTag) ([]uint64, error) {
	const maxDynamic = 1 << 16 // bytes; large ones have some hundred entries of 16 bytes
	var values []uint64
	for _, p := range o.file.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		b := make([]byte, min(p.Filesz, maxDynamic))
		n, err := o.r.ReadAt(b, int64(p.Off))
		if err != nil && err != io.EOF {
			return nil, err
		}
		for b = b[:n]; len(b) >= 16; b = b[16:] {
			t := elf.DynTag(binary.LittleEndian.Uint64(b))
			if t == elf.DT_NULL {
				break
			}
			if t == tag {
				values = append(values, binary.LittleEndian.Uint64(b[8:]))
			}
		}
	}
	return values, nil
}
