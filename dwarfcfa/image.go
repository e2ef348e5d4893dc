package dwarfcfa

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"iter"
	"slices"
)

// This file reads the object's image: what a process has in memory at load bias 0, as far as the file tells.

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

// Code yields the ranges of code that the file has, [start, end), ascending and disjoint.
func (o *File) Code() iter.Seq2[Addr, Addr] {
	return func(yield func(start, end Addr) bool) {
		for _, s := range o.code {
			if !yield(s.start, s.end) {
				return
			}
		}
	}
}

// ReadImage reads the file's bytes for the addresses from addr on into b and returns their number: len(b), or fewer if
// the segment ends before. It returns 0 on an error of reading. Relocations are not applied: see mayWrite.
func (o *File) ReadImage(addr Addr, b []byte) int {
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

// word reads the word at addr of the object's image, as a loader leaves it at load bias 0. ok is false if that is not
// known, also where a loader may write: a search through all relocations for each word would take too long.
func (o *File) word(addr Addr) (word uint64, ok bool) {
	var b [8]byte
	if o.ReadImage(addr, b[:]) < len(b) {
		return 0, false
	}
	word = binary.LittleEndian.Uint64(b[:])
	if word != 0 && o.moved() {
		return 0, false
	}
	return word, !o.mayWrite(addr, uint64(len(b)))
}

// bases returns the base addresses of encoded pointers of the object's .eh_frame. For DW_EH_PE_datarel this is the
// global offset table, as in libgcc for pointers in FDEs. Without a GOT the base is 0.
func (o *File) bases() Bases {
	b := Bases{Word: o.word}
	if s := o.file.Section(".text"); s != nil {
		b.Text = Addr(s.Addr)
	}
	if got, ok := o.dynamic[elf.DT_PLTGOT]; ok {
		b.Data = Addr(got)
	} else if s := o.file.Section(".got"); s != nil {
		b.Data = Addr(s.Addr)
	}
	return b
}
