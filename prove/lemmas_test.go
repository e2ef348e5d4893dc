package prove

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// bdd is a small package of binary decision diagrams, to prove claims on 64-bit words
// for all values.
type bdd struct {
	nodes  []bddNode
	unique map[bddNode]int32
	cache  map[[3]int32]int32
	words  int32
}

type bddNode struct{ v, lo, hi int32 }

const (
	never  int32 = 0
	always int32 = 1
	words        = 10 // at most; bits of all words lie side by side, the highest first
)

type bddWord [64]int32

func newBDD() *bdd {
	return &bdd{nodes: []bddNode{{v: 1 << 30}, {v: 1 << 30}}, unique: map[bddNode]int32{}, cache: map[[3]int32]int32{}}
}

func (b *bdd) node(v, lo, hi int32) int32 {
	if lo == hi {
		return lo
	}
	n := bddNode{v, lo, hi}
	r, ok := b.unique[n]
	if !ok {
		r = int32(len(b.nodes))
		b.nodes = append(b.nodes, n)
		b.unique[n] = r
	}
	return r
}

func (b *bdd) ite(f, g, h int32) int32 {
	switch {
	case f == always:
		return g
	case f == never:
		return h
	case g == h:
		return g
	case g == always && h == never:
		return f
	}
	key := [3]int32{f, g, h}
	if r, ok := b.cache[key]; ok {
		return r
	}
	v := min(b.nodes[f].v, b.nodes[g].v, b.nodes[h].v)
	part := func(x int32, hi bool) int32 {
		n := b.nodes[x]
		switch {
		case n.v != v:
			return x
		case hi:
			return n.hi
		}
		return n.lo
	}
	r := b.node(v, b.ite(part(f, false), part(g, false), part(h, false)),
		b.ite(part(f, true), part(g, true), part(h, true)))
	b.cache[key] = r
	return r
}

func (b *bdd) not(f int32) int32    { return b.ite(f, never, always) }
func (b *bdd) and(f, g int32) int32 { return b.ite(f, g, never) }
func (b *bdd) or(f, g int32) int32  { return b.ite(f, always, g) }
func (b *bdd) xor(f, g int32) int32 { return b.ite(f, b.not(g), g) }

func (b *bdd) word() (w bddWord) {
	for i := range w {
		w[i] = b.node(int32(63-i)*words+b.words, never, always)
	}
	b.words++
	return w
}

func (b *bdd) con(v uint64) (w bddWord) {
	for i := range w {
		w[i] = int32(v >> i & 1)
	}
	return w
}

// sum returns x + y + c and the carry.
func (b *bdd) sum(x, y bddWord, c int32) (w bddWord, carry int32) {
	for i := range w {
		half := b.xor(x[i], y[i])
		w[i] = b.xor(half, c)
		c = b.or(b.and(x[i], y[i]), b.and(half, c))
	}
	return w, c
}

func (b *bdd) add(x, y bddWord) bddWord {
	w, _ := b.sum(x, y, never)
	return w
}

func (b *bdd) sub(x, y bddWord) bddWord {
	for i := range y {
		y[i] = b.not(y[i])
	}
	w, _ := b.sum(x, y, always)
	return w
}

func (b *bdd) ult(x, y bddWord) int32 {
	c := never
	for i := range x {
		c = b.ite(b.xor(x[i], y[i]), y[i], c)
	}
	return c
}

func (b *bdd) slt(x, y bddWord) int32 {
	x[63], y[63] = b.not(x[63]), b.not(y[63])
	return b.ult(x, y)
}

func (b *bdd) eq(x, y bddWord) int32 {
	r := always
	for i := range x {
		r = b.and(r, b.not(b.xor(x[i], y[i])))
	}
	return r
}

func (b *bdd) all(conditions ...int32) int32 {
	r := always
	for _, c := range conditions {
		r = b.and(r, c)
	}
	return r
}

