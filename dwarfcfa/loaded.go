package dwarfcfa

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"
	"sync"

	"github.com/ehasm/ehasm/internal/files/elffile"
)

// errLoader is the reason for leaving out what a loader writes: its value is known at run time only.
var errLoader = cause(ErrUnsupported, "bytes that the loader relocates, to a value known only at run time")

// rewrite is a range of bytes that a loader writes, by offsets in the bytes around it.
type rewrite struct {
	start, end int
	// biased is set for words that are an address of the object: its link-time address, which the bytes then hold, plus
	// the load bias.
	biased bool
	addend uint64
	inFile bool // the addend is in the file's bytes
}

// relocs are what a loader applies to an object, read when they are first needed.
type relocs struct {
	once   sync.Once
	list   []elffile.Reloc // ascending, of one address in the order of the tables
	copies []elffile.Reloc // not in list: ranges, of Addend bytes, that copies of symbols may write
	err    error
}

// maxRelocs bounds the relocations of an object. Large programs have a million.
const maxRelocs = 1 << 22

// relocations reads the relocations of the object.
func (o *File) relocations() *relocs {
	a := &o.relocs
	a.once.Do(func() {
		for r, err := range elffile.Relocs(o.file) {
			if err != nil {
				a.err = cause(ErrBadEncoding, "relocations: %v", err)
				return
			}
			if len(a.list) == maxRelocs {
				a.err = cause(ErrUnsupported, "more than %d relocations", maxRelocs)
				return
			}
			a.list = append(a.list, r)
		}
		slices.SortStableFunc(a.list, func(a, b elffile.Reloc) int { return cmp.Compare(a.Addr, b.Addr) })
		a.list = slices.DeleteFunc(a.list, func(r elffile.Reloc) bool {
			if r.Type != elf.R_X86_64_COPY {
				return false
			}
			r.Addend = maxRead // as much as there may be of the symbol
			if n := len(a.copies); n > 0 && r.Addr-a.copies[n-1].Addr <= a.copies[n-1].Addend {
				a.copies[n-1].Addend = r.Addr - a.copies[n-1].Addr + maxRead
			} else {
				a.copies = append(a.copies, r)
			}
			return true
		})
	})
	return a
}

// from returns the part of an ascending list from an address on.
func from(list []elffile.Reloc, addr uint64) []elffile.Reloc {
	return list[sort.Search(len(list), func(i int) bool { return list[i].Addr >= addr }):]
}

// moved reports whether the object may be loaded at any load bias, and not only at 0.
func (o *File) moved() bool { return o.file.Type == elf.ET_DYN }

// loaded turns data, the file's bytes at addr, into what a loader makes of them at load bias 0, as far as that is
// known, and returns what it writes, ascending and disjoint, but for what is then known.
func (o *File) loaded(addr Addr, data []byte) ([]rewrite, error) {
	all, err := o.rewrites(addr, uint64(len(data)))
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		if w.biased && !w.inFile {
			binary.LittleEndian.PutUint64(data[w.start:], w.addend)
		}
	}
	if !o.moved() { // the load bias is 0: these are plain numbers
		all = slices.DeleteFunc(all, func(w rewrite) bool { return w.biased })
	}
	return all, nil
}

// rewrites returns what a loader writes of the n bytes at addr, ascending and disjoint. The error is of the
// relocations, which can't be read.
func (o *File) rewrites(addr Addr, n uint64) ([]rewrite, error) {
	if !o.mayWrite(addr, n) {
		return nil, nil
	}
	relocs := o.relocations()
	if relocs.err != nil {
		return nil, relocs.err
	}
	near := from(relocs.list, uint64(addr)-min(uint64(addr), mostWritten))
	near = near[:len(near)-len(from(near, uint64(addr)+n))]
	var found []rewrite
	for _, r := range slices.Concat(relocs.copies, near) {
		if w, ok := o.rewriteOf(r, addr, n); ok {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b rewrite) int { return a.start - b.start })
	all := found[:0]
	for _, w := range found {
		if n := len(all); n > 0 && w.start < all[n-1].end { // the order of the two would count
			all[n-1] = rewrite{start: all[n-1].start, end: max(all[n-1].end, w.end)}
			continue
		}
		all = append(all, w)
	}
	return all, nil
}

// mayWrite reports whether a loader may write to n bytes at addr: to read-only segments it does so only if the dynamic
// section says that it must.
func (o *File) mayWrite(addr Addr, n uint64) bool {
	const (
		page    = 0xfff // less one
		textrel = 4     // DF_TEXTREL
	)
	if _, ok := o.dynamic[elf.DT_TEXTREL]; ok || o.dynamic[elf.DT_FLAGS]&textrel != 0 {
		return true
	}
	for _, p := range o.file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W != 0 &&
			uint64(addr)+n > p.Vaddr&^page && uint64(addr) < (p.Vaddr+p.Memsz+page)&^page {
			return true
		}
	}
	return false
}

// mostWritten is how many bytes a relocation writes at most that is no copy.
const mostWritten = 16

// rewriteOf returns what a relocation writes of the n bytes at addr; ok is false if that is nothing. Types that are not
// listed write at most 16 bytes: TLSDESC's pair.
func (o *File) rewriteOf(r elffile.Reloc, addr Addr, n uint64) (w rewrite, ok bool) {
	size := uint64(mostWritten)
	switch r.Type {
	case elf.R_X86_64_NONE:
		return w, false
	case elf.R_X86_64_RELATIVE, elf.R_X86_64_64, elf.R_X86_64_GLOB_DAT, elf.R_X86_64_JMP_SLOT, elf.R_X86_64_IRELATIVE:
		size = 8
	case elf.R_X86_64_COPY:
		size = r.Addend
	}
	// Offsets from addr; the sums wrap as addresses do.
	start := r.Addr - uint64(addr)
	switch end := start + size; {
	case start < n && end >= start:
		w.start, w.end = int(start), int(min(end, n))
	case end < start && end > 0: // it begins before addr
		w.end = int(min(end, n))
	default:
		return w, false
	}
	w.biased = r.Type == elf.R_X86_64_RELATIVE && !r.Rel && w.end-w.start == 8
	w.addend, w.inFile = r.Addend, r.InFile
	return w, true
}
