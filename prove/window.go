package prove

// window is what the fast path compares host addresses with: a row reads words only if
// its CFA is below high, unsigned, and where it can reach below rsp, if its lowest word
// is not below low, signed.
type window struct {
	low, high, delta, rsp term // host addresses; delta: host minus target; rsp: the target's, as a host address
}

// windows are the windows that the set-up makes of a description (lo, size, bytes) and
// rsp, and the conditions by which it chooses:
//
//	rsp is more than size above lo:    none
//	the window's end is below 2^63:    usual
//	it is not, but bytes is 0:         half, the lower half of the address space
//	else:                              none
//
// TestWindow proves for all values that with each of them every word that passes a
// row's comparisons is readable as the interface says.
type windows struct {
	outsideSize, high, fromZero term // conditions, in the order above
	none, usual, half           window
}

// setWindow returns the windows of a description of memory and rsp: size bytes of the target at lo
// are readable at the host address bytes.
func setWindow(t *terms, lo, size, bytes, rsp term) windows {
	off := t.sub(rsp, lo)
	end := t.add(size, bytes)
	delta := t.sub(bytes, lo)
	host := t.add(rsp, delta)
	zero := t.con(0)
	return windows{
		outsideSize: t.ult(size, off),
		high:        t.bit(end, t.con(63)),
		fromZero:    t.eq(bytes, zero),
		none:        window{low: noTerm, high: zero, delta: zero, rsp: rsp},
		usual:       window{low: bytes, high: t.plus(end, 1), delta: delta, rsp: host},
		half:        window{low: bytes, high: lowerHalf(t, off), delta: delta, rsp: host},
	}
}

// lowerHalf is 2^63 for an address of the lower half of the address space, else 0.
func lowerHalf(t *terms, rsp term) term {
	return t.shlConst(t.shrConst(t.not(rsp), 63), 63)
}
