package dwarfcfa

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// This file finds .eh_frame and reads .eh_frame_hdr, whose table some unwinders search instead of walking the section.
// What that table names counts, too: libgcc and perf find such FDEs.

// ehFrame finds .eh_frame by its section header, or through PT_GNU_EH_FRAME. It returns nil if the object has neither.
func (o *File) ehFrame() (*Section, error) {
	hdr, err := o.ehFrameHdr()
	for _, sec := range o.file.Sections {
		if sec.Name != ".eh_frame" || !hasBytes(sec) || sec.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		data, err := o.contents(sec)
		if err != nil {
			return nil, err
		}
		return o.searched(Addr(sec.Addr), data, len(data), hdr)
	}
	if err != nil || hdr == nil {
		return nil, err
	}
	// Without section headers the program header leads to it. Nothing says how long it is.
	data, err := o.toSegmentEnd(hdr.ehFrame)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, cause(ErrBadEncoding, ".eh_frame_hdr: its .eh_frame pointer %#x leads outside the file",
			uint64(hdr.ehFrame))
	}
	return o.searched(hdr.ehFrame, data, untilTerminator(data), hdr)
}

// searched makes the section of the first size bytes of data, which are .eh_frame at addr, and of the entries behind
// them that the table of .eh_frame_hdr names. hdr may be nil.
func (o *File) searched(addr Addr, data []byte, size int, hdr *ehFrameHdr) (*Section, error) {
	beyond := false
	for fde := range hdr.fdes() {
		beyond = beyond || fde >= addr && fde-addr >= Addr(size)
	}
	if beyond && len(data) == size { // what follows the section in memory counts, too
		more, err := o.toSegmentEnd(addr)
		if err != nil {
			return nil, err
		}
		data = append(data, more[min(size, len(more)):]...)
	}
	end := size
	for fde := range hdr.fdes() {
		if fde-addr >= Addr(end) && fde-addr < Addr(len(data)) {
			s := Section{Data: data}
			if h, err := s.header(int(fde - addr)); err == nil {
				end = h.end
			}
		}
	}
	if end < len(data) {
		data = bytes.Clone(data[:end]) // the rest of the segment is not kept
	}
	s, err := o.section(SourceEHFrame, addr, data)
	if err != nil {
		return nil, err
	}
	s.walked, s.hdr = size, hdr
	return s, nil
}

// toSegmentEnd reads the bytes from an address up to the end of the segment that holds it; nil: there is none. It
// is for files without section headers, where nothing says how long .eh_frame is, and for entries behind the section.
func (o *File) toSegmentEnd(addr Addr) ([]byte, error) {
	for _, p := range o.file.Progs {
		if skip := uint64(addr) - p.Vaddr; p.Type == elf.PT_LOAD && skip < p.Filesz {
			data, err := o.read(p.Off+skip, p.Filesz-skip)
			if err != nil {
				return nil, fmt.Errorf("reading .eh_frame: %w", err)
			}
			return data, nil
		}
	}
	return nil, nil
}

// untilTerminator returns the size of the entries that data begins with, up to a zero length or to the end, without
// what follows them in the segment (.gcc_except_table, say).
func untilTerminator(data []byte) int {
	s := Section{Data: data}
	for pos := 0; pos < len(data); {
		h, err := s.header(pos)
		if err != nil {
			break // reported by whoever reads the entries
		}
		pos = h.end
		// A length of 0 ends the list: LSB 5.0 §10.6.1.
		if h.length == 0 {
			return pos
		}
	}
	return len(data)
}

// ehFrameHdr is .eh_frame_hdr (LSB 5.0 §10.6.2).
type ehFrameHdr struct {
	size    int64 // of the whole, in bytes
	addr    Addr
	ehFrame Addr   // where .eh_frame begins
	table   []byte // pairs of distances from addr, of code and of its FDE; nil: there is none in which libgcc searches
	says    uint64 // the number of its pairs, as the header has it
}

// pairSize is the size of an entry of ehFrameHdr.table.
const pairSize = 8

// ehFrameHdr reads PT_GNU_EH_FRAME. It returns nil if there is none. With an error, only size is known.
func (o *File) ehFrameHdr() (*ehFrameHdr, error) {
	for _, p := range o.file.Progs {
		if p.Type == elf.PT_GNU_EH_FRAME && p.Filesz > 0 {
			h := &ehFrameHdr{size: int64(p.Filesz), addr: Addr(p.Vaddr)}
			if err := o.readHdr(h); err != nil {
				return h, fmt.Errorf(".eh_frame_hdr: %w", err)
			}
			return h, nil
		}
	}
	return nil, nil
}

