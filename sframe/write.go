package sframe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// This file writes sections, as gas and GNU ld do for the versions that they know. What a version cannot express is an
// error, never an approximation; the caller leaves such functions out.

// ErrCannotSay is wrapped if a version of the format cannot express something.
var ErrCannotSay = errors.New("cannot be expressed in SFrame")

// Options says what is written.
type Options struct {
	Version uint8  // 1 to 3
	Addr    uint64 // link-time address of the section
	// PCRel makes starts relative to the fields that hold them. The Linux kernel requires
	// it with version 3; readers before binutils 2.45 do not know it.
	PCRel bool
}

// Entry is a function to write. Rows ascend and begin at 0 or later; the last applies up
// to the end of the function, or of its block.
type Entry struct {
	Start  uint64 // link-time address
	Size   uint32
	Repeat uint8 // as Function.Repeat
	Signal bool
	Rows   []Row
}

// fixedRA is the offset of the return address from the CFA on x86-64. A call pushes the return address just below the
// CFA (x86-64 psABI, figure 3.3), so the header can say it for all rows.
const fixedRA = -8

// CanSay returns nil if a version can express a row; otherwise the error wraps
// ErrCannotSay. signal belongs to the row's function.
func CanSay(version uint8, r *Row, signal bool) error {
	switch {
	case version == 3:
		return flexibleWords(r)
	case signal:
		return fmt.Errorf("%w version %d: a signal frame", ErrCannotSay, version)
	case r.Outermost && version == 1:
		return fmt.Errorf("%w version 1: the end of the stack", ErrCannotSay)
	case !isPlain(r):
		return fmt.Errorf("%w version %d: a CFA not on rsp or rbp, or a register not saved at the CFA", ErrCannotSay, version)
	}
	return nil
}

// isPlain reports whether offsets alone can express a row.
func isPlain(r *Row) bool {
	return r.Outermost ||
		r.CFA.Base == OnReg && !r.CFA.Deref && (r.CFA.Reg == regSP || r.CFA.Reg == regFP) &&
			r.RA == saved(fixedRA) && (r.FP.Base == NotSaved || r.FP.Base == OnCFA && r.FP.Deref)
}

// flexibleWords returns an error if control words cannot express a row.
func flexibleWords(r *Row) error {
	switch {
	case r.Outermost:
		return nil
	case r.CFA.Base != OnReg:
		return fmt.Errorf("%w: a CFA that is not on a register", ErrCannotSay)
	case r.RA.Base == NotSaved:
		return fmt.Errorf("%w: a return address that is not saved", ErrCannotSay)
	}
	for _, rule := range []Rule{r.CFA, r.RA, r.FP} {
		if rule.Base == OnCFA && !rule.Deref || rule.Reg > 31 {
			return fmt.Errorf("%w: a value that is the CFA and an offset", ErrCannotSay)
		}
	}
	return nil
}

// Encode returns the bytes of a section. Entries must ascend by their starts. Errors wrap ErrCannotSay, ErrMalformed or
// ErrUnsupported.
func Encode(opt Options, entries []Entry) ([]byte, error) {
	if opt.Version < 1 || opt.Version > 3 || opt.PCRel && opt.Version == 1 {
		return nil, fmt.Errorf("%w: version %d", ErrUnsupported, opt.Version)
	}
	le := binary.LittleEndian
	each := (&Section{Version: opt.Version}).fdeSize()
	if len(entries) > math.MaxInt32/each {
		return nil, fmt.Errorf("%w: %d functions", ErrUnsupported, len(entries))
	}
	b := make([]byte, headerSize+each*len(entries))
	le.PutUint16(b, magic)
	b[2], b[3], b[4] = opt.Version, flagSorted, abiAMD64
	if opt.PCRel {
		b[3] |= flagPCRel
	}
	b[6] = byte(0x100 + fixedRA) // the header's offset of the return address, as a byte
	numRows := 0
	for i := range entries {
		e := &entries[i]
		if i > 0 && e.Start < entries[i-1].Start {
			return nil, fmt.Errorf("%w: the function at %#x follows that at %#x", ErrMalformed, e.Start, entries[i-1].Start)
		}
		offset := len(b) - headerSize - each*len(entries)
		if offset > math.MaxInt32 {
			return nil, fmt.Errorf("%w: rows of %d bytes", ErrUnsupported, offset)
		}
		off := headerSize + each*i
		base := opt.Addr
		if opt.PCRel {
			base += uint64(off)
		}
		distance := int64(e.Start - base)
		var err error
		if b, err = appendRows(b, opt.Version, e, off, uint32(offset)); err != nil {
			return nil, fmt.Errorf("function at %#x: %w", e.Start, err)
		}
		if opt.Version == 3 {
			le.PutUint64(b[off:], uint64(distance))
		} else if distance != int64(int32(distance)) {
			return nil, fmt.Errorf("function at %#x: %w version %d: a distance of %#x from the section", e.Start, ErrCannotSay,
				opt.Version, distance)
		} else {
			le.PutUint32(b[off:], uint32(distance))
		}
		numRows += len(e.Rows)
	}
	rows := headerSize + each*len(entries)
	for i, v := range []int{len(entries), numRows, len(b) - rows, 0, rows - headerSize} {
		le.PutUint32(b[8+4*i:], uint32(v))
	}
	return b, nil
}

