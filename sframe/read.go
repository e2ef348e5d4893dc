package sframe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// This file reads sections. The data may come from any file: each access is checked, and an error costs one function,
// not the section.

// Causes of errors. Errors of this package wrap one of these.
var (
	ErrTruncated   = errors.New("truncated")
	ErrMalformed   = errors.New("malformed")
	ErrUnsupported = errors.New("unsupported")
)

// Numbers of the format (include/sframe.h).
const (
	magic    = 0xdee2
	abiAMD64 = 3

	flagSorted = 1 << 0 // functions ascend
	flagPCRel  = 1 << 2 // the start of a function is relative to the field that holds it, otherwise to the section

	headerSize  = 28
	fdeSizeV1   = 17 // of a function's entry, as the next two
	fdeSizeV2   = 20
	indexSizeV3 = 16 // of an entry of the index; attributes are stored with the rows
	attrSizeV3  = 5  // of the attributes before a function's rows

	// Version 1 knows repeating blocks for PLTs alone, whose slots have 16 bytes on x86-64.
	repeatV1 = 16 // bytes
)

// DWARF numbers of the registers in rows.
const (
	regFP = 6
	regSP = 7
)

// Section is an SFrame section. It does not change once made, and is safe for
// concurrent use.
type Section struct {
	Version uint8
	Flags   uint8

	addr             uint64
	data             []byte
	fixedFP, fixedRA int8 // offsets from the CFA that hold for all rows; 0: rows have them
	num              int  // functions
	fdes, rows, end  int  // where functions begin, rows begin, and end
}

// Function is a function's entry in a section.
type Function struct {
	Offset uint64 // of its entry in the section
	Start  uint64 // link-time address
	Size   uint32
	Rows   uint32 // their number
	// Repeat, if not 0, is the size in bytes of a block that repeats in the function:
	// starts of rows are offsets in the block.
	Repeat uint8
	Signal bool // a signal frame

	flexible  bool // rows have control words
	startSize int  // bytes of a row's start
	pos       int  // of the first row in the section
}

// Row applies from an offset in the function, or in its block, up to the start of the
// next row.
type Row struct {
	Start uint32
	// Outermost says that the return address is undefined. The rules below are zero then.
	Outermost bool
	CFA       Rule
	RA, FP    Rule // FP may be NotSaved
}

// Base is the base of a rule's address or value.
type Base uint8

const (
	NotSaved Base = iota // the caller's value is in the register
	OnCFA                // the CFA
	OnReg                // a register
)

// Rule is a value: base plus offset, or the word there.
type Rule struct {
	Base   Base
	Reg    uint8 // DWARF number, for OnReg
	Offset int32
	Deref  bool
}

// Parse reads the header of a section that lies at addr. data is not copied. The functions are not looked at: each is
// checked when it is read. addr is the link-time address, or any other: starts of functions count from it.
func Parse(addr uint64, data []byte) (*Section, error) {
	le := binary.LittleEndian
	if len(data) < headerSize {
		return nil, fmt.Errorf("%w: a header of %d bytes in %d", ErrTruncated, headerSize, len(data))
	}
	if m := le.Uint16(data); m != magic {
		return nil, fmt.Errorf("%w: magic number %#x", ErrMalformed, m)
	}
	s := &Section{Version: data[2], Flags: data[3], addr: addr, data: data, fixedFP: int8(data[5]), fixedRA: int8(data[6])}
	if s.Version < 1 || s.Version > 3 {
		return nil, fmt.Errorf("%w: version %d", ErrUnsupported, s.Version)
	}
	if data[4] != abiAMD64 {
		return nil, fmt.Errorf("%w: for ABI %d", ErrUnsupported, data[4])
	}
	// Bit 1 (SFRAME_F_FRAME_POINTER) says that all functions keep rbp; rows say so too.
	defined := [...]uint8{0, 3, 7, 7}[s.Version] // flags by version
	if unknown := s.Flags &^ defined; unknown != 0 {
		return nil, fmt.Errorf("%w: flags %#x", ErrUnsupported, unknown)
	}
	end := uint64(headerSize) + uint64(data[7]) // sub-sections count from the end of the header with its auxiliary part
	num, size := uint64(le.Uint32(data[8:])), uint64(le.Uint32(data[16:]))
	fdes, rows := end+uint64(le.Uint32(data[20:])), end+uint64(le.Uint32(data[24:]))
	switch {
	case fdes+num*uint64(s.fdeSize()) > uint64(len(data)):
		return nil, fmt.Errorf("%w: %d functions from +%#x in %#x bytes", ErrTruncated, num, fdes, len(data))
	case rows+size > uint64(len(data)):
		return nil, fmt.Errorf("%w: rows from +%#x to +%#x in %#x bytes", ErrTruncated, rows, rows+size, len(data))
	}
	s.num, s.fdes, s.rows, s.end = int(num), int(fdes), int(rows), int(rows+size)
	return s, nil
}

