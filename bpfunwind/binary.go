package bpfunwind

import (
	"encoding/binary"
	"fmt"
)

// The form of tables in files: a magic number, which changes with what records mean, and the number of parts; then each
// part's start (u64), pages, offsets of entries and of records, and bytes (u32 each); then the data of the parts.
const (
	tablesMagic  = "bpfunw01"
	fileHeader   = len(tablesMagic) + 8
	fileForPart  = 24
	maxFileParts = 1 << 16
)

// AppendBinary appends the tables for ParseTables. There is no error.
func (ts *Tables) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, tablesMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(ts.parts)))
	for i := range ts.parts {
		p := &ts.parts[i]
		b = binary.LittleEndian.AppendUint64(b, p.start)
		for _, n := range []int{p.pages, p.entries, p.records, len(p.data)} {
			b = binary.LittleEndian.AppendUint32(b, uint32(n))
		}
	}
	for i := range ts.parts {
		b = append(b, ts.parts[i].data...)
	}
	return b, nil
}

// ParseTables returns the tables that AppendBinary appended. They refer to b. It checks that the program stays within
// them, not what they mean: use it for files that others cannot write, or Prove. The error says what does not fit; b
// may be anything.
func ParseTables(b []byte) (*Tables, error) {
	if len(b) < fileHeader || string(b[:len(tablesMagic)]) != tablesMagic {
		return nil, fmt.Errorf("no tables of this release")
	}
	number := binary.LittleEndian.Uint64(b[len(tablesMagic):])
	if number > maxFileParts || fileHeader+fileForPart*int(number) > len(b) {
		return nil, fmt.Errorf("%d parts in %d bytes", number, len(b))
	}
	heads, data := b[fileHeader:], b[fileHeader+fileForPart*int(number):]
	ts := &Tables{parts: make([]part, number)}
	end := uint64(0)
	for i := range ts.parts {
		field := func(n int) int { return int(binary.LittleEndian.Uint32(heads[8+4*n:])) }
		p := &ts.parts[i]
		*p = part{start: binary.LittleEndian.Uint64(heads), pages: field(0), entries: field(1), records: field(2)}
		size := field(3)
		if size > len(data) || p.start < end {
			return nil, fmt.Errorf("part at %#x: %d bytes of %d", p.start, size, len(data))
		}
		p.data, data, heads = data[:size:size], data[size:], heads[fileForPart:]
		if err := p.check(); err != nil {
			return nil, err
		}
		end = p.end()
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%d bytes behind the last part", len(data))
	}
	return ts, nil
}
