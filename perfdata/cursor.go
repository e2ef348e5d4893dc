package perfdata

import (
	"bytes"
	"encoding/binary"
)

// cursor reads little-endian fields from the front of data. The first read past
// the end sets bad; all later ones return zeros.
type cursor struct {
	data []byte
	bad  bool
}

// bytes returns the next n bytes without copying them; nil if there are fewer.
func (c *cursor) bytes(n uint64) []byte {
	if c.bad || n > uint64(len(c.data)) {
		c.bad = true
		return nil
	}
	b := c.data[:n:n]
	c.data = c.data[n:]
	return b
}

// u16, u32 and u64 read little-endian numbers.
func (c *cursor) u16() uint16 {
	if b := c.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// u32 reads 4 bytes.
func (c *cursor) u32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// u64 reads 8 bytes.
func (c *cursor) u64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// words appends n 64-bit fields to dst.
func (c *cursor) words(dst []uint64, n uint64) []uint64 {
	// The check avoids n*8 wrapping around.
	if n > uint64(len(c.data))/8 {
		c.bad = true
		return dst
	}
	b := c.bytes(n * 8)
	for i := 0; i+8 <= len(b); i += 8 {
		dst = append(dst, binary.LittleEndian.Uint64(b[i:]))
	}
	return dst
}

// text reads the rest as a string that ends at the first zero byte.
func (c *cursor) text() []byte {
	b := c.data
	c.data = nil
	return untilZero(b)
}

// untilZero returns b up to its first zero byte, or all of it.
func untilZero(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// headerString reads struct perf_header_string.
func (c *cursor) headerString() string {
	// The length includes padding with zeros.
	n := c.u32()
	return string(untilZero(c.bytes(uint64(n))))
}