// fdeSize returns the bytes of a function's entry, or of its index entry in version 3.
func (s *Section) fdeSize() int { return [...]int{0, fdeSizeV1, fdeSizeV2, indexSizeV3}[s.Version] }

// Len returns the number of functions.
func (s *Section) Len() int { return s.num }

// Size returns the size of the section in bytes, without bytes after the rows. Where the size comes from a segment, it
// may be more.
func (s *Section) Size() int { return max(s.end, s.fdes+s.num*s.fdeSize()) }

// Function returns function i. With an error, Offset is set, and Start and Size are set if they are known. i is in [0,
// Len()). Errors wrap ErrTruncated, ErrMalformed or ErrUnsupported.
func (s *Section) Function(i int) (Function, error) {
	le := binary.LittleEndian
	off := s.fdes + i*s.fdeSize()
	b := s.data[off : off+s.fdeSize()]
	f := Function{Offset: uint64(off)}
	base := s.addr
	if s.Flags&flagPCRel != 0 {
		base += f.Offset
	}
	var offset uint64
	if s.Version == 3 {
		f.Start, f.Size, offset = base+le.Uint64(b), le.Uint32(b[8:]), uint64(le.Uint32(b[12:]))
	} else {
		f.Start, f.Size, offset = base+uint64(int64(int32(le.Uint32(b)))), le.Uint32(b[4:]), uint64(le.Uint32(b[8:]))
	}
	if offset > uint64(s.end-s.rows) {
		return f, fmt.Errorf("%w: its rows begin at +%#x of %#x bytes", ErrTruncated, offset, s.end-s.rows)
	}
	f.pos = s.rows + int(offset)
	var info, info2 uint8
	switch s.Version {
	case 1:
		f.Rows, info, f.Repeat = le.Uint32(b[12:]), b[16], repeatV1
	case 2:
		f.Rows, info, f.Repeat = le.Uint32(b[12:]), b[16], b[17]
	default:
		if s.end-f.pos < attrSizeV3 {
			return f, fmt.Errorf("%w: its attributes at +%#x of %#x bytes", ErrTruncated, offset, s.end-s.rows)
		}
		a := s.data[f.pos:]
		f.Rows, info, info2, f.Repeat = uint32(le.Uint16(a)), a[2], a[3], a[4]
		f.pos += attrSizeV3
		f.Signal = info>>7 != 0
		info &^= 1 << 7
	}
	// Bits 0 to 3 are the size of starts, bit 4 says that a block repeats, bit 5 is the key of AArch64's signed return
	// addresses. info2 is the type of version 3: 0, or 1 for rows with control words.
	if info&^0x1f != 0 || info2 > 1 {
		return f, fmt.Errorf("%w: info bytes %#x, %#x", ErrUnsupported, info, info2)
	}
	if info&0xf > 2 {
		return f, fmt.Errorf("%w: rows of type %d", ErrMalformed, info&0xf)
	}
	f.startSize, f.flexible = 1<<(info&0xf), info2 == 1
	switch repeated := info>>4 == 1; {
	case !repeated:
		f.Repeat = 0
	case f.Repeat == 0:
		return f, fmt.Errorf("%w: blocks of 0 bytes repeat", ErrMalformed)
	}
	return f, nil
}

// All iterates over the rows of a function as stored. Their starts ascend. An error
// comes with the zero Row and ends the iteration.
func (s *Section) All(f *Function) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		pos, last := f.pos, int64(-1)
		for i := range f.Rows {
			row, n, err := s.row(f, pos)
			if err == nil && int64(row.Start) <= last {
				err = fmt.Errorf("%w: row %d begins at %#x, the one before at %#x", ErrMalformed, i, row.Start, last)
			}
			if err != nil {
				yield(Row{}, err)
				return
			}
			if !yield(row, nil) {
				return
			}
			pos, last = pos+n, int64(row.Start)
		}
	}
}

