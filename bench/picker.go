package main

import (
	"errors"
	"math/rand/v2"
	"sort"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
)

// maxSynthFrame bounds the size of one synthetic frame, in bytes.
const maxSynthFrame = 1024

// usable reports whether a row can be a frame of a synthetic stack: the CFA on rsp
// or rbp, the return address and callee-saved registers saved below it, not
// below rsp, everything else without a rule.
func usable(r *dwarfcfa.Row) bool {
	if r.Flags != 0 || r.CFA.Kind != dwarfcfa.CFARegOffset || r.CFA.Reg != abi.RSP && r.CFA.Reg != abi.RBP ||
		r.Regs[abi.RIP].Kind != dwarfcfa.RuleOffset {
		return false
	}
	low := lowestSlot(r)
	if r.CFA.Reg == abi.RSP && (r.CFA.Offset < -low || r.CFA.Offset > maxSynthFrame) {
		return false
	}
	if r.CFA.Reg == abi.RBP && r.Regs[abi.RBP].Kind != dwarfcfa.RuleOffset {
		return false
	}
	for i, rule := range r.Regs {
		switch {
		case i == abi.RSP:
			if rule.Kind != dwarfcfa.RuleValOffset || rule.Offset != 0 {
				return false
			}
		case i == abi.RIP || abi.CalleeSaved&(1<<i) != 0:
			if rule.Kind == dwarfcfa.RuleSameValue {
				continue
			}
			if rule.Kind != dwarfcfa.RuleOffset || rule.Offset > -8 || rule.Offset%8 != 0 {
				return false
			}
		case rule.Kind != dwarfcfa.RuleUndefined:
			return false
		}
	}
	return r.CFA.Offset%8 == 0 && -low <= maxSynthFrame
}

// lowestSlot returns the lowest offset from the CFA at which a row finds a saved register, 0 if
// none is saved.
func lowestSlot(r *dwarfcfa.Row) (low int64) {
	for _, rule := range r.Regs {
		if rule.Kind == dwarfcfa.RuleOffset {
			low = min(low, rule.Offset)
		}
	}
	return low
}

// candidate is a row of an FDE that synthetic stacks can use.
type candidate struct {
	start, end dwarfcfa.Addr
	row        *dwarfcfa.Row
}

// candidates returns the usable rows of an object. They come from its FDEs, not
// from the finished table: other unwinders have no rows for padding, and take
// registers that were popped from below rsp.
func candidates(s *dwarfcfa.Section, t *dwarfcfa.Table) []candidate {
	var list []candidate
	in := dwarfcfa.NewInterp()
	for e, err := range s.Entries() {
		if err != nil || e.FDE == nil {
			continue
		}
		rows, err := in.Rows(e.FDE)
		if err != nil {
			continue
		}
		for _, raw := range rows {
			if raw.Row.CFA.Reg == abi.RSP && lowestSlot(&raw.Row) < -raw.Row.CFA.Offset {
				continue
			}
			r, ok := t.Lookup(raw.Start)
			if !ok || r.End < raw.End || !usable(&t.Rows[r.Row]) {
				continue
			}
			list = append(list, candidate{raw.Start, raw.End, &t.Rows[r.Row]})
		}
	}
	return list
}

// picker draws pcs of usable rows.
type picker struct {
	rows   []candidate
	upTo   []uint64 // by row i: bytes covered by rows[:i+1]
	rng    *rand.Rand
	byByte bool // pcs are uniform over bytes, not over rows
}

var errNoRows = errors.New("no row that a synthetic stack can use")

// newPicker returns a picker over rows; equal seeds give equal stacks.
func newPicker(rows []candidate, byByte bool, seed uint64) (*picker, error) {
	if len(rows) == 0 {
		return nil, errNoRows
	}
	// upTo has sums of sizes: a random byte falls into the range whose sum is the first above it.
	p := &picker{rows: rows, rng: rand.New(rand.NewPCG(seed, 1)), byByte: byByte}
	var sum uint64
	for _, r := range rows {
		sum += uint64(r.end - r.start)
		p.upTo = append(p.upTo, sum)
	}
	return p, nil
}

// pick returns a pc as it is looked up, and its row.
func (p *picker) pick() (dwarfcfa.Addr, *dwarfcfa.Row) {
	var i int
	// A byte of code at random, or a row at random.
	if p.byByte {
		point := p.rng.Uint64N(p.upTo[len(p.upTo)-1])
		i = sort.Search(len(p.upTo), func(i int) bool { return p.upTo[i] > point })
	} else {
		i = p.rng.IntN(len(p.rows))
	}
	r := p.rows[i]
	// Any byte of the range.
	return r.start + dwarfcfa.Addr(p.rng.Uint64N(uint64(r.end-r.start))), r.row
}