// of evaluates a term on words.
func (b *bdd) of(t *terms, x term, vars map[term]bddWord) bddWord {
	if w, ok := vars[x]; ok {
		return w
	}
	n := t.nodes[x]
	truth := func(c int32) (w bddWord) {
		w[0] = c
		return w
	}
	ev := func(y term) bddWord { return b.of(t, y, vars) }
	switch n.op {
	case tConst:
		return b.con(n.k)
	case tAdd:
		switch n.k {
		case 1:
			return b.add(ev(n.a), ev(n.b))
		case ^uint64(0):
			return b.sub(ev(n.b), ev(n.a))
		}
		if bits.OnesCount64(n.k) == 1 {
			by := bits.TrailingZeros64(n.k)
			var w bddWord
			a := ev(n.a)
			copy(w[by:], a[:64-by])
			return b.add(w, ev(n.b))
		}
	case tShr:
		by, _ := t.value(n.b)
		var w bddWord
		a := ev(n.a)
		copy(w[:], a[by:])
		return w
	case tXor:
		x, y := ev(n.a), ev(n.b)
		for i := range x {
			x[i] = b.xor(x[i], y[i])
		}
		return x
	case tAnd:
		x, y := ev(n.a), ev(n.b)
		for i := range x {
			x[i] = b.and(x[i], y[i])
		}
		return x
	case tUlt:
		return truth(b.ult(ev(n.a), ev(n.b)))
	case tEq:
		return truth(b.eq(ev(n.a), ev(n.b)))
	case tBit:
		k, _ := t.value(n.b)
		return truth(ev(n.a)[k])
	}
	panic("a term that the lemma is not made for: " + t.text(x))
}

// TestWindow proves, for all values of a window's description, of rsp, rbp, and of the
// offsets of a row, what the windows of setWindow are for: whatever passes the
// comparisons that rowProof.inWindow asks for is readable by the interface, at the host
// address where it is read; and rsp stays inside. The offset of a word below the CFA is
// at most what was compared, as inWindow sees to.
func TestWindow(t *testing.T) {
	for _, which := range testtool.Sweep([]string{"none", "usual", "half", "step"}) {
		b := newBDD()
		tm := newTerms()
		lo, size, bytes, rsp := tm.variable("lo", ^uint64(0)), tm.variable("size", ^uint64(0)),
			tm.variable("bytes", ^uint64(0)), tm.variable("rsp", ^uint64(0))
		vars := map[term]bddWord{}
		for _, v := range []term{lo, size, bytes, rsp} {
			vars[v] = b.word()
		}
		of := func(x term) bddWord { return b.of(tm, x, vars) }
		w := setWindow(tm, lo, size, bytes, rsp)
		var win window
		var chosen int32
		in, high, zero := b.not(of(w.outsideSize)[0]), of(w.high)[0], of(w.fromZero)[0]
		switch which {
		case "none":
			win, chosen = w.none, always
		case "usual":
			win, chosen = w.usual, b.and(in, b.not(high))
		case "half":
			win, chosen = w.half, b.all(in, high, zero)
		case "step": // _eh_elf without a callback: everything up to the last word is readable
			win = window{low: tm.con(0), high: lowerHalf(tm, rsp), delta: tm.con(0), rsp: rsp}
			chosen = b.all(b.eq(of(lo), b.con(0)), b.eq(of(bytes), b.con(0)), b.eq(of(size), b.con(^uint64(0))))
		}
		low := b.con(1 << 63)
		if win.low != noTerm {
			low = of(win.low)
		}
		end, delta, host := of(win.high), of(win.delta), of(win.rsp)
		k, off := b.word(), b.word()
		readable := func(addr bddWord) int32 { // a host address
			o := b.sub(b.sub(addr, delta), of(lo))
			return b.all(b.not(b.ult(of(size), b.con(8))), b.not(b.ult(b.sub(of(size), b.con(8)), o)),
				b.eq(addr, b.add(of(bytes), o)))
		}
		upTo := func(x bddWord, most uint64) int32 { return b.not(b.ult(b.con(most), x)) }
		// The inside of the window, as rsp is in it at the begin, and as any CFA is that
		// passes: the invariant of the walk.
		inside := func(addr bddWord) int32 {
			o := b.sub(addr, of(bytes))
			c := b.not(b.ult(of(size), o))
			if which == "half" || which == "step" {
				c = b.and(c, b.not(addr[63]))
			}
			return c
		}
		begin := b.all(chosen, b.or(inside(host), b.eq(end, b.con(0))))
		require.NotEqual(t, never, begin, which)
		assert.Equal(t, never, b.and(chosen, b.not(begin)), "%s: rsp is inside at the begin", which)

		// A later rsp: any address inside. The end of the lower half does not move.
		addr := b.word()
		ok := b.and(chosen, inside(addr))
		cfa := b.add(addr, off)
		passes := b.all(ok, upTo(off, maxOffset), b.ult(cfa, end), upTo(k, maxOffset), b.not(b.ult(off, k)),
			b.not(b.ult(k, b.con(8))))
		assert.Equal(t, never, b.and(passes, b.not(readable(b.sub(cfa, k)))),
			"%s: a row on rsp, words at or above rsp", which)
		// Any CFA with a comparison of a word, d below it, with low; k is at most d.
		any := b.word()
		d := b.word()
		lowest := b.not(b.slt(b.sub(any, d), low))
		passes = b.all(chosen, b.ult(any, end), upTo(d, maxOffset), b.not(b.ult(d, k)), b.not(b.ult(k, b.con(8))),
			lowest)
		assert.Equal(t, never, b.and(passes, b.not(readable(b.sub(any, k)))),
			"%s: a row with a comparison of its lowest word", which)
		assert.Equal(t, never, b.and(passes, b.not(inside(any))), "%s: the CFA is inside", which)
		passes = b.all(ok, upTo(off, maxOffset), b.ult(cfa, end))
		assert.Equal(t, never, b.and(passes, b.not(inside(cfa))), "%s: the CFA of a row on rsp is inside", which)
		// An invalid rbp passes no comparison. Offsets go from -maxOffset to maxOffset.
		signed := b.sub(off, b.con(maxOffset))
		gone := b.add(b.con(outside), signed)
		passes = b.all(chosen, upTo(off, 2*maxOffset), b.ult(gone, end))
		assert.Equal(t, never, passes, "%s: an invalid rbp is outside", which)
	}
}

