package prove

import (
	"bytes"
	"fmt"
)

// spans are the tables over the segments: for each run of 1<<bits pcs, between which pcs there is a table of pages, and
// what to add to where the entry of page 0 would be. bits is 0 if there are none.
type spans struct {
	bits             uint
	lows, highs, ats uint64 // where the entries of run 0 are
	table            term   // what is added, as it was read
	belows, aboves   uint64 // where the other pcs lead to
}

// reads returns the number of reads before that of a page's entry.
func (s spans) reads() int {
	if s.bits == 0 {
		return 0
	}
	return 3
}

// shiftTmp is the begin of shr $n, %edi, behind what a lookup in a table begins with.
var shiftTmp = []byte{0xc1, 0xef}

// beginsSpans reports whether a lookup in tables over segments begins here: one of more pcs than a page has. As
// with beginsTable, this is no claim.
func (p *prover) beginsSpans(at uint64) bool {
	code := p.im.text(at)
	if p.packed {
		code, _ = bytes.CutPrefix(code, packedBegins)
	}
	code, found := bytes.CutPrefix(code, tableBegins)
	return found && len(code) > 2 && bytes.HasPrefix(code, shiftTmp) && code[2] > maxPageBits
}

// maxSpanSteps bounds the instructions up to a comparison with a bound.
const maxSpanSteps = 8

// spanLookup proves a lookup in tables over segments: a pc below the first bound of its run, or not below the second,
// leaves the lookup with the state of the loop intact; all others go on in a table of pages.
func (p *prover) spanLookup(s *state, pages pageTable) error {
	t, w := p.t, p.v.shared
	pc := t.low(w.rel, 4)
	var sp spans
	// entry returns where entry 0 is of the table that has been read last, for the nth time.
	entry := func(s *state, n int) (uint64, error) {
		if len(s.event) != n || s.event[n-1].kind != evRead || s.event[n-1].size != 4 {
			return 0, fmt.Errorf("%#x: no entry of a table over segments is read", s.pc)
		}
		at := s.event[n-1].at
		for bits := uint(1); bits < 32; bits++ {
			if n > 1 && bits != sp.bits {
				continue
			}
			if first, ok := p.x.link(t.scaled(at, t.shrConst(pc, bits), ^uint64(3))); ok {
				sp.bits = bits
				return first, nil
			}
		}
		return 0, fmt.Errorf("%#x: reads a table over segments at %s", s.pc, t.text(at))
	}
	// bound goes through a comparison of the pc with a bound. inside says on which side of it the lookup goes on.
	bound := func(n int, inside bool, first, aside *uint64) error {
		states, err := p.fork(s)
		if err != nil {
			return err
		}
		if *first, err = entry(s, n); err != nil {
			return err
		}
		below := t.ult(pc, t.load(s.event[n-1].at, 4))
		var left, on *state
		for _, f := range states {
			is, err := p.holds(f, below)
			if err != nil {
				return err
			}
			if is == inside {
				on = f
			} else {
				left = f
			}
		}
		if left == nil || on == nil || left == on {
			return fmt.Errorf("%#x: a bound of a segment is not compared with", s.pc)
		}
		if err := p.onlyReads(left, n); err != nil {
			return err
		}
		if err := p.matches(left, &w); err != nil {
			return err
		}
		*aside, s = left.pc, on
		return nil
	}
	if err := bound(1, false, &sp.lows, &sp.belows); err != nil {
		return err
	}
	if err := bound(2, true, &sp.highs, &sp.aboves); err != nil {
		return err
	}
	for n := 0; len(s.event) < 3; n++ {
		if more, err := p.goOn(s); err != nil || more != nil || n > maxSpanSteps {
			return &pathError{s.pc, fmt.Errorf("no segment is read: %v", err)}
		}
	}
	var err error
	if sp.ats, err = entry(s, 3); err != nil {
		return err
	}
	sp.table = t.load(s.event[2].at, 4)
	pages.spans = sp
	return p.tableLookup(s, pages)
}

// fork runs a state up to and over a jump on a condition that is not decided.
func (p *prover) fork(s *state) ([]*state, error) {
	for range maxSpanSteps {
		if more, err := p.goOn(s); err != nil || more != nil {
			return more, err
		}
	}
	return nil, fmt.Errorf("%#x: no bound of a segment is compared with", s.pc)
}

// spanned goes through the tables over segments: the pcs of each run are those below its bounds, those in its table of pages, and
// those above.
func (p *prover) spanned(tab pageTable) error {
	sp := tab.spans
	if tab.low >= tab.high {
		return nil
	}
	first := tab.low >> sp.bits
	count := (tab.high-1)>>sp.bits - first + 1
	var words [3][]byte
	for i, at := range []uint64{sp.lows, sp.highs, sp.ats} {
		if words[i] = p.im.at(at+4*first, 4*count); words[i] == nil {
			return fmt.Errorf("a table of %d runs at %#x is not in the data", count, at+4*first)
		}
	}
	entry := func(table int, i uint64) uint64 { return uint64(le.Uint32(words[table][4*i:])) }
	for i := range count {
		low, high := max(tab.low, (first+i)<<sp.bits), min(tab.high, (first+i+1)<<sp.bits)
		from, to := max(low, min(high, entry(0, i))), max(low, min(high, entry(1, i)))
		if from > to { // what is below the first bound does not come to the second
			to = from
		}
		if err := p.segment(sp.belows, low, from, 0); err != nil {
			return err
		}
		one := tab
		one.first, one.low, one.high, one.spans = tab.first+uint64(int64(int32(entry(2, i)))), from, to, spans{}
		if err := p.pages(one); err != nil {
			return err
		}
		if err := p.segment(sp.aboves, to, high, 0); err != nil {
			return err
		}
	}
	return nil
}
