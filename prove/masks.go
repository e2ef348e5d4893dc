package prove

import (
	"fmt"

	"github.com/ehasm/ehasm/abi"
)

// masks returns which sets of registers may be valid on a path, as masks by DWARF number: the
// path's conditions are evaluated for all combinations. Of registers that the path does not look
// at, other than rsp, rip and rbp, none is listed.
func (p *proof) masks(s *state) ([]uint64, error) {
	var conds []lit
	looked := needed | 1<<abi.RBP
	for _, c := range s.conds {
		// Conditions on anything else hold or fail alike for all masks.
		if !p.mentions(c.t, p.v.old.valid) {
			continue
		}
		on := p.validBits(c.t)
		// A condition that depends on more than the mask cannot be evaluated below.
		known := true
		// Evaluating only finds out what the term depends on: of sees each variable.
		p.t.eval(c.t, func(x term) uint64 {
			known = known && x == p.v.old.valid
			return 0
		})
		// A path that looks at other bits of the mask is not understood.
		if !known || on&^inRegisters != 0 {
			return nil, fmt.Errorf("%#x: a decision on %s", s.pc, p.t.text(c.t))
		}
		looked |= on
		conds = append(conds, c)
	}
	// Go through all subsets of the bits that were looked at.
	var out []uint64
	for m := looked; ; m = (m - 1) & looked {
		feasible := true
		for _, c := range conds {
			known := true
			got := p.t.eval(c.t, func(x term) uint64 {
				known = known && x == p.v.old.valid
				return m
			})
			if !known {
				return nil, fmt.Errorf("%#x: a decision on %s", s.pc, p.t.text(c.t))
			}
			if (got != 0) == c.neg {
				feasible = false
				break
			}
		}
		if feasible {
			out = append(out, m)
		}
		if m == 0 {
			return out, nil
		}
	}
}

// mentions reports whether a term depends on v, other than through memory.
func (p *proof) mentions(x, v term) bool {
	n := &p.t.nodes[x]
	switch n.op {
	case tConst, tVar:
		return x == v
	case tLoad:
		return false
	case tIte:
		return p.mentions(n.a, v) || p.mentions(n.b, v) || p.mentions(n.c, v)
	case tSext, tBsf:
		return p.mentions(n.a, v)
	}
	return p.mentions(n.a, v) || p.mentions(n.b, v)
}

// validBits returns the bits of the mask of valid registers that a term may depend on.
func (p *proof) validBits(x term) uint64 {
	n := &p.t.nodes[x]
	switch n.op {
	case tConst:
		return 0
	case tVar:
		return ^uint64(0)
	// A constant and the mask of valid registers: only those bits count.
	case tAnd, tBit:
		for _, s := range [2][2]term{{n.a, n.b}, {n.b, n.a}} {
			if k, ok := p.t.value(s[0]); ok && s[1] == p.v.old.valid {
				if n.op == tBit {
					return 1 << k
				}
				return k
			}
		}
	case tSext, tBsf, tLoad:
		return p.validBits(n.a)
	case tIte:
		return p.validBits(n.a) | p.validBits(n.b) | p.validBits(n.c)
	}
	return p.validBits(n.a) | p.validBits(n.b)
}
