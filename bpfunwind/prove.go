package bpfunwind

import (
	"encoding/binary"
	"fmt"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file proves tables: first that every offset in them stays inside, which the verifier can't know, then by a sweep
// over all pcs that the record found for each means its row.

// Prove shows from the bytes of the tables that the program finds, at each pc, a record that means the table's row
// there. A record may say that there is none only where the row has none. The error names the first pc that differs.
//
// The claim rests on decode, which says what the program does for a record. The tests run the program beside
// dwarfcfa.Table.Step.
func (ts *Tables) Prove(t *dwarfcfa.Table) error {
	p := prover{table: t, shown: make([]record, len(t.Rows)), steps: make([]step, len(t.Rows)),
		have: make([]bool, len(t.Rows))}
	end := uint64(0) // of the part before
	for i := range ts.parts {
		part := &ts.parts[i]
		if err := part.check(); err != nil {
			return err
		}
		if part.start < end {
			return fmt.Errorf("part at %#x: it begins before the end of another one, %#x", part.start, end)
		}
		if err := p.show(end, part.start, record{}); err != nil {
			return err
		}
		if err := p.part(part); err != nil {
			return err
		}
		end = part.end()
	}
	return p.show(end, 1<<63, record{})
}

// check reports whether the program stays within the bytes of a part, and finds the last entry that is not above a pc.
func (p *part) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("part at %#x: %s", p.start, fmt.Sprintf(format, args...))
	}
	if p.start%pageSize != 0 || p.pages <= 0 || p.pages > maxPages || p.end() > maxAddress+pageSize {
		return bad("%d pages", p.pages)
	}
	if p.entries != 4*(p.pages+1) || p.records < p.entries || p.records%recordSize != 0 || len(p.data) < p.records ||
		(len(p.data)-p.records)%recordSize != 0 || len(p.data) > maxPart {
		return bad("arrays at %d and %d of %d bytes", p.entries, p.records, len(p.data))
	}
	entries, records := (p.records-p.entries)/2, (len(p.data)-p.records)/recordSize
	first := p.first(0)
	if first < 1 || records > maxRecords {
		return bad("first entry %d, %d records", first, records)
	}
	for page := range p.pages {
		next := p.first(page + 1)
		if next < first || int(next) > entries {
			return bad("page %d: entries %d to %d of %d", page, first, next, entries)
		}
		for i := first; i < next; i++ {
			if i > first && p.data[p.entries+2*int(i)] <= p.data[p.entries+2*int(i-1)] {
				return bad("page %d: entries do not ascend", page)
			}
		}
		first = next
	}
	for i := range int(first) {
		if int(p.data[p.entries+2*i+1]) >= records {
			return bad("entry %d: no such record", i)
		}
	}
	return nil
}

// first returns the number of a page's first entry.
func (p *part) first(page int) uint32 { return binary.LittleEndian.Uint32(p.data[4*page:]) }

// record returns the record that an entry names.
func (p *part) record(entry uint32) record {
	n := int(p.data[p.entries+2*int(entry)+1])
	return record(p.data[p.records+recordSize*n:])
}

// prover compares records with rows, from low addresses to high ones.
type prover struct {
	table *dwarfcfa.Table
	next  int      // the first range that ends behind what is shown
	shown []record // by row: one that means it
	steps []step   // by row
	have  []bool   // by row: steps holds it
}

// part shows all pcs of a part.
func (p *prover) part(part *part) error {
	from := part.start
	entry := part.first(0) - 1
	for page := range part.pages {
		for next := part.first(page + 1); entry+1 < next; entry++ {
			to := part.start + uint64(page)<<pageShift + uint64(part.data[part.entries+2*int(entry+1)])
			if err := p.show(from, to, part.record(entry)); err != nil {
				return err
			}
			from = to
		}
	}
	return p.show(from, part.end(), part.record(entry))
}

// show shows that a record means the row of each pc from an address up to another one.
func (p *prover) show(from, to uint64, r record) error {
	for from < to {
		if p.next == len(p.table.Ranges) || uint64(p.table.Ranges[p.next].Start) >= to {
			return noRow(from, r)
		}
		next := &p.table.Ranges[p.next]
		if start := uint64(next.Start); start > from {
			if err := noRow(from, r); err != nil {
				return err
			}
			from = start
		}
		if p.shown[next.Row] != r || r == (record{}) {
			if err := p.means(r, next.Row); err != nil {
				return fmt.Errorf("pc %#x: %w", from, err)
			}
			p.shown[next.Row] = r
		}
		if uint64(next.End) > to {
			return nil
		}
		from = uint64(next.End)
		p.next++
	}
	return nil
}

// noRow returns an error unless the record says that there is no row.
func noRow(pc uint64, r record) error {
	if r != (record{}) {
		return fmt.Errorf("pc %#x: record %x, but the table has no row", pc, r)
	}
	return nil
}

// means returns an error unless a record means a row.
func (p *prover) means(r record, row uint32) error {
	if !p.have[row] {
		p.steps[row], p.have[row] = stepOf(p.table, &p.table.Rows[row]), true
	}
	want := p.steps[row]
	got, err := r.decode()
	switch {
	case err != nil:
		return err
	case got != want && got.kind != stepOther:
		return fmt.Errorf("record %x means %+v; the row %+v", r, got, want)
	case r != encode(want): // it reads more than it needs, or says that there is none
		return fmt.Errorf("record %x; the row %+v has %x", r, want, encode(want))
	}
	return nil
}
