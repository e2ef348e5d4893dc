package prove

import (
	"fmt"
	"math/bits"
)

// This file says what terms mean: their value for given variables, and their text in messages. Tests hold
// every simplification of term.go and compare.go against eval; masks.go finds with it which masks meet a condition.

// eval computes a term for given variables: of returns the value of each tVar, tLoad and tVec. This is the definition
// of each operation. Counts of shifts and numbers of bits count modulo 64, as the processor's do; code that may shift
// further compares the count first. The recursion visits shared operands again: maxTree bounds it.
func (t *terms) eval(x term, of func(x term) uint64) uint64 {
	n := &t.nodes[x]
	ev := func(y term) uint64 { return t.eval(y, of) }
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	switch n.op {
	case tConst:
		return n.k
	case tAdd:
		return n.k*ev(n.a) + ev(n.b)
	case tAnd:
		return ev(n.a) & ev(n.b)
	case tOr:
		return ev(n.a) | ev(n.b)
	case tXor:
		return ev(n.a) ^ ev(n.b)
	case tMul:
		return ev(n.a) * ev(n.b)
	case tShl:
		return ev(n.a) << (ev(n.b) & 63)
	case tShr:
		return ev(n.a) >> (ev(n.b) & 63)
	case tSar:
		return uint64(int64(ev(n.a)) >> (ev(n.b) & 63))
	case tSext:
		// k is a number of bytes: shift them to the top and back.
		by := 64 - 8*n.k
		return uint64(int64(ev(n.a)<<by) >> by)
	case tBts:
		return ev(n.a) | 1<<(ev(n.b)&63)
	case tBtr:
		return ev(n.a) &^ (1 << (ev(n.b) & 63))
	case tBsf:
		return uint64(bits.TrailingZeros64(ev(n.a))) & 63
	case tUlt:
		return truth(ev(n.a) < ev(n.b))
	case tSlt:
		return truth(int64(ev(n.a)) < int64(ev(n.b)))
	case tEq:
		return truth(ev(n.a) == ev(n.b))
	case tBit:
		return ev(n.a) >> (ev(n.b) & 63) & 1
	case tIte:
		if ev(n.a) != 0 {
			return ev(n.b)
		}
		return ev(n.c)
	case tSdiv:
		return uint64(int64(ev(n.a)) / int64(ev(n.b)))
	case tUmod:
		return ev(n.a) % ev(n.b)
	}
	// tVar, tLoad and tVec mean what the caller says.
	return of(x)
}

// text writes a term for a message, in the manner of C.
func (t *terms) text(x term) string {
	n := &t.nodes[x]
	switch n.op {
	case tConst:
		if n.k>>63 != 0 || n.k < 10 { // small negative numbers, such as offsets in the frame, are easier to read as such
			return fmt.Sprint(int64(n.k))
		}
		return fmt.Sprintf("%#x", n.k)
	case tVar:
		return t.names[n.k]
	case tAdd:
		s := t.text(n.a)
		if n.k != 1 {
			s = fmt.Sprintf("%d*%s", int64(n.k), s)
		}
		if t.isZero(n.b) {
			return s
		}
		return "(" + s + " + " + t.text(n.b) + ")"
	case tSext:
		return fmt.Sprintf("sext%d(%s)", 8*n.k, t.text(n.a))
	case tLoad:
		return fmt.Sprintf("word%d[%s]", 8*n.k, t.text(n.a))
	case tBsf:
		return "first(" + t.text(n.a) + ")"
	case tIte:
		return fmt.Sprintf("(%s ? %s : %s)", t.text(n.a), t.text(n.b), t.text(n.c))
	case tVec:
		return fmt.Sprintf("vec%d(%s, %s)", n.k, t.text(n.a), t.text(n.b))
	}
	names := map[termOp]string{tAnd: "&", tOr: "|", tXor: "^", tMul: "*", tShl: "<<", tShr: ">>", tSar: ">>s",
		tBts: "bts", tBtr: "btr", tUlt: "<", tSlt: "<s", tEq: "==", tBit: "bit", tSdiv: "/s", tUmod: "%"}
	return "(" + t.text(n.a) + " " + names[n.op] + " " + t.text(n.b) + ")"
}
