package prove

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// pair is a term and what it is by its definition, for each assignment of the variables.
type pair struct {
	x    term
	want [8]uint64
}

// TestIdentities makes random terms, side by side with their values by definition, under
// random values of the variables: what the constructors simplify to has the same value,
// no bit outside of its mask, and the bits that ones promises. PROVE_STATES is how many.
func TestIdentities(t *testing.T) {
	n := testtool.Few(200000, 40000)
	if s := os.Getenv("PROVE_STATES"); s != "" {
		states, err := strconv.Atoi(s)
		require.NoError(t, err)
		n = 1000 * states
	}
	rng := rand.New(rand.NewPCG(3, 1))
	number := func() uint64 {
		v := rng.Uint64()
		switch rng.IntN(8) {
		case 0:
			return 1 << (v & 63)
		case 1:
			return 1<<(v&63) - 1
		case 2:
			return v & 15
		case 3:
			return -(v & 15)
		case 4:
			return v & 0xff << (8 * (v >> 60 & 7))
		case 5:
			return v & 0xffffffff
		}
		return v
	}
	made := 0
	for made < n {
		g := identities{t: newTerms(), rng: rng, number: number}
		g.pool = nil
		for _, mask := range []uint64{^uint64(0), ^uint64(0), 0xffffffff, 0xff, 31, 1, 1, 0x1ffff | 0x1ffff<<32,
			number() | 1} {
			p := pair{x: g.t.variable("v", mask)}
			for k := range p.want {
				p.want[k] = number() & mask
			}
			g.pool = append(g.pool, p)
		}
		vars := g.pool[:len(g.pool):len(g.pool)]
		for range 400 {
			p, ok := g.next()
			if !ok {
				continue
			}
			made++
			for k := range p.want {
				got := g.t.eval(p.x, func(x term) uint64 {
					for _, v := range vars {
						if v.x == x {
							return v.want[k]
						}
					}
					n := g.t.nodes[x]
					require.Equal(t, tVec, n.op)
					var ev func(y term) uint64
					ev = func(y term) uint64 {
						return g.t.eval(y, func(z term) uint64 {
							for _, v := range vars {
								if v.x == z {
									return v.want[k]
								}
							}
							m := g.t.nodes[z]
							return bytes8(instOp(m.k), ev(m.a), ev(m.b))
						})
					}
					return bytes8(instOp(n.k), ev(n.a), ev(n.b))
				})
				if got != p.want[k] || got&^g.t.mask[p.x] != 0 || g.t.ones(p.x)&^got != 0 {
					require.FailNow(t, "a term with another value", "%s: %#x, not %#x; mask %#x, ones %#x",
						g.t.text(p.x), got, p.want[k], g.t.mask[p.x], g.t.ones(p.x))
				}
			}
			if len(g.t.text(p.x)) < 400 { // small ones are used again
				g.pool = append(g.pool, p)
			}
		}
	}
	t.Logf("%d terms", made)
}

type identities struct {
	t      *terms
	rng    *rand.Rand
	number func() uint64
	pool   []pair
}

func (g *identities) pick() pair {
	if g.rng.IntN(4) == 0 {
		v := g.number()
		p := pair{x: g.t.con(v)}
		for k := range p.want {
			p.want[k] = v
		}
		return p
	}
	return g.pool[g.rng.IntN(len(g.pool))]
}

// flag returns a pair of which only the lowest bit may be set.
func (g *identities) flag() pair {
	p := g.pick()
	if g.t.mask[p.x] <= 1 {
		return p
	}
	out := pair{x: g.t.bit(p.x, g.t.con(3))}
	for k, v := range p.want {
		out.want[k] = v >> 3 & 1
	}
	return out
}

