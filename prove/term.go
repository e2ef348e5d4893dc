package prove

import "math/bits"

// This file makes terms: the values of the symbolic machine. Each operation simplifies as it
// builds, so that code and specification, computed in different ways, meet in one term. eval.go
// defines what the operations mean.

// term is a value of 64 bits as an expression over variables: an index into
// terms.nodes. Equal expressions are one term, so that == compares them. All
// arithmetic wraps. What is said of a term holds for every value of its variables.
type term int32

// Operations of terms. Boolean ones are 0 or 1.
type termOp uint8

const (
	tConst termOp = iota // k
	tVar                 // variable k
	tAdd                 // k*a + b; b is tAdd with a smaller a, or tConst
	tAnd
	tOr
	tXor
	tMul
	tShl // a << (b & 63); so the next two
	tShr
	tSar
	tSext // the low k bytes of a, sign extended
	tBts  // a with bit b & 63 set
	tBtr  // a with bit b & 63 cleared
	tBsf  // number of the lowest bit set of a, which is not 0
	tUlt  // a < b, unsigned
	tSlt  // a < b, signed
	tEq   // a == b
	tBit  // bit b & 63 of a
	tIte  // b if a, else c
	tSdiv // quotient of a and b, signed
	tUmod // remainder of a and b, unsigned
	tLoad // k bytes at address a, zero extended, of memory that a step does not change
	tVec  // operation k on the SSE operands a and b
)

// termNode is an operation with its operands; which are used depends on op.
// Unused operands are 0, so that nodes can be compared with ==.
type termNode struct {
	op      termOp
	a, b, c term
	k       uint64
}

// terms makes terms. It simplifies only by identities of 64-bit words. They are
// trusted: TestProcessor meets those that the instructions of real files need.
type terms struct {
	nodes []termNode
	mask  []uint64 // bits of each term that may be set; its largest value is at most that
	size  []uint32 // nodes of the tree that a term is written as: those that it shares count each time
	slots []term   // a hash table with linear probing; 0 is free, else a term plus 1
	names []string // of variables
}

// newTerms returns an empty set with room for 4,096 terms.
func newTerms() *terms {
	const few = 4096
	return &terms{slots: make([]term, 2*few), nodes: make([]termNode, 0, few), mask: make([]uint64, 0, few),
		size: make([]uint32, 0, few)}
}

// hash returns a multiplicative hash: its upper bits are the good ones.
// The factors are odd constants of the splitmix64 generator and a 64-bit golden ratio.
func (n *termNode) hash() uint64 {
	h := (n.k ^ uint64(n.op)<<56) * 0x9e3779b97f4a7c15
	h ^= (uint64(uint32(n.a)) | uint64(uint32(n.b))<<32) * 0xbf58476d1ce4e5b9
	h ^= h >> 29
	return (h + uint64(uint32(n.c))) * 0x94d049bb133111eb
}

// slot returns where a node is in the hash table, or where it would go. The table is never full.
// The length of slots is a power of two.
func (t *terms) slot(n *termNode) *term {
	for i := n.hash() >> 32; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if *s == 0 || t.nodes[*s-1] == *n {
			return s
		}
	}
}

// make returns the term of a node, an existing one if possible. mask are the bits that its value
// may have set; without any, it is 0.
func (t *terms) make(n termNode, mask uint64) term {
	// A value without a bit that may be set is 0: the masks find this before any rule does.
	if mask == 0 {
		n = termNode{op: tConst}
	}
	s := t.slot(&n)
	if *s != 0 {
		return *s - 1
	}
	size := t.treeSize(&n)
	if size > maxTree {
		panic(tooLong{})
	}
	x := term(len(t.nodes))
	t.size = append(t.size, size)
	t.nodes = append(t.nodes, n)
	t.mask = append(t.mask, mask)
	*s = x + 1
	// At most half of the slots are taken, so that probes stay short.
	if 2*len(t.nodes) > len(t.slots) {
		t.slots = make([]term, 2*len(t.slots))
		for i := range t.nodes {
			*t.slot(&t.nodes[i]) = term(i) + 1
		}
	}
	return x
}

// maxTree bounds the size of a term. Some of what looks at terms goes over them as over trees, and
// code that doubles a value again and again would keep it for ever. The largest of real files has 337.
const maxTree = 1 << 24

// treeSize returns the size of the tree of a node that is to be made.
// A bound on trees, not on distinct nodes: a recursion visits a shared operand each time.
func (t *terms) treeSize(n *termNode) uint32 {
	size := uint32(1)
	switch n.op {
	case tConst, tVar:
		return size
	case tIte:
		size += t.child(n.c)
	}
	return size + t.child(n.a) + t.child(n.b)
}

