// Package inflate undoes the DEFLATE compression of RFC 1951 from memory to
// memory, up to as many bytes as are wanted; more may be asked for later.
//
// compress/flate and klauspost/compress are made for streams: their output goes
// through a window of 32 KB, their input comes a byte at a time. For the 5.8 MB of
// .debug_info of Debian's libc they took 2.6 times as long.
package inflate

import (
	"encoding/binary"
	"errors"
)

// Errors of Reader.UpTo.
var (
	ErrCorrupt   = errors.New("corrupt compressed data")
	ErrTruncated = errors.New("compressed data end too early")
)

// MaxRatio is at most how many bytes one byte of input stands for: a code of one
// bit for a length of 258, and one for its distance.
const MaxRatio = 1032

// Slack is how much longer than the data the output must be, in bytes: a few more
// are written than are asked for, two literals and the longest match in whole words.
const Slack = 2 + 258 + wordSize

const wordSize = 8

// Reader inflates one stream. It is ready for use after Reset.
type Reader struct {
	in    []byte
	pos   int    // in in
	bits  uint64 // the next bits of the input, lowest first; those above count are what follows at pos, or zeros
	count uint   // of bits
	spare int    // bytes of padding at the end of in

	out   []byte
	n     int // bytes of out that have been written
	limit int

	state  state
	final  bool // the block is the last one
	stored int  // bytes left of a stored block
	lit    table
	dist   table
	err    error
}

type state uint8

const (
	between  state = iota // blocks
	inStored              // a block that is not compressed
	inCodes
	ended
)

// Reset begins with the stream in. Its data go to the beginning of out, up to
// Slack bytes before its end; more are left.
func (r *Reader) Reset(in, out []byte) {
	lit, dist := r.lit.entries, r.dist.entries
	*r = Reader{in: in, out: out, limit: len(out) - Slack}
	r.lit.entries, r.dist.entries = lit, dist
}

// Written returns how many bytes of the output there are.
func (r *Reader) Written() int { return r.n }

// UpTo inflates until n bytes have been written, or a few more, or the stream
// ends: Written tells. An error stays; what was written by calls without one is right.
func (r *Reader) UpTo(n int) error {
	n = min(n, r.limit)
	for r.err == nil && r.n < n && r.state != ended {
		r.err = r.advance(n)
	}
	return r.err
}

func (r *Reader) advance(n int) error {
	switch r.state {
	case between:
		if r.final {
			r.state = ended
			return nil
		}
		return r.block()
	case inStored:
		return r.copyStored()
	default:
		return r.codes(n)
	}
}

// fill sees to it that there are at least 56 bits, zeros behind the end.
func (r *Reader) fill() {
	if len(r.in)-r.pos < wordSize {
		r.pad()
	}
	r.bits |= binary.LittleEndian.Uint64(r.in[r.pos:]) << r.count
	r.pos += int(63-r.count) >> 3
	r.count |= 56
}

// pad appends zeros to what is left of the input. overrun must be false.
func (r *Reader) pad() {
	const room = 4096            // more than a block's header has
	back := min(r.pos, wordSize) // for unread
	rest := r.in[r.pos-back:]
	r.spare = min(r.spare, len(rest)-back) + room
	r.in = append(make([]byte, 0, len(rest)+room), rest...)[:len(rest)+room]
	r.pos = back
}

// overrun tells whether bits behind the end of the input have been used.
func (r *Reader) overrun() bool {
	return len(r.in)-r.pos+int(r.count/8) < r.spare
}

// take takes n bits, at most 32.
func (r *Reader) take(n uint) uint {
	v := uint(r.bits & (1<<n - 1))
	r.bits >>= n
	r.count -= n
	return v
}

// block reads the header of a block: RFC 1951, 3.2.3.
func (r *Reader) block() error {
	r.fill()
	r.final = r.take(1) == 1
	kind := r.take(2)
	switch kind {
	case 0:
		r.take(r.count % 8)
		r.unread()
		if len(r.in)-r.pos-r.spare < 4 {
			return ErrTruncated
		}
		size, not := binary.LittleEndian.Uint16(r.in[r.pos:]), binary.LittleEndian.Uint16(r.in[r.pos+2:])
		if size != ^not {
			return ErrCorrupt
		}
		r.pos += 4
		r.stored, r.state = int(size), inStored
		return nil
	case 1:
		if err := r.fixed(); err != nil {
			return err
		}
	case 2:
		if err := r.dynamic(); err != nil {
			return err
		}
	default:
		return ErrCorrupt
	}
	if r.overrun() {
		return ErrTruncated
	}
	r.state = inCodes
	return nil
}

// unread gives whole bytes of bits back to the input.
func (r *Reader) unread() {
	r.pos -= int(r.count / 8)
	r.bits, r.count = 0, 0
}

func (r *Reader) copyStored() error {
	if r.stored == 0 {
		r.state = between
		return nil
	}
	m := min(r.stored, len(r.in)-r.pos-r.spare, r.limit-r.n)
	if m <= 0 {
		return ErrTruncated
	}
	copy(r.out[r.n:], r.in[r.pos:r.pos+m])
	r.n, r.pos, r.stored = r.n+m, r.pos+m, r.stored-m
	return nil
}