// appendRows appends the rows of a function, with its attributes, and writes its entry except for the start. off is
// where the entry lies in b, offset where the rows begin in the sub-section of rows.
func appendRows(b []byte, version uint8, e *Entry, off int, offset uint32) ([]byte, error) {
	le := binary.LittleEndian
	var info uint8
	last := int64(-1)
	flexible := false // some row needs control words; then all have them
	for i := range e.Rows {
		r := &e.Rows[i]
		if int64(r.Start) <= last {
			return nil, fmt.Errorf("%w: a row at %#x after one at %#x", ErrMalformed, r.Start, last)
		}
		last = int64(r.Start)
		if err := CanSay(version, r, e.Signal); err != nil {
			return nil, err
		}
		flexible = flexible || !isPlain(r)
	}
	// The smallest size that holds all starts.
	switch {
	case last > math.MaxUint16:
		info = 2
	case last > math.MaxUint8:
		info = 1
	}
	startSize := 1 << info
	if e.Repeat != 0 {
		if version == 1 && e.Repeat != repeatV1 {
			return nil, fmt.Errorf("%w version 1: blocks of %d bytes that repeat", ErrCannotSay, e.Repeat)
		}
		info |= 1 << 4
	}
	le.PutUint32(b[off+4*boolInt(version == 3)+4:], e.Size) // version 3 has starts of 8 bytes
	le.PutUint32(b[off+4*boolInt(version == 3)+8:], offset)
	if version == 3 {
		if len(e.Rows) > math.MaxUint16 {
			return nil, fmt.Errorf("%w version 3: %d rows of a function", ErrCannotSay, len(e.Rows))
		}
		if e.Signal {
			info |= 1 << 7
		}
		b = le.AppendUint16(b, uint16(len(e.Rows)))
		b = append(b, info, byte(boolInt(flexible)), e.Repeat)
	} else {
		le.PutUint32(b[off+12:], uint32(len(e.Rows)))
		b[off+16] = info
		if version == 2 {
			b[off+17] = e.Repeat
		}
	}
	for i := range e.Rows {
		b = appendRow(b, &e.Rows[i], startSize, flexible)
	}
	return b, nil
}

// boolInt is 1 for true.
func boolInt(v bool) int {
	if v {
		return 1
	}
	return 0
}

// appendRow appends a row: its start, the info byte, and words of one size.
func appendRow(b []byte, r *Row, startSize int, flexible bool) []byte {
	b = appendWord(b, int64(r.Start), startSize)
	var values []int64
	onFP := false
	switch {
	case r.Outermost:
	case flexible:
		values = append(values, control(r.CFA), int64(r.CFA.Offset))
		if r.RA != saved(fixedRA) {
			values = append(values, control(r.RA), int64(r.RA.Offset))
		} else if r.FP.Base != NotSaved {
			values = append(values, 0) // the header's
		}
		if r.FP.Base != NotSaved {
			values = append(values, control(r.FP), int64(r.FP.Offset))
		}
	default:
		values = append(values, int64(r.CFA.Offset))
		if r.FP.Base != NotSaved {
			values = append(values, int64(r.FP.Offset))
		}
		onFP = r.CFA.Reg == regFP
	}
	code := 0 // of the size that all words fit into, control words, too, though they have no sign
	for _, v := range values {
		switch {
		case v != int64(int16(v)):
			code = 2
		case v != int64(int8(v)):
			code = max(code, 1)
		}
	}
	b = append(b, byte(boolInt(!onFP)|len(values)<<1|code<<5))
	for _, v := range values {
		b = appendWord(b, v, 1<<code)
	}
	return b
}

// control returns the control word of a rule.
func control(r Rule) int64 {
	v := int64(boolInt(r.Deref)) << 1
	if r.Base == OnReg {
		v |= 1 | int64(r.Reg)<<3
	}
	return v
}

// appendWord appends the low bytes of a number.
func appendWord(b []byte, v int64, size int) []byte {
	for range size {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
}