// row reads the row at pos, and returns its size in bytes. f.Rows bounds the number of calls, not the bytes: pos may be
// anywhere up to s.end.
func (s *Section) row(f *Function, pos int) (row Row, size int, err error) {
	b := s.data[pos:s.end]
	if len(b) < f.startSize+1 {
		return row, 0, fmt.Errorf("%w: a row at the end of the rows", ErrTruncated)
	}
	row.Start = uint32(word(b, f.startSize, false))
	info := b[f.startSize]
	b = b[f.startSize+1:]
	if info>>7 != 0 {
		return row, 0, fmt.Errorf("%w: a mangled return address", ErrUnsupported)
	}
	count, code := int(info>>1&0xf), info>>5&3
	if code == 3 {
		return row, 0, fmt.Errorf("%w: data words of size code 3", ErrMalformed)
	}
	// The info byte: bit 0 is set for a CFA on rsp, then 4 bits of the number of words, 2 of their size, and the mark
	// of a signed return address, which x86-64 has not.
	each := 1 << code
	if count*each > len(b) {
		return row, 0, fmt.Errorf("%w: %d data words of %d bytes in %d", ErrTruncated, count, each, len(b))
	}
	words := words{b: b[:count*each], each: each}
	switch {
	case count == 0 && s.Version == 1:
		err = fmt.Errorf("%w: a row without a CFA", ErrMalformed)
	case count == 0:
		row.Outermost = true
	case f.flexible:
		err = s.flexible(&row, &words)
	default:
		s.plain(&row, &words, info&1 == 0)
	}
	if err == nil && words.missing {
		err = fmt.Errorf("%w: %d data words", ErrMalformed, count)
	}
	if err == nil && len(words.b) > 0 {
		err = fmt.Errorf("%w: %d of %d data words are left over", ErrMalformed, len(words.b)/each, count)
	}
	return row, f.startSize + 1 + count*each, err
}

// plain reads offsets: of the CFA from rsp or rbp, of the return address and of rbp from the CFA, unless they are those
// of the header. The order of the words is fixed: CFA, return address, rbp.
func (s *Section) plain(row *Row, w *words, onFP bool) {
	row.CFA = Rule{Base: OnReg, Reg: regSP, Offset: w.signed()}
	if onFP {
		row.CFA.Reg = regFP
	}
	if row.RA = fixed(s.fixedRA); s.fixedRA == 0 {
		row.RA = saved(w.signed())
	}
	if row.FP = fixed(s.fixedFP); s.fixedFP == 0 && len(w.b) > 0 {
		row.FP = saved(w.signed())
	}
}

// flexible reads pairs of a control word and an offset. A control word of zero has no
// offset: the rule is the header's.
func (s *Section) flexible(row *Row, w *words) (err error) {
	if row.CFA, err = w.rule(); err != nil {
		return err
	}
	if row.CFA.Base != OnReg {
		return fmt.Errorf("%w: a CFA on the CFA", ErrMalformed)
	}
	row.RA, row.FP = fixed(s.fixedRA), fixed(s.fixedFP)
	for _, r := range []*Rule{&row.RA, &row.FP} {
		if len(w.b) == 0 {
			break
		}
		rule, err := w.rule()
		if err != nil {
			return err
		}
		if rule.Base != NotSaved {
			*r = rule
		}
	}
	if row.RA.Base == NotSaved {
		return fmt.Errorf("%w: no return address", ErrMalformed)
	}
	return nil
}

// fixed is the rule that an offset of the header stands for; 0: none.
func fixed(offset int8) Rule {
	if offset == 0 {
		return Rule{}
	}
	return saved(int32(offset))
}

// saved is the rule of a register that is saved at the CFA plus an offset.
func saved(offset int32) Rule { return Rule{Base: OnCFA, Offset: offset, Deref: true} }

// words are the data words of a row.
type words struct {
	b       []byte
	each    int  // bytes of a word: 1, 2 or 4
	missing bool // more were read than there are
}

// next returns the next word, 0 if there is none left. Rows are checked once, when all their words are read: see
// missing.
func (w *words) next(signed bool) int64 {
	if len(w.b) == 0 {
		w.missing = true
		return 0
	}
	v := word(w.b, w.each, signed)
	w.b = w.b[w.each:]
	return v
}

// signed returns the next word as an offset.
func (w *words) signed() int32 { return int32(w.next(true)) }

// rule reads a control word, and the offset that follows unless that is zero.
func (w *words) rule() (Rule, error) {
	const onReg, deref, unused = 1 << 0, 1 << 1, 1 << 2 // bits of a control word; the register follows from bit 3 on
	control := w.next(false)
	if control == 0 {
		return Rule{}, nil
	}
	r := Rule{Base: OnCFA, Deref: control&deref != 0, Offset: w.signed()}
	reg := control >> 3
	switch {
	case control&unused != 0 || reg > 31 || control&onReg == 0 && reg != 0:
		return r, fmt.Errorf("%w: control word %#x", ErrUnsupported, control)
	case control&onReg != 0:
		r.Base, r.Reg = OnReg, uint8(reg)
	}
	return r, nil
}

// word reads a little-endian number of 1, 2 or 4 bytes.
func word(b []byte, size int, signed bool) int64 {
	var v uint32
	switch size {
	case 1:
		v = uint32(b[0])
	case 2:
		v = uint32(binary.LittleEndian.Uint16(b))
	default:
		v = binary.LittleEndian.Uint32(b)
	}
	if signed {
		shift := 32 - 8*size
		return int64(int32(v<<shift) >> shift)
	}
	return int64(v)
}
