package dwarfcfa

import (
	"debug/elf"
	"errors"
	"iter"

	"github.com/cespare/xxhash/v2"

	"github.com/ehasm/ehasm/abi"
)

// This file says what an eh_elf was made from: ranges of memory and their hashes, by which a process can tell that an
// object is the same. RATIONALE.md, "Identity by content", says why a build-id is not enough.

// Content returns the parts of the object's image that an eh_elf is made from. These are .eh_frame, the sections that
// hold the areas (addresses of LSDAs), and .sframe if rows come from it. If by rep rows come from elsewhere, or the
// section is not in read-only memory, the executable segments are parts, too. They stand in for .debug_frame, which is
// not in memory, where an unwinder would look. The result is empty if nothing identifies the object. sites reports
// whether the content determines what the areas say.
func (o *File) Content(rep *Report, areas iter.Seq[Addr]) (c abi.Content, sites bool, err error) {
	add := func(low, size uint64) bool {
		if w, e := o.rewrites(Addr(low), size); e != nil || len(w) > 0 { // memory has other bytes
			return false
		}
		part, e := abi.ReadPart(o.r, low, size)
		switch {
		case e == nil:
			c = append(c, part)
		case !errors.Is(e, abi.ErrNoContent):
			err = e
		}
		return e == nil
	}
	s, e := o.Section(SourceEHFrame)
	if e == nil {
		// the section may lie elsewhere in the file
		sites = add(uint64(s.Addr), uint64(s.Size())) && c[0].Hash == xxhash.Sum64(s.Data)
	}
	if e == nil && (rep.Entries.Shadowed > 0 || len(s.Data) > s.walked) { // .eh_frame_hdr says which FDEs count
		sites = sites && (s.hdr == nil || add(uint64(s.hdr.addr), uint64(s.hdr.size)))
	}
	known := sites && rep.Source == ".eh_frame"
	if s := o.file.Section(SFrameName); s != nil && rep.Source == SFrameName {
		known = s.Flags&elf.SHF_ALLOC != 0 && add(s.Addr, s.FileSize)
	}
	if low, size, ok := o.around(areas); !ok || size > 0 && !add(low, size) {
		sites = false
	}
	for _, p := range o.file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz > 0 && (!known || rep.Rows.Made > 0) &&
			!add(p.Vaddr, p.Filesz) {
			c = nil
			break
		}
	}
	if len(c) > abi.MaxParts {
		c = nil
	}
	if err != nil {
		return nil, false, nameError(o.name, err)
	}
	return c, sites && c != nil, nil
}

// around returns the smallest range that holds the sections with the addresses, or where there is no section the
// segments. ok is false if an address is in neither.
func (o *File) around(addrs iter.Seq[Addr]) (low, size uint64, ok bool) {
	high := uint64(0)
	for a := range addrs {
		addr := uint64(a)
		if addr >= low && addr < high {
			continue
		}
		start, end := o.extent(addr)
		if start == end {
			return 0, 0, false
		}
		if high == 0 {
			low = start
		}
		low, high = min(low, start), max(high, end)
	}
	return low, high - low, true
}

// extent returns where the section or segment that holds an address begins and ends, as Contents reads it.
func (o *File) extent(addr uint64) (start, end uint64) {
	if s := o.holding(Addr(addr)); s != nil {
		return s.Addr, s.Addr + s.FileSize
	}
	for _, p := range o.file.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return p.Vaddr, p.Vaddr + p.Filesz
		}
	}
	return 0, 0
}

// DebugFrameHash returns the XXH64 of .debug_frame, which is not in memory, or 0 if the object has none that can be
// read. It tells builds apart for a cache, not for a process.
func (o *File) DebugFrameHash() uint64 {
	s, err := o.debugFrame()
	if err != nil || s == nil {
		return 0
	}
	return xxhash.Sum64(s.Data)
}