// child returns the size of an operand; an operation that has none names term 0, which is small.
func (t *terms) child(x term) uint32 {
	if x < 0 || int(x) >= len(t.size) {
		return 0
	}
	return t.size[x]
}

// con is a constant.
func (t *terms) con(v uint64) term { return t.make(termNode{op: tConst, k: v}, v) }

// variable makes a new variable of which only the bits of mask may be set.
func (t *terms) variable(name string, mask uint64) term {
	t.names = append(t.names, name)
	return t.make(termNode{op: tVar, k: uint64(len(t.names) - 1)}, mask)
}

// value returns the value of a constant.
func (t *terms) value(x term) (uint64, bool) {
	n := &t.nodes[x]
	return n.k, n.op == tConst
}

// isZero reports whether a term is the constant 0.
func (t *terms) isZero(x term) bool {
	k, ok := t.value(x)
	return ok && k == 0
}

// sum is a linear combination while it is worked on: the sum of k*a over its parts, plus c. 12
// parts are more than addresses of generated code have.
type sum struct {
	n    int // parts in use, sorted by a; k may be 0
	part [12]struct {
		a term
		k uint64
	}
	c uint64
}

// add adds k*x to a sum. It reports whether there was room. The parts of x are added one by one,
// since x may itself be a sum.
func (s *sum) add(t *terms, x term, k uint64) bool {
	for {
		n := &t.nodes[x]
		// k*(c) and k*(k'*a + b): the factor goes into each part; arithmetic wraps.
		switch n.op {
		case tConst:
			s.c += k * n.k
			return true
		case tAdd:
			if !s.addPart(n.a, k*n.k) {
				return false
			}
			x = n.b
		default:
			return s.addPart(x, k)
		}
	}
}

// addPart adds k*a to a sum, a being no sum. It reports whether there was room.
func (s *sum) addPart(a term, k uint64) bool {
	// Insertion keeps the parts sorted: equal sums become equal lists.
	i := 0
	for ; i < s.n && s.part[i].a < a; i++ {
	}
	if i < s.n && s.part[i].a == a {
		s.part[i].k += k
		return true
	}
	// No room: callers give up the simplification or the proof.
	if s.n == len(s.part) {
		return false
	}
	copy(s.part[i+1:s.n+1], s.part[i:s.n])
	s.part[i].a, s.part[i].k = a, k
	s.n++
	return true
}

// term returns the term of a sum: a list of tAdd nodes that ends in a constant. The first part has
// the largest number.
func (s *sum) term(t *terms) term {
	x := t.con(s.c)
	// Parts may have cancelled each other.
	for i := range s.n {
		p := &s.part[i]
		if p.k == 0 {
			continue
		}
		// A term alone needs no list around it.
		if p.k == 1 && t.isZero(x) {
			x = p.a
			continue
		}
		// A sum of one term without a factor is that term: it must be wrapped to
		// stand in a list.
		x = t.linked(p.a, t.listed(x), p.k)
	}
	return x
}

// linked makes k*a + b.
func (t *terms) linked(a, b term, k uint64) term {
	// The sum of what may be set does not pass the power of two above it.
	// The mask stays full if the product or the sum may pass 2^63.
	mask := ^uint64(0)
	hi, over := bits.Mul64(t.mask[a], k)
	if sum, carry := bits.Add64(over, t.mask[b], 0); hi == 0 && carry == 0 && sum < 1<<63 {
		mask = 1<<bits.Len64(sum) - 1
	}
	return t.make(termNode{op: tAdd, a: a, b: b, k: k}, mask)
}

// listed gives a term the form that the b of a tAdd has.
func (t *terms) listed(x term) term {
	if op := t.nodes[x].op; op == tConst || op == tAdd {
		return x
	}
	return t.make(termNode{op: tAdd, a: x, b: t.con(0), k: 1}, t.mask[x])
}

// tooLong ends a proof from the depths of term making; Image recovers it.
type tooLong struct{}

// scaled returns x + k*y.
func (t *terms) scaled(x, y term, k uint64) term {
	if a, ok := t.value(x); ok {
		if b, ok := t.value(y); ok {
			return t.con(a + k*b)
		}
	}
	var s sum
	if !s.add(t, x, 1) || !s.add(t, y, k) {
		panic(tooLong{})
	}
	return s.term(t)
}