// TestLemmas proves what the divisions rely on.
func TestLemmas(t *testing.T) {
	b := newBDD()
	tm := newTerms()
	x := &exec{t: tm}
	v := tm.variable("b", ^uint64(0))
	vars := map[term]bddWord{v: b.word()}
	d := b.of(tm, divisor(x.t, v), vars)
	assert.Equal(t, never, b.eq(d, b.con(^uint64(0))), "a divisor is never -1")
	assert.Equal(t, never, b.and(b.eq(d, b.con(0)), b.not(b.eq(vars[v], b.con(0)))), "it is 0 only if b is")
	edges := []uint64{0, 1, 2, 7, 1<<63 - 1, 1 << 63, 1<<63 + 1, ^uint64(0), ^uint64(1)}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		edges = append(edges, rng.Uint64()>>rng.IntN(64))
	}
	w := tm.variable("a", ^uint64(0))
	quotient := tm.sdiv(negated(x.t, w, v), divisor(x.t, v))
	for _, p := range edges {
		for _, q := range edges {
			if q == 0 {
				continue
			}
			got := tm.eval(quotient, func(y term) uint64 {
				if y == v {
					return q
				}
				return p
			})
			require.Equal(t, uint64(int64(p)/int64(q)), got, "%d / %d", int64(p), int64(q))
		}
	}
	steps := tm.ite(tm.ult(v, tm.con(segment)), v, tm.con(segment))
	for _, q := range edges {
		got := tm.eval(steps, func(term) uint64 { return q })
		assert.LessOrEqual(t, got, uint64(segment))
		assert.Equal(t, q == 0, got == 0, "a segment is empty only if no steps are left")
	}
}

// TestShifts compares the shifts of expressions with Go's, which have no modulus.
func TestShifts(t *testing.T) {
	for _, a := range []uint64{0, 1, 1 << 63, ^uint64(0), 0x123456789abcdef0} {
		for _, n := range []uint64{0, 1, 31, 32, 63, 64, 65, 127, 128, 1 << 32, 1 << 63, ^uint64(0)} {
			p := &proof{t: newTerms()}
			p.x = &exec{t: p.t}
			e := exprProof{p: p}
			for code, want := range map[dwarfcfa.ExprCode]uint64{
				dwarfcfa.OpShl: a << n, dwarfcfa.OpShr: a >> n, dwarfcfa.OpShra: uint64(int64(a) >> n),
			} {
				got, err := e.binary(code, p.t.con(a), p.t.con(n))
				require.NoError(t, err)
				v, ok := p.t.value(got)
				require.True(t, ok)
				assert.Equal(t, want, v, "%#x by %d", a, n)
			}
		}
	}
}