// next makes a term by one constructor. ok is false if it is none that may be made.
func (g *identities) next() (out pair, ok bool) {
	defer func() {
		if e := recover(); e != nil {
			if _, long := e.(tooLong); !long {
				panic(e)
			}
			ok = false
		}
	}()
	t := g.t
	a, b, c := g.pick(), g.pick(), g.flag()
	n := g.number()
	size := uint8(1 << g.rng.IntN(4))
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	each := func(x term, of func(a, b, c uint64) uint64) (pair, bool) {
		out.x = x
		for k := range out.want {
			out.want[k] = of(a.want[k], b.want[k], c.want[k])
		}
		return out, true
	}
	x := exec{t: t}
	switch g.rng.IntN(29) {
	case 0:
		return each(t.add(a.x, b.x), func(a, b, _ uint64) uint64 { return a + b })
	case 1:
		return each(t.sub(a.x, b.x), func(a, b, _ uint64) uint64 { return a - b })
	case 2:
		return each(t.scaled(a.x, b.x, n), func(a, b, _ uint64) uint64 { return a + n*b })
	case 3:
		return each(t.plus(a.x, int64(n)), func(a, _, _ uint64) uint64 { return a + n })
	case 4:
		return each(t.neg(a.x), func(a, _, _ uint64) uint64 { return -a })
	case 5:
		return each(t.not(a.x), func(a, _, _ uint64) uint64 { return ^a })
	case 6:
		return each(t.and(a.x, b.x), func(a, b, _ uint64) uint64 { return a & b })
	case 7:
		return each(t.or(a.x, b.x), func(a, b, _ uint64) uint64 { return a | b })
	case 8:
		return each(t.xor(a.x, b.x), func(a, b, _ uint64) uint64 { return a ^ b })
	case 9:
		return each(t.mul(a.x, b.x), func(a, b, _ uint64) uint64 { return a * b })
	case 10:
		return each(t.shift(tShl, a.x, b.x), func(a, b, _ uint64) uint64 { return a << (b & 63) })
	case 11:
		return each(t.shift(tShr, a.x, b.x), func(a, b, _ uint64) uint64 { return a >> (b & 63) })
	case 12:
		return each(t.shift(tSar, a.x, b.x), func(a, b, _ uint64) uint64 { return uint64(int64(a) >> (b & 63)) })
	case 13:
		return each(t.shrConst(a.x, uint(n&63)), func(a, _, _ uint64) uint64 { return a >> (n & 63) })
	case 14:
		return each(t.shlConst(a.x, uint(n&63)), func(a, _, _ uint64) uint64 { return a << (n & 63) })
	case 15:
		return each(t.low(a.x, size), func(a, _, _ uint64) uint64 { return a & sizeMask(size) })
	case 16:
		return each(t.sext(a.x, size), func(a, _, _ uint64) uint64 {
			by := 64 - 8*uint(size)
			return uint64(int64(a<<by) >> by)
		})
	case 17:
		return each(t.setBit(a.x, b.x), func(a, b, _ uint64) uint64 { return a | 1<<(b&63) })
	case 18:
		return each(t.clearBit(a.x, b.x), func(a, b, _ uint64) uint64 { return a &^ (1 << (b & 63)) })
	case 19:
		for _, v := range a.want {
			if v == 0 {
				return out, false
			}
		}
		return each(t.firstBit(a.x), func(a, _, _ uint64) uint64 { return uint64(bits.TrailingZeros64(a)) })
	case 20:
		return each(t.ult(a.x, b.x), func(a, b, _ uint64) uint64 { return truth(a < b) })
	case 21:
		return each(t.slt(a.x, b.x), func(a, b, _ uint64) uint64 { return truth(int64(a) < int64(b)) })
	case 22:
		return each(t.eq(a.x, b.x), func(a, b, _ uint64) uint64 { return truth(a == b) })
	case 23:
		return each(t.bit(a.x, b.x), func(a, b, _ uint64) uint64 { return a >> (b & 63) & 1 })
	case 24:
		return each(t.ite(c.x, a.x, b.x), func(a, b, c uint64) uint64 {
			if c != 0 {
				return a
			}
			return b
		})
	case 25:
		for k, v := range b.want {
			if v == 0 || v == ^uint64(0) && a.want[k] == 1<<63 {
				return out, false
			}
		}
		return each(t.sdiv(a.x, b.x), func(a, b, _ uint64) uint64 { return uint64(int64(a) / int64(b)) })
	case 26:
		for _, v := range b.want {
			if v == 0 {
				return out, false
			}
		}
		return each(t.umod(a.x, b.x), func(a, b, _ uint64) uint64 { return a % b })
	case 27:
		neg := g.rng.IntN(2) == 0
		return each(literal(x.t, c.x, neg).term(x.t), func(_, _, c uint64) uint64 { return truth((c != 0) != neg) })
	}
	op := [...]instOp{iPminub, iPcmpeqb, iPmovmskb}[g.rng.IntN(3)]
	return each(bytewise(x.t, op, a.x, b.x), func(a, b, _ uint64) uint64 { return bytes8(op, a, b) })
}

// TestTreeSize: a value that is multiplied by itself again and again ends the proof, before
// anything goes over it as over a tree.
func TestTreeSize(t *testing.T) {
	tm := newTerms()
	x := tm.variable("x", ^uint64(0))
	require.PanicsWithValue(t, tooLong{}, func() {
		for range 64 {
			x = tm.mul(x, x)
		}
	})
	require.LessOrEqual(t, tm.size[x], uint32(maxTree))
	require.Len(t, tm.size, len(tm.nodes))
}