// Shorthands. All wrap modulo 2^64; low keeps the low bytes, sizeMask is their mask.
func (t *terms) add(x, y term) term            { return t.scaled(x, y, 1) }
func (t *terms) sub(x, y term) term            { return t.scaled(x, y, ^uint64(0)) }
func (t *terms) neg(x term) term               { return t.sub(t.con(0), x) }
func (t *terms) not(x term) term               { return t.xor(x, t.con(^uint64(0))) }
func (t *terms) low(x term, bytes uint8) term  { return t.and(x, t.con(sizeMask(bytes))) }
func (t *terms) shrConst(x term, by uint) term { return t.shift(tShr, x, t.con(uint64(by))) }
func (t *terms) shlConst(x term, by uint) term { return t.shift(tShl, x, t.con(uint64(by))) }
func sizeMask(bytes uint8) uint64              { return ^uint64(0) >> (64 - 8*uint(bytes)) }
func (t *terms) bool(truth bool) term {
	if truth {
		return t.con(1)
	}
	return t.con(0)
}

// plus is scaled(x, con(c), 1).
func (t *terms) plus(x term, c int64) term {
	// The cases that addresses have: a constant, or a list whose constant changes. They avoid the
	// general sum.
	switch n := &t.nodes[x]; {
	case c == 0:
		return x
	case n.op == tConst:
		return t.con(n.k + uint64(c))
	}
	sum := t.listPlus(t.listed(x), uint64(c))
	// 1*a + 0 is a.
	if n := &t.nodes[sum]; n.k == 1 && t.isZero(n.b) {
		return n.a
	}
	return sum
}

// listPlus returns a list of tAdd with c added to the constant at its end.
func (t *terms) listPlus(x term, c uint64) term {
	n := t.nodes[x]
	if n.op == tConst {
		return t.con(n.k + c)
	}
	return t.linked(n.a, t.listPlus(n.b, c), n.k)
}

// commuted makes an operation whose operands may be swapped; equal terms need one order.
func (t *terms) commuted(op termOp, a, b term, mask uint64) term {
	if a > b {
		a, b = b, a
	}
	return t.make(termNode{op: op, a: a, b: b}, mask)
}

// and is a & b.
func (t *terms) and(a, b term) term {
	va, ca := t.value(a)
	// The order of the cases: constants first, then identities by operands, then by masks.
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.con(va & vb)
	case ca:
		return t.and(b, a)
	case a == b:
		return a
	// No bit may be set in both.
	case t.mask[a]&t.mask[b] == 0:
		return t.con(0)
	// A constant stands on the right from here on.
	case cb:
		// The constant clears nothing that may be set.
		if t.mask[a]&^vb == 0 {
			return a
		}
		// Two masks in a row are one; a mask over an or goes into its operands.
		switch n := t.nodes[a]; n.op {
		case tAnd:
			if k, ok := t.value(n.a); ok {
				return t.and(n.b, t.con(k&vb))
			}
			if k, ok := t.value(n.b); ok {
				return t.and(n.a, t.con(k&vb))
			}
		case tOr:
			return t.or(t.and(n.a, b), t.and(n.b, b))
		}
		if vb&(vb+1) == 0 { // the low bits: those of a sum depend on the low bits of its parts
			if low := t.lowBits(a, vb); low != a {
				return t.and(low, b)
			}
		}
	}
	return t.commuted(tAnd, a, b, t.mask[a]&t.mask[b])
}

// lowBits drops from a sum what does not matter under a mask of low bits: masks of parts, high bits
// of factors and of the constant.
func (t *terms) lowBits(x term, mask uint64) term {
	n := t.nodes[x]
	if n.op != tAdd {
		return x
	}
	var s sum
	if !s.add(t, x, 1) {
		return x
	}
	// Bits above the mask do not reach the result: carries go upwards only.
	s.c &= mask
	for i := range s.n {
		p := &s.part[i]
		// A factor works modulo the mask's power of two.
		p.k &= mask
		for { // and(y, mask) counts as y
			in := t.nodes[p.a]
			if in.op != tAnd {
				break
			}
			if k, ok := t.value(in.a); ok && k&mask == mask {
				p.a = in.b
			} else if k, ok := t.value(in.b); ok && k&mask == mask {
				p.a = in.a
			} else {
				break
			}
		}
	}
	var again sum // a second sum, since parts may have become equal
	again.c = s.c
	for i := range s.n {
		if !again.add(t, s.part[i].a, s.part[i].k) {
			return x
		}
	}
	// The constant and the factors may have grown past the mask again.
	again.c &= mask
	for i := range again.n {
		again.part[i].k &= mask
	}
	return again.term(t)
}

