package prove

import "math/bits"

// This file makes comparisons and what follows from them. A simplification may miss that two terms are equal, which
// refuses a right file; it must never say so of two that differ.

// ult is a < b, unsigned.
func (t *terms) ult(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.bool(va < vb)
	// Nothing is below itself or below 0, and 2^64-1 is below nothing.
	case a == b, cb && vb == 0, ca && va == ^uint64(0):
		return t.con(0)
	case cb && t.mask[a] < vb: // a cannot reach b: mask[a] is the largest value of a
		return t.con(1)
	case ca && va >= t.mask[b]:
		return t.con(0)
	}
	return t.make(termNode{op: tUlt, a: a, b: b}, 1)
}

// slt is a < b, signed.
func (t *terms) slt(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.bool(int64(va) < int64(vb))
	case a == b:
		return t.con(0)
	}
	return t.make(termNode{op: tSlt, a: a, b: b}, 1)
}

// eq is a == b. A sum is split, so that equal parts on both sides cancel. The result is the term 1 or 0 where that is
// certain.
func (t *terms) eq(a, b term) term {
	if a == b {
		return t.con(1)
	}
	va, ca := t.value(a)
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.bool(va == vb)
	case cb && vb&^t.mask[a] != 0, ca && va&^t.mask[b] != 0:
		return t.con(0)
	}
	// A constant goes to the right; the rules below look for it there.
	if ca {
		return t.eq(b, a)
	}
	if cb && vb == 0 && t.ones(a) != 0 {
		return t.con(0)
	}
	// (x & 1<<k) == 0 is bit k of x, negated: code may test one bit in several ways.
	if n := t.nodes[a]; cb && vb == 0 && n.op == tAnd { // of one bit
		for _, s := range [2][2]term{{n.a, n.b}, {n.b, n.a}} {
			if k, ok := t.value(s[0]); ok && k&(k-1) == 0 {
				if bit := t.bit(s[1], t.con(uint64(bits.TrailingZeros64(k)))); t.mask[bit] == 1 {
					return t.eqParts(bit, b)
				}
			}
		}
	}
	if t.nodes[a].op == tAdd || t.nodes[b].op == tAdd {
		// a - b as one sum: a == b exactly if it is 0.
		var s sum
		if s.add(t, a, 1) && s.add(t, b, ^uint64(0)) {
			parts, last := 0, 0
			for i := range s.n {
				if s.part[i].k != 0 {
					parts, last = parts+1, i
				}
			}
			switch {
			case parts == 0:
				return t.bool(s.c == 0)
			case parts == 1 && s.part[last].k == 1:
				return t.eqParts(s.part[last].a, t.con(-s.c))
			case parts == 1 && s.part[last].k == ^uint64(0):
				return t.eqParts(s.part[last].a, t.con(s.c))
			}
		}
	}
	return t.eqParts(a, b)
}

// ones returns the bits that are certainly set. It may miss some: 0 says nothing.
func (t *terms) ones(x term) uint64 {
	n := &t.nodes[x]
	switch n.op {
	case tConst:
		return n.k
	case tOr:
		return t.ones(n.a) | t.ones(n.b)
	case tAnd:
		return t.ones(n.a) & t.ones(n.b)
	case tBts:
		return t.ones(n.a)
	}
	return 0
}

// eqParts is a == b where neither is a sum.
func (t *terms) eqParts(a, b term) term {
	if v, ok := t.value(b); ok && v&^t.mask[a] != 0 {
		return t.con(0)
	}
	// b == 1 of a boolean b is b itself.
	if v, ok := t.value(b); ok && t.mask[a] == 1 && t.nodes[a].op >= tUlt && t.nodes[a].op <= tBit && v == 1 {
		return a
	}
	if n := t.nodes[a]; t.isZero(b) && n.op == tEq { // not not
		for _, s := range [2][2]term{{n.a, n.b}, {n.b, n.a}} {
			if t.isZero(s[1]) && t.mask[s[0]] == 1 {
				return s[0]
			}
		}
	}
	return t.commuted(tEq, a, b, 1)
}

// bit is bit b of a.
func (t *terms) bit(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	vb &= 63
	if ca && cb {
		return t.con(va >> vb & 1)
	}
	if cb {
		if t.mask[a]>>vb&1 == 0 {
			return t.con(0)
		}
		switch n := t.nodes[a]; n.op {
		case tOr:
			for _, s := range [][2]term{{n.a, n.b}, {n.b, n.a}} {
				if k, ok := t.value(s[0]); ok {
					if k>>vb&1 != 0 {
						return t.con(1)
					}
					return t.bit(s[1], b)
				}
			}
		case tAnd:
			// The other operand decides the bit: the constant must have it, since mask[a] has it.
			for _, s := range [][2]term{{n.a, n.b}, {n.b, n.a}} {
				if _, ok := t.value(s[0]); ok { // it has the bit, or the mask would not
					return t.bit(s[1], b)
				}
			}
		}
		return t.make(termNode{op: tBit, a: a, b: t.con(vb)}, 1)
	}
	return t.make(termNode{op: tBit, a: a, b: b}, 1)
}

// ite is a if cond, else b.
func (t *terms) ite(cond, a, b term) term {
	if v, ok := t.value(cond); ok {
		if v != 0 {
			return a
		}
		return b
	}
	if a == b {
		return a
	}
	return t.make(termNode{op: tIte, a: cond, b: a, c: b}, t.mask[a]|t.mask[b])
}

// sdiv returns the quotient, signed; b is not 0, nor is it the most negative over -1. int64(a)/int64(b) rounds towards
// 0, as idiv does. The code before idiv excludes both (asmgen's divide), and the proof of expressions that it does.
func (t *terms) sdiv(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	if ca && cb && vb != 0 {
		return t.con(uint64(int64(va) / int64(vb)))
	}
	return t.make(termNode{op: tSdiv, a: a, b: b}, ^uint64(0))
}

// umod returns the remainder, unsigned; b is not 0.
func (t *terms) umod(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	if ca && cb && vb != 0 {
		return t.con(va % vb)
	}
	return t.make(termNode{op: tUmod, a: a, b: b}, 1<<bits.Len64(t.mask[a])-1) // at most a
}

// load returns a word of memory that does not change in a step. So two loads from equal addresses are equal. Only the
// target's memory is read by it, which does not change during a walk (PROOF.md).
func (t *terms) load(addr term, bytes uint8) term {
	return t.make(termNode{op: tLoad, a: addr, k: uint64(bytes)}, sizeMask(bytes))
}
