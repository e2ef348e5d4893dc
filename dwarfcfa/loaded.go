package dwarfcfa

import (
	"debug/elf"
	"encoding/binary"
	"slices"

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

// maxRewrites bounds the rewrites of a section.
const maxRewrites = 1 << 22

// moved reports whether the object may be loaded at any load bias, and not only at 0.
func (o *Object) moved() bool { return o.file.Type == elf.ET_DYN }

// loaded turns data, the file's bytes at addr, into what a loader makes of them at load bias 0, as far as that is known, and
// returns what it writes, ascending and disjoint, but for what is then known.
func (o *Object) loaded(addr Addr, data []byte) ([]rewrite, error) {
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

// rewrites returns what a loader writes of the n bytes at addr, ascending and disjoint.
func (o *Object) rewrites(addr Addr, n uint64) ([]rewrite, error) {
	if !o.mayWrite(addr, n) {
		return nil, nil
	}
	var found []rewrite
	for r, err := range elffile.Relocs(o.file) {
		if err != nil {
			return nil, cause(ErrBadEncoding, "relocations: %v", err)
		}
		w, ok := o.rewriteOf(r, addr, n)
		if !ok {
			continue
		}
		if len(found) == maxRewrites {
			return nil, cause(ErrUnsupported, "more than %d relocations of one section", maxRewrites)
		}
		found = append(found, w)
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
func (o *Object) mayWrite(addr Addr, n uint64) bool {
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

// rewriteOf returns what a relocation writes of the n bytes at addr; ok is false if that is nothing.
func (o *Object) rewriteOf(r elffile.Reloc, addr Addr, n uint64) (w rewrite, ok bool) {
	size := uint64(16) // no relocation that a loader knows writes more
	switch r.Type {
	case elf.R_X86_64_NONE:
		return w, false
	case elf.R_X86_64_RELATIVE, elf.R_X86_64_64, elf.R_X86_64_GLOB_DAT, elf.R_X86_64_JMP_SLOT, elf.R_X86_64_IRELATIVE:
		size = 8
	case elf.R_X86_64_COPY:
		size = maxRead // as much as there may be of the symbol
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
