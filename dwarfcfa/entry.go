package dwarfcfa

import (
	"errors"
	"fmt"
	"iter"
	"strings"
)

// This file decodes CIEs and FDEs. A bad entry costs itself alone: iteration goes on behind it, as its length says.

// CIE is a common information entry (DWARF 5 §6.4.1, LSB 5.0 §10.6.1.1).
type CIE struct {
	Offset       uint64 // of the entry's length field in the section
	Length       uint64 // value of the length field
	Is64         bool   // 64-bit DWARF format
	Version      uint8  // 1, 3 or 4
	Augmentation string
	CodeAlign    uint64 // code alignment factor, bytes: 1 on x86-64
	DataAlign    int64  // data alignment factor, bytes: -8 on x86-64
	RA           uint64 // return address column
	AugData      []byte // augmentation data, where Augmentation starts with z

	FDEEncoding         PointerEncoding // of pc ranges (R)
	LSDAEncoding        PointerEncoding // L; PEOmit: FDEs have none
	PersonalityEncoding PointerEncoding // P; PEOmit: none
	Personality         Addr            // address of the routine, or of its pointer
	PersonalityIndirect bool            // it is the address of the pointer: so encoded, or known only to the loader
	Signal              bool            // S: frames of this CIE are signal frames

	Instructions []byte // initial instructions

	section *Section
	instPos int // offset of Instructions in the section
	idSize  int // bytes of the CIE id and of the FDEs' CIE pointer
}

// FDE is a frame description entry (DWARF 5 §6.4.1, LSB 5.0 §10.6.1.2).
type FDE struct {
	Offset uint64 // of the entry's length field in the section
	Length uint64 // value of the length field
	Is64   bool   // 64-bit DWARF format
	ID     uint64 // the CIE pointer as stored
	CIE    *CIE

	Start, End Addr // the pcs described, [Start, End), link-time
	HasLSDA    bool
	LSDA       Addr // language-specific data area; 0: where it is, is known only at run time
	AugData    []byte

	Instructions []byte

	instPos int // offset of Instructions in the section
}

// Entry is one entry of a section. Of CIE and FDE at most one is set: none for
// a terminator (a zero length) and for an entry that could not be decoded.
type Entry struct {
	Offset uint64
	IsCIE  bool // also for a CIE that could not be decoded
	CIE    *CIE
	FDE    *FDE
}

