package symbols

import (
	"strings"
	"unsafe"
)

// stringTable is a string table. Any number of symbols may begin anywhere in one string of a hostile file, so neither
// the time nor the memory of get grows with the string.
type stringTable struct {
	text string
	ends []int // of the string that holds the first byte of each block
}

// nameBlock is the size of the blocks: few names are longer.
const nameBlock = 4 << 10

// newStringTable returns the strings of a table, to which nothing may write any more.
func newStringTable(table []byte) *stringTable {
	n := &stringTable{text: unsafe.String(unsafe.SliceData(table), len(table))}
	n.ends = make([]int, (len(table)+nameBlock-1)/nameBlock)
	// From the last block to the first: a block without a zero ends where the one after it does.
	end := len(table)
	for i := len(n.ends) - 1; i >= 0; i-- {
		start := i * nameBlock
		if k := strings.IndexByte(n.text[start:min(start+nameBlock, len(n.text))], 0); k >= 0 {
			end = start + k
		}
		n.ends[i] = end
	}
	return n
}

// get returns the string at an offset, or "" if there is none.
func (n *stringTable) get(off uint64) string {
	if off >= uint64(len(n.text)) {
		return ""
	}
	// The rest of the block; then the string ends where the one of the next block's first byte does.
	next := min((int(off)/nameBlock+1)*nameBlock, len(n.text))
	if k := strings.IndexByte(n.text[off:next], 0); k >= 0 {
		return n.text[off : int(off)+k]
	}
	if next == len(n.text) {
		return n.text[off:]
	}
	return n.text[off:n.ends[next/nameBlock]]
}
