package srcline

import "encoding/binary"

// cursor reads little-endian data. Reads past the end return zero and set bad, which stays set: a reader looks at it
// once, behind the last field, and must not use what it has read before that as an offset or a length without a check.
type cursor struct {
	b   []byte
	off uint64 // offset of the next byte in b
	bad bool   // a read past the end has happened
}

// take returns the next n bytes, which it does not copy; nil if fewer are left.
func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b))-c.off {
		c.bad = true
		return nil
	}
	start := c.off
	c.off += n
	return c.b[start:c.off]
}

// skip steps over n bytes.
func (c *cursor) skip(n uint64) { c.take(n) }

// u8 reads a byte.
func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uint reads n bytes, at most 8.
func (c *cursor) uint(n uint64) uint64 {
	// Little-endian: byte i has the weight 256^i.
	var v uint64
	for i, x := range c.take(n) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// u16 reads 2 bytes.
func (c *cursor) u16() uint16 { return uint16(c.uint(2)) }

// u32 reads 4 bytes.
func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// u64 reads 8 bytes.
func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// offset reads an offset into a section: 4 bytes, or 8 in the 64-bit format.
func (c *cursor) offset(wide bool) uint64 {
	if wide {
		return c.u64()
	}
	return uint64(c.u32())
}

// uleb reads an unsigned LEB128 number (DWARF 5, 7.6). Bits above the 64th are dropped.
func (c *cursor) uleb() uint64 {
	// 7 bits a byte, the lowest first; the highest bit says that more follow.
	var v uint64
	for shift := 0; ; shift += 7 {
		if c.bad || c.off >= uint64(len(c.b)) {
			c.bad = true
			return 0
		}
		x := c.b[c.off]
		c.off++
		v |= uint64(x&0x7f) << shift // a shift of 64 and more gives 0
		if x < 0x80 {
			return v
		}
	}
}

// sleb reads a signed one: the sign is bit 6 of the last byte.
func (c *cursor) sleb() int64 {
	var v int64
	for shift := 0; ; shift += 7 {
		x := c.u8()
		v |= int64(x&0x7f) << shift
		if x < 0x80 {
			// From shift 57 on, all 64 bits are set already.
			if shift < 57 && x&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}

// cstr reads up to and including a zero byte, and returns what is before it, which it does not copy.
func (c *cursor) cstr() []byte {
	start := c.off
	for !c.bad {
		if c.off >= uint64(len(c.b)) {
			c.bad = true
			break
		}
		c.off++
		if c.b[c.off-1] == 0 {
			return c.b[start : c.off-1]
		}
	}
	return nil
}

// stringAt returns the string at an offset of a section, "" beyond its end.
func stringAt(section []byte, off uint64) string {
	if off >= uint64(len(section)) {
		return ""
	}
	c := cursor{b: section, off: off}
	return string(c.cstr())
}

// initialLength reads the length that a unit or table begins with (DWARF 5,
// 7.4), which does not count itself.
func (c *cursor) initialLength() (n uint64, wide bool) {
	n = uint64(c.u32())
	switch {
	// The escape to 64-bit DWARF; values from fffffff0 on are reserved.
	case n == 0xffffffff:
		return c.u64(), true
	case n >= 0xfffffff0:
		c.bad = true
	}
	return n, false
}
