package inflate

import "math/bits"

// entry is what the next bits of the input mean:
//
//	bits 0..7   how many bits the code has
//	bits 8..15  kind and number of extra bits
//	bits 16..31 the literal, the base of a length or distance, or the index of a subtable
type entry uint32

const (
	kindLiteral = 1 << 15
	kindSub     = 1 << 14 // the extra bits are the subtable's
	kindEnd     = 1 << 13
	kindBad     = 1 << 12 // no code has these bits
	extraShift  = 8
	extraMask   = 0xf
)

// table finds the entry of a code by the next tableBits bits, and where the code
// is longer, by those after them in a subtable.
type table struct {
	entries []entry
	bits    uint
}

const maxCodeBits = 15

// build makes the table for codes of these lengths: RFC 1951, 3.2.2. meaning has an
// entry for each symbol, without the bits of its code. It reports whether each
// sequence of bits has a meaning; only a single code of one bit, or none at all, may
// leave some without.
func (t *table) build(lengths []uint8, width uint, meaning []entry) bool {
	var count [maxCodeBits + 1]int
	for _, l := range lengths {
		count[l]++
	}
	count[0] = 0
	most := maxCodeBits
	for most > 0 && count[most] == 0 {
		most--
	}
	t.bits = width
	size := 1 << width
	if most == 0 { // no codes: whoever looks one up finds that it is bad
		t.grow(size)
		for i := range t.entries {
			t.entries[i] = kindBad
		}
		return true
	}
	var next [maxCodeBits + 2]int
	left := 1
	for l := 1; l <= maxCodeBits; l++ {
		left = left<<1 - count[l]
		if left < 0 {
			return false
		}
		next[l+1] = (next[l] + count[l]) << 1
	}
	single := most == 1 && count[1] == 1
	if left > 0 && !single {
		return false
	}
	t.grow(size)
	if single {
		for i := range t.entries {
			t.entries[i] = kindBad
		}
	}
	// Codes by length, and those of a length by symbol, are ascending: a subtable
	// belongs to codes that follow each other.
	for s, l := range lengths {
		if l == 0 {
			continue
		}
		n := uint(l)
		code := uint(bits.Reverse16(uint16(next[n]))) >> (16 - n)
		next[n]++
		if n <= width {
			e := meaning[s] | entry(n)
			for i := code; i < uint(size); i += 1 << n {
				t.entries[i] = e
			}
			continue
		}
		low := code & (1<<width - 1)
		sub := t.entries[low]
		if sub&kindSub == 0 {
			depth := uint(most) - width
			at := len(t.entries)
			t.extend(1 << depth)
			sub = entry(at)<<16 | kindSub | entry(depth)<<extraShift | entry(width)
			t.entries[low] = sub
		}
		depth := uint(sub>>extraShift) & extraMask
		e := meaning[s] | entry(n-width)
		for i := code >> width; i < 1<<depth; i += 1 << (n - width) {
			t.entries[uint(sub>>16)+i] = e
		}
	}
	return true
}

// grow makes the table n empty entries.
func (t *table) grow(n int) {
	if cap(t.entries) < n {
		t.entries = make([]entry, n, 2*n)
	}
	t.entries = t.entries[:n]
	clear(t.entries)
}

func (t *table) extend(n int) {
	for range n {
		t.entries = append(t.entries, 0)
	}
}
