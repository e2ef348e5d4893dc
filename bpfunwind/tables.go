package bpfunwind

import (
	"encoding/binary"
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file builds tables: a two-level index from a pc to a record. An entry has two bytes, so a part has at most 256
// records.

// Tables is what the program reads of one object: its rows as records. It does not change once made.
type Tables struct {
	parts []part // ascending, disjoint
}

// part has the rows of consecutive pages of code. Its bytes are three arrays:
//
//	index    u32 for each page and one more: the number of the page's first entry
//	entries  u16: the low byte of an address, and from there on the record's number
//	records  at most 256
//
// The last entry before a page's first holds at the page's start, so entry 0 belongs to no page.
type part struct {
	start   uint64 // link-time, a multiple of pageSize
	pages   int
	entries int // offset of the entries in the data
	records int // offset of the records
	data    []byte
}

const (
	pageShift  = 8
	pageSize   = 1 << pageShift // bytes of code
	maxRecords = 256            // of a part
	maxPart    = 256 << 10      // bytes
	maxAddress = 1 << 47        // no program's code lies above
	maxPages   = 1 << 24        // of an object
	// maxEmpty is how many pages without a row stay in a part: a page takes 4 bytes of the index, and another part
	// 32 bytes for each process.
	maxEmpty = 1024
)

// end returns the address behind the last page.
func (p *part) end() uint64 { return p.start + uint64(p.pages)<<pageShift }

// Make makes the tables of an object, and proves that they mean its table. The error says why an object cannot be in a
// program's address space, or where the proof failed.
func Make(t *dwarfcfa.Table) (*Tables, error) {
	ts, err := compile(t)
	if err != nil {
		return nil, err
	}
	if err := ts.Prove(t); err != nil {
		return nil, err
	}
	return ts, nil
}

// Size returns the number of bytes of the tables.
func (ts *Tables) Size() (n int) {
	for i := range ts.parts {
		n += len(ts.parts[i].data)
	}
	return n
}

// compile makes the tables of an object.
func compile(t *dwarfcfa.Table) (*Tables, error) {
	if t.High() > maxAddress {
		return nil, fmt.Errorf("code at %#x: no program can have it there", t.High())
	}
	records := make([]record, len(t.Rows))
	for i := range t.Rows {
		records[i] = encode(stepOf(t, &t.Rows[i]))
	}
	b := &builder{page: uint64(t.Low()) >> pageShift}
	for i, r := range t.Ranges {
		b.change(uint64(r.Start), records[r.Row])
		if i+1 == len(t.Ranges) || t.Ranges[i+1].Start != r.End {
			b.change(uint64(r.End), record{})
		}
		if b.pages > maxPages {
			return nil, fmt.Errorf("more than %d MB of code", maxPages>>(20-pageShift))
		}
	}
	b.endPage()
	b.endPart()
	return &Tables{parts: b.parts}, nil
}

// builder makes parts from the places where the record changes.
type builder struct {
	parts []part
	pages int // in all

	page    uint64   // the number of the page that changes are collected for
	changes []change // in it
	before  record   // holds at its start
	now     record   // holds after the last change

	// The part that grows; its pages are those up to page.
	start   uint64
	index   []uint32
	entries []uint16
	list    []record
	numbers map[record]int
}

// change says which record holds from an address on.
type change struct {
	addr byte // the low byte
	record
}

// change adds a place. Addresses ascend.
func (b *builder) change(addr uint64, r record) {
	if r == b.now {
		return
	}
	for page := addr >> pageShift; b.page < page && b.pages <= maxPages; {
		b.endPage()
		if b.now == (record{}) && page-b.page > maxEmpty {
			b.endPart()
			b.page = page
		}
	}
	b.changes = append(b.changes, change{byte(addr), r})
	b.now = r
}

// endPage adds the page to the part, or begins another one where it does not fit.
func (b *builder) endPage() {
	if len(b.index) > 0 && !b.fits() {
		b.endPart()
	}
	if len(b.index) == 0 {
		b.start, b.numbers = b.page<<pageShift, make(map[record]int)
		b.add(change{0, b.before})
	}
	b.index = append(b.index, uint32(len(b.entries)))
	for _, c := range b.changes {
		b.add(c)
	}
	b.changes, b.before = b.changes[:0], b.now
	b.page++
	b.pages++
}

// fits reports whether the part has room for the page. The record before the page counts as one more: endPage adds it
// if the page begins a part.
func (b *builder) fits() bool {
	fresh := 0
	for _, c := range b.changes {
		if _, known := b.numbers[c.record]; !known {
			fresh++
		}
	}
	size := 4*(len(b.index)+2) + 2*(len(b.entries)+len(b.changes)) + recordSize*(len(b.list)+fresh+1)
	return len(b.list)+fresh <= maxRecords && size <= maxPart
}

// add adds an entry.
func (b *builder) add(c change) {
	n, known := b.numbers[c.record]
	if !known {
		n = len(b.list)
		b.numbers[c.record] = n
		b.list = append(b.list, c.record)
	}
	b.entries = append(b.entries, uint16(c.addr)|uint16(n)<<8)
}

// endPart lays the part out.
func (b *builder) endPart() {
	if len(b.index) == 0 {
		return
	}
	p := part{start: b.start, pages: len(b.index)}
	for _, i := range append(b.index, uint32(len(b.entries))) {
		p.data = binary.LittleEndian.AppendUint32(p.data, i)
	}
	p.entries = len(p.data)
	for _, e := range b.entries {
		p.data = binary.LittleEndian.AppendUint16(p.data, e)
	}
	p.data = append(p.data, make([]byte, -len(p.data)&(recordSize-1))...)
	p.records = len(p.data)
	for _, r := range b.list {
		p.data = append(p.data, r[:]...)
	}
	b.parts = append(b.parts, p)
	b.index, b.entries, b.list, b.numbers = nil, nil, nil, nil
}