// readHdr reads the pointer to .eh_frame and the table. h.table stays nil in each case in which libgcc does not search:
// another encoding, a table that is not aligned, or one that a loader changes. h.says may be more than the table holds.
func (o *File) readHdr(h *ehFrameHdr) error {
	if h.size > maxRead {
		return cause(ErrUnsupported, "%#x bytes", h.size)
	}
	data := make([]byte, min(h.size, o.size))
	data = data[:o.ReadImage(h.addr, data)]
	s, err := o.section(SourceEHFrame, h.addr, data)
	if err != nil {
		return err
	}
	s.bases.Data = s.Addr // in .eh_frame_hdr, datarel is relative to the header itself
	c := s.cursor(0, len(data))
	version, pointer, count, table := c.u8(), PointerEncoding(c.u8()), PointerEncoding(c.u8()), PointerEncoding(c.u8())
	if c.err == nil && version != 1 {
		return cause(ErrUnsupported, "unknown version %d", version)
	}
	h.ehFrame = c.pointer(pointer, s, 0)
	if c.err != nil {
		return c.err
	}
	// libgcc (unwind-dw2-fde-dip.c) takes any format of the count, but searches only a table of sdata4 relative to the
	// header.
	if count&^peFormatMask != 0 || table != PEDataRel|PESData4 {
		return nil
	}
	h.says = c.value(count)
	size := min(h.says, uint64(c.remaining()/pairSize)) * pairSize
	if off := c.pos; c.err == nil && (h.addr+Addr(off))%4 == 0 && c.number(size) != nil {
		h.table = data[off:c.pos]
	}
	return nil
}

// pair returns which code, and which FDE for it, entry i of the table names.
func (h *ehFrameHdr) pair(i int) (start, fde Addr) {
	distance := func(off int) Addr { return h.addr + Addr(int32(binary.LittleEndian.Uint32(h.table[off:]))) }
	return distance(i * pairSize), distance(i*pairSize + pairSize/2)
}

// fdes yields the FDEs that the table names. h may be nil.
func (h *ehFrameHdr) fdes() func(yield func(Addr) bool) {
	return func(yield func(Addr) bool) {
		for i := 0; h != nil && i < len(h.table)/pairSize; i++ {
			if _, fde := h.pair(i); !yield(fde) {
				return
			}
		}
	}
}

// search returns the entry that libgcc's binary search ends at for pc: of several with one start it may be any. In a
// table that is not in order the search may end at none, and libgcc aborts; both results are the highest address then.
func (h *ehFrameHdr) search(pc Addr) (start, fde Addr) {
	lo, hi := 0, len(h.table)/pairSize-1
	mid := hi
	if first, _ := h.pair(0); pc < first {
		return h.pair(0)
	}
	last, _ := h.pair(hi)
	if pc >= last {
		return h.pair(hi)
	}
	for lo < hi {
		mid = (lo + hi) / 2
		if addr, _ := h.pair(mid); pc < addr {
			hi = mid
		} else if next, _ := h.pair(mid + 1); pc >= next {
			lo = mid + 1
		} else {
			break
		}
	}
	if lo >= hi {
		return ^Addr(0), ^Addr(0)
	}
	return h.pair(mid)
}

// Named returns the offset of the FDE that the table of .eh_frame_hdr names for a function. ok is false if it names
// none.
func (s *Section) Named(start Addr) (offset uint64, ok bool) {
	addr, offset, ok := s.Found(start)
	return offset, ok && addr == start
}

// Found returns where libgcc's search in the table of .eh_frame_hdr ends for a pc: the start that the table says, and
// the offset of the FDE. ok is false without a table.
func (s *Section) Found(pc Addr) (start Addr, offset uint64, ok bool) {
	if s.hdr == nil || len(s.hdr.table) == 0 {
		return 0, 0, false
	}
	start, fde := s.hdr.search(pc)
	return start, uint64(fde - s.Addr), true
}

// Hdr is what .eh_frame_hdr says of a section.
type Hdr struct {
	EHFrame  Addr // where .eh_frame begins
	Searched bool // it has a table in which libgcc searches
	Says     int  // pairs in the table
	Pairs    int  // of these, those that are there
}

// Hdr returns what .eh_frame_hdr says, nil if there is none that can be read.
func (s *Section) Hdr() *Hdr {
	if s.hdr == nil {
		return nil
	}
	return &Hdr{s.hdr.ehFrame, s.hdr.table != nil, int(min(s.hdr.says, 1<<31)), len(s.hdr.table) / pairSize}
}

// Pair returns pair i of the table: the start of code, and the offset of its FDE.
func (s *Section) Pair(i int) (start Addr, offset uint64) {
	start, fde := s.hdr.pair(i)
	return start, uint64(fde - s.Addr)
}

// FDEAt returns the FDE at an offset, nil if none is there. It is not cached, and decodes the FDE's CIE each time.
func (s *Section) FDEAt(offset uint64) *FDE {
	if offset >= uint64(len(s.Data)) {
		return nil
	}
	r := newEntryReader(s)
	r.pos, r.complete, r.named = int(offset), true, []uint64{} // its CIE may be anywhere
	e, _, err := r.entry(new(FDE))
	if err != nil {
		return nil
	}
	return e.FDE
}

// Section returns the section that holds the FDE.
func (f *FDE) Section() *Section { return f.CIE.section }

// Rewritten returns how many pointers of the section a loader writes.
func (s *Section) Rewritten() int { return len(s.rewrites) }

// unwalked returns the offsets of the FDEs that the table names outside of the first size bytes, ascending.
func (s *Section) unwalked(size int) []uint64 {
	offsets := []uint64{}
	for fde := range s.hdr.fdes() {
		if off := uint64(fde - s.Addr); off >= uint64(size) {
			offsets = append(offsets, off)
		}
	}
	slices.Sort(offsets)
	return slices.Compact(offsets)
}