// or is a | b.
func (t *terms) or(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.con(va | vb)
	case ca:
		// A constant stands on the right from here on.
		return t.or(b, a)
	case cb && vb == 0, a == b:
		return a
	case cb:
		// Constants of nested ors become one.
		if n := t.nodes[a]; n.op == tOr {
			if k, ok := t.value(n.a); ok {
				return t.or(n.b, t.con(k|vb))
			}
			if k, ok := t.value(n.b); ok {
				return t.or(n.a, t.con(k|vb))
			}
		}
	}
	return t.commuted(tOr, a, b, t.mask[a]|t.mask[b])
}

// xor is a ^ b.
func (t *terms) xor(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.con(va ^ vb)
	case a == b:
		return t.con(0)
	case ca && va == 0:
		return b
	case cb && vb == 0:
		return a
	// Bits of the constant that a cannot have are set in the result: an or, which more rules know.
	case cb && vb&^t.mask[a] != 0:
		return t.or(t.xor(a, t.con(vb&t.mask[a])), t.con(vb&^t.mask[a]))
	case ca:
		return t.xor(b, a)
	}
	return t.commuted(tXor, a, b, t.mask[a]|t.mask[b])
}

// mul is a * b.
func (t *terms) mul(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	switch {
	case ca && cb:
		return t.con(va * vb)
	case cb:
		return t.scaled(t.con(0), a, vb)
	case ca:
		return t.scaled(t.con(0), b, va)
	}
	return t.commuted(tMul, a, b, ^uint64(0))
}

// shift makes tShl, tShr or tSar.
func (t *terms) shift(op termOp, a, b term) term {
	by, cb := t.value(b)
	// The processor takes counts modulo 64 where the operand has 8 bytes.
	by &= 63
	if va, ca := t.value(a); ca && cb {
		switch op {
		case tShl:
			return t.con(va << by)
		case tShr:
			return t.con(va >> by)
		}
		return t.con(uint64(int64(va) >> by))
	}
	if !cb { // no rule knows a variable count; any bit may be set
		b = t.and(b, t.con(63))
		return t.make(termNode{op: op, a: a, b: b}, ^uint64(0))
	}
	if by == 0 {
		return a
	}
	mask := t.mask[a]
	switch op {
	case tShl:
		return t.scaled(t.con(0), a, 1<<by) // a left shift is a multiplication, so that it joins sums
	case tSar:
		// Without a sign bit, an arithmetic shift is a logical one.
		if mask>>63 == 0 {
			return t.shift(tShr, a, b)
		}
		mask = ^uint64(0)
	case tShr:
		mask >>= by
		if mask == 0 {
			return t.con(0)
		}
		// A shift right goes into an or, whose halves may be simpler.
		if n := t.nodes[a]; n.op == tOr {
			return t.or(t.shift(tShr, n.a, b), t.shift(tShr, n.b, b))
		}
	}
	return t.make(termNode{op: op, a: a, b: t.con(by)}, mask)
}

// sext sign-extends the low bytes of a term.
func (t *terms) sext(x term, bytes uint8) term {
	if bytes == 8 {
		return x
	}
	if v, ok := t.value(x); ok {
		// Left and back right, arithmetically: Go's shifts do the extension.
		by := 64 - 8*uint(bytes)
		return t.con(uint64(int64(v<<by) >> by))
	}
	return t.make(termNode{op: tSext, a: t.low(x, bytes), k: uint64(bytes)}, ^uint64(0))
}

// setBit is a with bit b set, b modulo 64.
func (t *terms) setBit(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	// Constants are computed; a constant bit number makes an or, and below an and, which have more
	// rules.
	if ca && cb {
		return t.con(va | 1<<(vb&63))
	}
	if cb {
		return t.or(a, t.con(1<<(vb&63)))
	}
	return t.make(termNode{op: tBts, a: a, b: b}, ^uint64(0))
}

// clearBit is a with bit b cleared, b modulo 64.
func (t *terms) clearBit(a, b term) term {
	va, ca := t.value(a)
	vb, cb := t.value(b)
	if ca && cb {
		return t.con(va &^ (1 << (vb & 63)))
	}
	if cb {
		return t.and(a, t.con(^(1 << (vb & 63))))
	}
	return t.make(termNode{op: tBtr, a: a, b: b}, t.mask[a])
}

// firstBit is tBsf; the caller knows that x is not 0.
func (t *terms) firstBit(x term) term {
	// The mask 63 only matters for 0, which callers exclude.
	if v, ok := t.value(x); ok {
		return t.con(uint64(bits.TrailingZeros64(v)) & 63)
	}
	// The highest bit that may be set bounds the result.
	most := uint64(63)
	if n := bits.Len64(t.mask[x]); n > 0 {
		most = uint64(n - 1)
	}
	return t.make(termNode{op: tBsf, a: x}, 1<<bits.Len64(most)-1)
}