// Entries iterates over the entries in the order of the section. An entry that
// cannot be decoded comes with a *DecodeError, and iteration goes on after it
// unless its length is wrong.
func (s *Section) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		r := newEntryReader(s)
		for {
			var fde FDE
			e, ok, err := r.next(&fde)
			if !ok {
				return
			}
			if err != nil {
				if !yield(e, err) {
					return
				}
				continue
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// maxCIEs bounds the CIEs of a section, so that a hostile one of CIEs alone takes no more memory than a large file;
// FDEs that use further ones are bad. Linkers keep one of each kind, about ten.
const maxCIEs = 1 << 18

// entryReader walks over a section.
type entryReader struct {
	s    *Section
	pos  int               // where the next entry begins
	cies map[int]cieResult // by offset, those seen so far
	// complete means that cies holds all CIEs of the section, also those after
	// pos.
	complete bool

	end   int      // where the walk ends: at s.walked, or at a length that cannot be trusted
	named []uint64 // offsets of the FDEs that only .eh_frame_hdr leads to, those to come; nil during the walk
	room  int      // bytes of CIEs that only such FDEs lead to

	lastPos int // offset of the CIE that last holds, -1: none; FDEs of one CIE lie together
	last    cieResult
}

// cieResult is a CIE or what is wrong with it; neither is set before it is
// decoded.
type cieResult struct {
	cie *CIE
	err error
}

// newEntryReader returns a reader at the section's beginning.
func newEntryReader(s *Section) *entryReader {
	return &entryReader{s: s, cies: make(map[int]cieResult), lastPos: -1, end: s.walked, room: len(s.Data)}
}

// entryHeader is the start of any entry.
type entryHeader struct {
	pos    int    // of the length field
	length uint64 // value of the length field; 0: a terminator
	end    int    // one past the entry
	is64   bool
	idPos  int // of the CIE id or CIE pointer
	idSize int
	id     uint64
	isCIE  bool
}

// header reads the header of the entry at pos. An error means that the length
// cannot be trusted, or that the entry is too short to have an id.
func (s *Section) header(pos int) (h entryHeader, err error) {
	h.pos = pos
	c := s.cursor(pos, len(s.Data))
	h.length = uint64(c.u32())
	// The 64-bit format marks itself by ff ff ff ff before an 8-byte length (DWARF 5 section 7.4);
	// smaller reserved values have no meaning.
	switch {
	case c.err != nil:
		return h, c.err
	case h.length == 0xffffffff:
		h.is64 = true
		h.length = c.u64()
	case h.length >= 0xfffffff0:
		return h, cause(ErrBadEncoding, "reserved length %#x", h.length)
	}
	if c.err != nil {
		return h, c.err
	}
	if h.length > uint64(c.remaining()) {
		return h, cause(ErrTruncated, "truncated: an entry of %#x bytes with %#x left in the section", h.length,
			c.remaining())
	}
	h.idPos = c.pos
	h.end = c.pos + int(h.length)
	return h, nil
}

// readID completes a header with the entry's id. In .eh_frame an FDE's id is the distance back to its CIE, so 0 can't
// be one (LSB 5.0 §10.6.1); in .debug_frame ids of CIEs are all ones (DWARF 5 §6.4.1).
func (s *Section) readID(h *entryHeader) error {
	c := s.cursor(h.idPos, h.end)
	h.idSize = 4
	if h.is64 && s.debugFrame {
		h.idSize = 8
		h.id = c.u64()
		h.isCIE = h.id == 1<<64-1
	} else {
		// .eh_frame has an id of 4 bytes in both formats (but see readCIE), and 0 marks a CIE.
		h.id = uint64(c.u32())
		h.isCIE = h.id == 0
		if s.debugFrame {
			h.isCIE = h.id == 0xffffffff
		}
	}
	return c.err
}

// next decodes the entry at the reader's position; an FDE is stored in fde. err is about the entry at e.Offset. ok is
// false at the end of the section. Behind the walked entries come those that only .eh_frame_hdr names.
func (r *entryReader) next(fde *FDE) (e Entry, ok bool, err error) {
	if r.pos < r.end {
		if e, ok, err = r.entry(fde); ok {
			return e, ok, err
		}
	}
	if r.named == nil {
		r.complete = true
		r.named = r.s.unwalked(r.end)
	}
	if len(r.named) == 0 {
		return Entry{}, false, nil
	}
	e.Offset, r.named = r.named[0], r.named[1:]
	switch {
	case e.Offset >= uint64(len(r.s.Data)):
		return e, true, r.s.errorAt(0, cause(ErrUnsupported, ".eh_frame_hdr names an FDE at %#x, outside the section",
			uint64(r.s.Addr)+e.Offset))
	case e.Offset < uint64(r.pos):
		return e, true, r.s.errorAt(int(e.Offset), cause(ErrBadEncoding, ".eh_frame_hdr names an FDE inside another"))
	}
	r.pos = int(e.Offset)
	e, _, err = r.entry(fde)
	if err == nil && e.FDE == nil {
		err = r.s.errorAt(int(e.Offset), cause(ErrBadEncoding, "no FDE where .eh_frame_hdr names one"))
	}
	return e, true, err
}

// entry decodes the entry at the reader's position.
func (r *entryReader) entry(fde *FDE) (e Entry, ok bool, err error) {
	s := r.s
	e.Offset = uint64(r.pos)
	h, err := s.header(r.pos)
	if err != nil {
		rest := s.Data[r.pos:]
		r.end = r.pos
		if len(rest) < 4 && allZero(rest) { // linkers pad sections with zeros
			return Entry{}, false, nil
		}
		return e, true, s.errorAt(h.pos, err)
	}
	// From here on a bad entry does not hinder the next one.
	r.pos = h.end
	if h.length == 0 {
		return e, true, nil
	}
	if err := s.readID(&h); err != nil {
		return e, true, s.errorAt(h.pos, err)
	}
	if h.isCIE {
		e.IsCIE = true
		r.note(h.pos)
		e.CIE, err = r.cie(h.pos)
		if err != nil {
			return e, true, s.errorAt(h.pos, err)
		}
		return e, true, nil
	}
	if err := r.readFDE(&h, fde); err != nil {
		if fde.End != 0 {
			return e, true, s.errorOf(fde, err)
		}
		return e, true, s.errorAt(h.pos, err)
	}
	e.FDE = fde
	return e, true, nil
}

// allZero reports whether all bytes are 0.
func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// cie returns the CIE at an offset of the section, decoding it once. The
// offset must be an entry's, so that CIEs never overlap.
func (r *entryReader) cie(pos int) (*CIE, error) {
	if pos == r.lastPos {
		return r.last.cie, r.last.err
	}
	res, ok := r.cies[pos]
	// An FDE may lie before its CIE: look through the rest of the section once.
	if !ok && !r.complete {
		r.findCIEs()
		res, ok = r.cies[pos]
	}
	if h, err := r.s.header(pos); !ok && r.named != nil && err == nil && r.s.readID(&h) == nil && h.isCIE {
		r.room -= h.end - h.pos
		ok = r.room >= 0
	}
	switch {
	case !ok && len(r.cies) >= maxCIEs:
		res.err = cause(ErrUnsupported, "more than %d CIEs", maxCIEs)
	case !ok:
		return nil, r.s.notCIE(pos)
	case res.cie == nil && res.err == nil:
		res.cie, res.err = r.s.readCIE(pos)
		r.cies[pos] = res
	}
	r.lastPos, r.last = pos, res
	return res.cie, res.err
}

// notCIE returns an error that says what is at an offset where no CIE begins.
func (s *Section) notCIE(pos int) error {
	h, err := s.header(pos)
	switch {
	case err == nil && h.length == 0:
		return cause(ErrBadEncoding, "a terminator where a CIE should be")
	case err == nil && s.readID(&h) == nil && !h.isCIE:
		return cause(ErrBadEncoding, "an FDE where a CIE should be")
	}
	return cause(ErrBadEncoding, "the middle of an entry where a CIE should be")
}

// note adds the offset of a CIE to those known.
func (r *entryReader) note(pos int) {
	if _, ok := r.cies[pos]; !ok && len(r.cies) < maxCIEs {
		r.cies[pos] = cieResult{}
	}
}

// findCIEs looks for the CIEs from the reader's position on.
func (r *entryReader) findCIEs() {
	r.complete = true
	for pos := r.pos; pos < r.end; {
		h, err := r.s.header(pos)
		if err != nil {
			return
		}
		pos = h.end
		if h.length > 0 && r.s.readID(&h) == nil && h.isCIE {
			r.note(h.pos)
		}
	}
}

// readCIE decodes the CIE at an offset where one begins. Versions: .eh_frame has 1 as a rule;
// .debug_frame 1 (DWARF 2), 3 and 4.
func (s *Section) readCIE(pos int) (*CIE, error) {
	h, err := s.header(pos)
	if err != nil {
		return nil, err
	}
	if err := s.readID(&h); err != nil {
		return nil, err
	}
	cie := &CIE{
		Offset: uint64(pos), Length: h.length, Is64: h.is64, idSize: h.idSize, section: s,
		LSDAEncoding: PEOmit, PersonalityEncoding: PEOmit,
	}
	body := s.cursor(h.idPos+h.idSize, h.end)
	c := &body
	cie.Version = c.u8()
	if h.is64 && !s.debugFrame && cie.Version == 0 {
		// In the 64-bit format of .eh_frame the CIE id has 4 bytes in the LSB
		// and 8 for binutils and LLVM. No version is 0, so the zero is the
		// upper half of an 8-byte id.
		cie.idSize = 8
		c.number(3)
		cie.Version = c.u8()
	}
	if c.err != nil {
		return nil, c.err
	}
	if v := cie.Version; v != 1 && v != 3 && v != 4 {
		return nil, cause(ErrUnsupported, "unknown CIE version %d", v)
	}
	cie.Augmentation = c.cstring()
	aug := cie.Augmentation
	if strings.HasPrefix(aug, "eh") {
		c.u64() // GCC 2.x: address of the exception table
		aug = aug[2:]
	}
	// DWARF 4 added address_size and segment_selector_size (DWARF 5 §6.4.1).
	if cie.Version == 4 {
		if n := c.u8(); c.err == nil && n != 8 {
			return nil, cause(ErrUnsupported, "CIE with an address size of %d", n)
		}
		if n := c.u8(); c.err == nil && n != 0 {
			return nil, cause(ErrUnsupported, "CIE with a segment selector of %d bytes", n)
		}
	}
	cie.CodeAlign = c.uleb()
	cie.DataAlign = c.sleb()
	// The return address column is a byte in version 1, ULEB128 later.
	if cie.Version == 1 {
		cie.RA = uint64(c.u8())
	} else {
		cie.RA = c.uleb()
	}
	if err := s.augmentation(c, cie, aug); err != nil {
		return nil, err
	}
	if c.err != nil {
		return nil, c.err
	}
	cie.instPos = c.pos
	cie.Instructions = c.bytes(uint64(c.remaining()))
	return cie, nil
}

// readFDE decodes the FDE whose header is h. f.End is set once the range is known, for the error.
func (r *entryReader) readFDE(h *entryHeader, f *FDE) error {
	s := r.s
	*f = FDE{Offset: uint64(h.pos), Length: h.length, Is64: h.is64, ID: h.id}
	// The CIE pointer is an offset in .debug_frame, a distance back from itself in .eh_frame.
	pos := h.id
	if !s.debugFrame {
		if h.id > uint64(h.idPos) {
			return cause(ErrBadEncoding, "CIE pointer %#x leads before the section", h.id)
		}
		pos = uint64(h.idPos) - h.id
	}
	if pos >= uint64(len(s.Data)) {
		return cause(ErrBadEncoding, "CIE pointer %#x leads past the section", h.id)
	}
	if pos == uint64(h.pos) {
		return cause(ErrBadEncoding, "CIE pointer %#x leads to the FDE itself", h.id)
	}
	cie, err := r.cie(int(pos))
	if err != nil {
		return fmt.Errorf("its CIE at +%#x: %w", pos, err)
	}
	f.CIE = cie
	idSize := h.idSize
	if h.is64 && cie.Is64 {
		idSize = cie.idSize
	}
	c := s.cursor(h.idPos, h.end)
	c.number(uint64(idSize))
	pos = uint64(c.pos)
	f.Start = c.pointer(cie.FDEEncoding, s, 0)
	if errors.Is(c.err, errUnmoved) && cie.FDEEncoding == PEAbsPtr {
		// libgcc takes the start from .eh_frame_hdr, which is right where mold leaves an address that nothing relocates.
		if offset, ok := s.Named(f.Start); ok && offset == uint64(h.pos) {
			c.err, c.pos = nil, int(pos)+PEAbsPtr.PointerSize()
		}
	}
	// The range has the format of the pointer, but is a plain number (LSB 5.0 section 10.6.1.2).
	size := c.value(cie.FDEEncoding & peFormatMask)
	if c.err != nil {
		return c.err
	}
	f.End = f.Start + Addr(size)
	if f.End < f.Start {
		f.End = 0
		return cause(ErrBadEncoding, "pc range %#x+%#x overflows 64 bits", uint64(f.Start), size)
	}
	if strings.HasPrefix(strings.TrimPrefix(cie.Augmentation, "eh"), "z") {
		n := c.uleb()
		start := c.pos
		f.AugData = c.bytes(n)
		if c.err == nil && cie.LSDAEncoding != PEOmit && len(f.AugData) > 0 {
			a := s.cursor(start, c.pos)
			f.LSDA, f.HasLSDA = a.lsda(cie.LSDAEncoding, s, f.Start)
			if c.err = a.err; errors.Is(a.err, ErrUnsupported) { // its rows are known nevertheless
				f.HasLSDA, c.err = true, nil
			}
		}
	} else if cie.LSDAEncoding != PEOmit {
		f.LSDA, f.HasLSDA = c.lsda(cie.LSDAEncoding, s, f.Start)
	}
	if c.err != nil {
		return c.err
	}
	f.instPos = c.pos
	f.Instructions = c.bytes(uint64(c.remaining()))
	return nil
}

// lsda reads the pointer to the language-specific data area; a stored 0 means
// that there is none. It does not follow an indirect one.
func (c *cursor) lsda(enc PointerEncoding, s *Section, function Addr) (Addr, bool) {
	p, null := c.pointerSlot(enc, s, function)
	if null || c.err != nil {
		return 0, false
	}
	return p, true
}
