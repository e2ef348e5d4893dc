package inflate

import "encoding/binary"

// Widths of the tables.
const (
	litBits  = 11
	distBits = 8
	preBits  = 7
)

// Alphabets: RFC 1951, 3.2.5 and 3.2.7.
const (
	numLit  = 288
	numDist = 32
	numPre  = 19
)

// meanings are the entries of an alphabet's symbols.
type meanings struct {
	lit  [numLit]entry
	dist [numDist]entry
	pre  [numPre]entry
}

var known = func() (m meanings) {
	for i := range 256 {
		m.lit[i] = kindLiteral | entry(i)<<16
	}
	m.lit[256] = kindEnd
	base := 3
	for i := range 28 {
		extra := max(i/4-1, 0)
		m.lit[257+i] = entry(base)<<16 | entry(extra)<<extraShift
		base += 1 << extra
	}
	m.lit[285] = 258 << 16
	m.lit[286], m.lit[287] = kindBad, kindBad
	base = 1
	for i := range 30 {
		extra := max(i/2-1, 0)
		m.dist[i] = entry(base)<<16 | entry(extra)<<extraShift
		base += 1 << extra
	}
	m.dist[30], m.dist[31] = kindBad, kindBad
	for i := range numPre {
		m.pre[i] = entry(i) << 16
	}
	return m
}()

// fixed makes the tables of RFC 1951, 3.2.6.
func (r *Reader) fixed() error {
	var l [numLit]uint8
	for i := range l {
		switch {
		case i < 144:
			l[i] = 8
		case i < 256:
			l[i] = 9
		case i < 280:
			l[i] = 7
		default:
			l[i] = 8
		}
	}
	var d [numDist]uint8
	for i := range d {
		d[i] = 5
	}
	if !r.lit.build(l[:], litBits, known.lit[:]) || !r.dist.build(d[:], distBits, known.dist[:]) {
		return ErrCorrupt
	}
	return nil
}

// dynamic reads the code lengths of a block: RFC 1951, 3.2.7.
func (r *Reader) dynamic() error {
	nlit, ndist, npre := int(r.take(5))+257, int(r.take(5))+1, int(r.take(4))+4
	if nlit > 286 || ndist > 30 {
		return ErrCorrupt
	}
	order := [numPre]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	var pre [numPre]uint8
	for i := range npre {
		if i%8 == 0 {
			r.fill()
		}
		pre[order[i]] = uint8(r.take(3))
	}
	t := &r.dist // it is made below
	if !t.build(pre[:], preBits, known.pre[:]) {
		return ErrCorrupt
	}
	var lengths [numLit + numDist]uint8
	for i := 0; i < nlit+ndist; {
		r.fill()
		e := t.entries[r.bits&(1<<preBits-1)]
		if e&kindBad != 0 {
			return ErrCorrupt
		}
		r.take(uint(e & 0xff))
		s, times := uint8(e>>16), 1
		switch s {
		case 16:
			if i == 0 {
				return ErrCorrupt
			}
			s, times = lengths[i-1], 3+int(r.take(2))
		case 17:
			s, times = 0, 3+int(r.take(3))
		case 18:
			s, times = 0, 11+int(r.take(7))
		}
		if i+times > nlit+ndist {
			return ErrCorrupt
		}
		for range times {
			lengths[i] = s
			i++
		}
	}
	if lengths[256] == 0 || !r.lit.build(lengths[:nlit], litBits, known.lit[:]) ||
		!r.dist.build(lengths[nlit:nlit+ndist], distBits, known.dist[:]) {
		return ErrCorrupt
	}
	return nil
}

// codes inflates codes until n bytes are written or the block ends. After a fill
// there are 56 bits: enough for a length and a distance with their extra bits,
// 48, or for three literals.
func (r *Reader) codes(n int) error {
	in, out := r.in, r.out
	pos, have, b, count := r.pos, r.n, r.bits, r.count
	lit, dist := r.lit.entries, r.dist.entries[:1<<distBits]
	first := lit[:1<<litBits]
	for {
		if have >= n {
			r.pos, r.n, r.bits, r.count = pos, have, b, count
			if r.overrun() {
				return ErrTruncated
			}
			return nil
		}
		if len(in)-pos < wordSize {
			r.pos, r.n, r.bits, r.count = pos, have, b, count
			if r.overrun() {
				return ErrTruncated
			}
			r.pad()
			in, pos = r.in, r.pos
		}
		b |= binary.LittleEndian.Uint64(in[pos:]) << (count & 63)
		pos += int(63-count) >> 3
		count |= 56

		e := first[b&(1<<litBits-1)]
		if e&kindLiteral != 0 {
			b >>= e & 63
			count -= uint(e & 0xff)
			out[have] = byte(e >> 16)
			have++
			e = first[b&(1<<litBits-1)]
			if e&kindLiteral != 0 {
				b >>= e & 63
				count -= uint(e & 0xff)
				out[have] = byte(e >> 16)
				have++
				e = first[b&(1<<litBits-1)]
				if e&kindLiteral != 0 {
					b >>= e & 63
					count -= uint(e & 0xff)
					out[have] = byte(e >> 16)
					have++
					continue
				}
			}
			if len(in)-pos < wordSize {
				continue // fill, and find e again
			}
			b |= binary.LittleEndian.Uint64(in[pos:]) << (count & 63)
			pos += int(63-count) >> 3
			count |= 56
		}
		if e&kindSub != 0 {
			b >>= e & 63
			count -= uint(e & 0xff)
			e = lit[uint(e>>16)+uint(b)&(1<<(e>>extraShift&extraMask)-1)]
		}
		b >>= e & 63
		count -= uint(e & 0xff)
		if e&(kindLiteral|kindEnd|kindBad) != 0 {
			if e&kindLiteral != 0 {
				out[have] = byte(e >> 16)
				have++
				continue
			}
			if e&kindBad != 0 {
				return ErrCorrupt
			}
			r.pos, r.n, r.bits, r.count = pos, have, b, count
			if r.overrun() {
				return ErrTruncated
			}
			r.state = between
			return nil
		}
		extra := uint(e>>extraShift) & extraMask
		length := int(e>>16) + int(b&(1<<extra-1))
		b >>= extra
		count -= extra

		e = dist[b&(1<<distBits-1)]
		if e&kindSub != 0 {
			b >>= e & 63
			count -= uint(e & 0xff)
			e = r.dist.entries[uint(e>>16)+uint(b)&(1<<(e>>extraShift&extraMask)-1)]
		}
		if e&kindBad != 0 {
			return ErrCorrupt
		}
		b >>= e & 63
		count -= uint(e & 0xff)
		extra = uint(e>>extraShift) & extraMask
		d := int(e>>16) + int(b&(1<<extra-1))
		b >>= extra
		count -= extra
		if d > have {
			return ErrCorrupt
		}
		src, end := have-d, have+length
		if d >= wordSize {
			for at := have; at < end; at += wordSize {
				binary.LittleEndian.PutUint64(out[at:], binary.LittleEndian.Uint64(out[src:]))
				src += wordSize
			}
		} else {
			for at := have; at < end; at++ {
				out[at] = out[src]
				src++
			}
		}
		have = end
	}
}
