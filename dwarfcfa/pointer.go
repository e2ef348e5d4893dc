package dwarfcfa

import "fmt"

// PointerEncoding is a DW_EH_PE_* byte: how a pointer in .eh_frame is stored,
// and what it is relative to (LSB 5.0, "DWARF extensions", §10.5).
type PointerEncoding uint8

// The low four bits say how a value is stored, the next three what it is
// relative to; the top bit, that it is the address of the pointer.
const (
	PEAbsPtr  PointerEncoding = 0x00 // 8 bytes
	PEULEB128 PointerEncoding = 0x01 // unsigned LEB128
	PEUData2  PointerEncoding = 0x02 // 2 bytes
	PEUData4  PointerEncoding = 0x03 // 4 bytes
	PEUData8  PointerEncoding = 0x04 // 8 bytes
	PESigned  PointerEncoding = 0x08 // 8 bytes, signed
	PESLEB128 PointerEncoding = 0x09 // signed LEB128
	PESData2  PointerEncoding = 0x0a // 2 bytes, signed
	PESData4  PointerEncoding = 0x0b // 4 bytes, signed
	PESData8  PointerEncoding = 0x0c // 8 bytes, signed

	PEPCRel    PointerEncoding = 0x10 // to the pointer's own address
	PETextRel  PointerEncoding = 0x20 // to Bases.Text
	PEDataRel  PointerEncoding = 0x30 // to Bases.Data
	PEFuncRel  PointerEncoding = 0x40 // to the function's start
	PEAligned  PointerEncoding = 0x50 // 8 bytes at the next multiple of 8
	PEIndirect PointerEncoding = 0x80 // the result is the pointer's address

	// All bits set: there is no pointer.
	PEOmit PointerEncoding = 0xff

	peFormatMask PointerEncoding = 0x0f
	peRelMask    PointerEncoding = 0x70
)

// String returns the encoding in readelf's words.
func (e PointerEncoding) String() string {
	if e == PEOmit {
		return "omit"
	}
	s, ok := map[PointerEncoding]string{
		PEAbsPtr: "absptr", PEULEB128: "uleb128", PEUData2: "udata2", PEUData4: "udata4", PEUData8: "udata8",
		PESigned: "signed", PESLEB128: "sleb128", PESData2: "sdata2", PESData4: "sdata4", PESData8: "sdata8",
	}[e&peFormatMask]
	if !ok {
		return fmt.Sprintf("%#02x", uint8(e))
	}
	switch e & peRelMask {
	case 0:
	case PEPCRel:
		s = "pcrel " + s
	case PETextRel:
		s = "textrel " + s
	case PEDataRel:
		s = "datarel " + s
	case PEFuncRel:
		s = "funcrel " + s
	case PEAligned:
		s = "aligned " + s
	default:
		return fmt.Sprintf("%#02x", uint8(e))
	}
	if e&PEIndirect != 0 {
		s = "indirect " + s
	}
	return s
}

// Bases holds the addresses that encoded pointers of a section may be relative
// to, besides the section itself.
type Bases struct {
	Text Addr                               // DW_EH_PE_textrel: start of .text
	Data Addr                               // DW_EH_PE_datarel: the global offset table (DT_PLTGOT)
	Word func(Addr) (value uint64, ok bool) // DW_EH_PE_indirect: a word of the object's image; may be nil
}

// value reads a value stored in the format of enc, sign-extended if the format is signed. An unknown format fails the
// cursor with ErrBadEncoding.
func (c *cursor) value(enc PointerEncoding) uint64 {
	switch enc & peFormatMask {
	case PEAbsPtr, PESigned, PEUData8, PESData8:
		return c.u64()
	case PEULEB128:
		return c.uleb()
	case PESLEB128:
		return uint64(c.sleb())
	case PEUData2:
		return uint64(c.u16())
	case PEUData4:
		return uint64(c.u32())
	// Addresses are sign-extended, so that negative distances add.
	case PESData2:
		return uint64(int64(int16(c.u16())))
	case PESData4:
		return uint64(int64(int32(c.u32())))
	}
	c.fail(cause(ErrBadEncoding, "unknown pointer encoding %#02x", uint8(enc)))
	return 0
}

// pointer reads an encoded pointer of s. function is the base of
// DW_EH_PE_funcrel.
func (c *cursor) pointer(enc PointerEncoding, s *Section, function Addr) Addr {
	p, _ := c.pointerSlot(enc, s, function)
	// The slot holds the address of the pointer, as for personality routines in shared objects.
	if enc&PEIndirect == 0 || c.err != nil {
		return p
	}
	if s.bases.Word != nil {
		if word, ok := s.bases.Word(p); ok {
			return Addr(word)
		}
	}
	c.fail(cause(ErrBadEncoding, "indirect pointer to %#x, which the file does not hold", uint64(p)))
	return 0
}

// pointerSlot is pointer without following DW_EH_PE_indirect. null reports whether the stored value is 0, which means
// no pointer whatever it is relative to.
func (c *cursor) pointerSlot(enc PointerEncoding, s *Section, function Addr) (p Addr, null bool) {
	var base Addr
	switch rel := enc & peRelMask; {
	case rel == 0:
		return c.absolute(enc, s)
	case rel == PEAligned && enc&peFormatMask == PEAbsPtr:
		// alignment counts from the object's address 0, not from the section's beginning
		c.bytes(-(uint64(s.Addr) + uint64(c.pos)) & 7)
		return c.absolute(PEAbsPtr, s)
	case rel == PEPCRel: // it counts from its own first byte
		base = s.Addr + Addr(c.pos)
	case rel == PETextRel:
		base = s.bases.Text
	case rel == PEDataRel:
		base = s.bases.Data
	case rel == PEFuncRel:
		base = function
	case enc == PEOmit:
		c.fail(cause(ErrBadEncoding, "pointer encoded as omitted"))
		return 0, false
	default:
		c.fail(cause(ErrBadEncoding, "unknown pointer encoding %#02x", uint8(enc)))
		return 0, false
	}
	v := Addr(c.value(enc))
	return base + v, v == 0 // sums wrap, as the processor's would
}

// errUnmoved is the reason for leaving out what no loader relocates.
var errUnmoved = cause(ErrUnsupported, "an absolute address in a file that is loaded anywhere")

// absolute reads a pointer that is relative to nothing. If the object may be loaded anywhere, the pointer leads into
// the object only where the loader adds the load bias.
func (c *cursor) absolute(enc PointerEncoding, s *Section) (p Addr, null bool) {
	if !s.moved {
		v := c.value(enc)
		return Addr(v), v == 0
	}
	var v uint64
	var biased bool
	if enc.PointerSize() == 8 {
		v, biased = c.word()
	} else {
		v = c.value(enc)
	}
	if v != 0 && !biased {
		c.fail(fmt.Errorf("%w: %#x", errUnmoved, v))
	}
	return Addr(v), v == 0 && !biased
}
