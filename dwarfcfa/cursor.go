package dwarfcfa

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// This file reads bytes of sections. Each read can fail, and callers look at err once for several reads, as
// debug/dwarf's buf does.

// cursor reads little-endian values from the front of data. The first failure
// sticks: later reads return zero and leave err unchanged. pos is an offset in
// the section, so data starts where the section starts.
type cursor struct {
	data []byte // the section up to the end of the readable part
	pos  int    // offset of the next byte in data
	err  error  // the first failure; nil: none

	rewrites []rewrite // what a loader writes of data; only word may read it
}

// done reports whether nothing can be read any more.
func (c *cursor) done() bool { return c.err != nil || c.pos >= len(c.data) }

func (c *cursor) remaining() int { return len(c.data) - c.pos }

// fail sets the first failure and moves to the end, so that loops over done end.
func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.pos = len(c.data)
}

// truncated fails because what is not complete.
func (c *cursor) truncated(what string) {
	c.fail(cause(ErrTruncated, "truncated: %s runs past the end at +%#x", what, len(c.data)))
}

// u8, u16, u32 and u64 read unsigned numbers of 1 to 8 bytes, 0 after a failure.
func (c *cursor) u8() uint8 {
	if c.pos >= len(c.data) {
		c.truncated("a byte")
		return 0
	}
	if c.rewrites != nil && c.rewritten(1) {
		return 0
	}
	b := c.data[c.pos]
	c.pos++
	return b
}

// rewritten fails if a loader writes to the next n bytes, and reports whether it did. What a loader writes is known
// only at run time, but for the load bias that it adds: see word.
func (c *cursor) rewritten(n int) bool {
	i := sort.Search(len(c.rewrites), func(i int) bool { return c.rewrites[i].end > c.pos })
	if i == len(c.rewrites) || c.rewrites[i].start >= c.pos+n {
		return false
	}
	c.fail(errLoader)
	return true
}

// word reads 8 bytes. biased reports whether a loader adds the load bias to them.
func (c *cursor) word() (v uint64, biased bool) {
	i := sort.Search(len(c.rewrites), func(i int) bool { return c.rewrites[i].end > c.pos })
	if i == len(c.rewrites) || c.rewrites[i].start != c.pos || !c.rewrites[i].biased || c.remaining() < 8 {
		return c.u64(), false
	}
	return binary.LittleEndian.Uint64(c.bytes(8)), true
}

// bytes returns the next n bytes, which a loader may write to; it does not copy them.
func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(c.remaining()) {
		c.truncated("a block")
		return nil
	}
	b := c.data[c.pos : c.pos+int(n) : c.pos+int(n)]
	c.pos += int(n)
	return b
}

// number returns the next n bytes, the same in the file and in memory.
func (c *cursor) number(n uint64) []byte {
	if c.rewrites != nil && c.rewritten(int(n)) {
		return nil
	}
	return c.bytes(n)
}

func (c *cursor) u16() uint16 {
	if b := c.number(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.number(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.number(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// cstring returns the bytes up to the next NUL and steps over it. A string must be the same in the file and in memory,
// its NUL included.
func (c *cursor) cstring() string {
	n := bytes.IndexByte(c.data[c.pos:], 0)
	if n < 0 {
		c.truncated("a string")
		return ""
	}
	if c.rewrites != nil && c.rewritten(n+1) {
		return ""
	}
	s := string(c.data[c.pos : c.pos+n])
	c.pos += n + 1
	return s
}

// uleb reads an unsigned LEB128 number (DWARF 5 §7.6). Padding is allowed,
// value bits above 64 are an error.
func (c *cursor) uleb() uint64 {
	if c.pos < len(c.data) && c.data[c.pos] < 0x80 && c.rewrites == nil { // most numbers have one byte
		c.pos++
		return uint64(c.data[c.pos-1])
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if c.err != nil {
			return 0
		}
		low := uint64(b & 0x7f)
		if shift >= 64 && low != 0 || shift == 63 && low > 1 {
			c.fail(cause(ErrBadEncoding, "LEB128 number over 64 bits"))
			return 0
		}
		if shift < 64 {
			v |= low << shift
		}
		if b < 0x80 {
			return v
		}
	}
}

// sleb reads a signed LEB128 number (DWARF 5 §7.6). Padding with copies of the
// sign is allowed, a value that needs more than 64 bits is an error.
func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if c.err != nil {
			return 0
		}
		low := int64(b & 0x7f)
		switch {
		case shift < 63:
			v |= low << shift
		case shift == 63:
			// Bit 63 and six copies of it.
			if low != 0 && low != 0x7f {
				c.fail(cause(ErrBadEncoding, "LEB128 number over 64 bits"))
				return 0
			}
			v |= low << 63
		case v < 0 && low != 0x7f, v >= 0 && low != 0:
			c.fail(cause(ErrBadEncoding, "LEB128 number over 64 bits"))
			return 0
		}
		if b < 0x80 { // extend the sign of the last byte; from shift 57 on the byte had all bits
			if shift < 57 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// AppendSLEB appends a number as signed LEB128 (DWARF 5 §7.6). It is the shortest form.
func AppendSLEB(b []byte, v int64) []byte {
	for v < -0x40 || v >= 0x40 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}
