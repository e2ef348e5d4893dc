package codeflow

import (
	"io"
	"sync/atomic"
)

// pieces reads a part of a file when it is asked for. Segments of constants are mostly strings and tables for
// exceptions, of which the analysis needs little. It may be used concurrently.
type pieces struct {
	r    io.ReaderAt
	off  int64 // of the part in the file
	size int64
	read []atomic.Pointer[piece]
}

const (
	pieceSize = 1 << 15
	word      = 8 // what at guarantees
)

// piece holds also the first bytes of the next one, so that each word is in one piece.
type piece [pieceSize + word - 1]byte

// newPieces returns nil if the file does not hold the whole part.
func newPieces(r io.ReaderAt, off, size uint64) *pieces {
	var last [1]byte
	if n, _ := r.ReadAt(last[:], int64(off+size-1)); n != 1 {
		return nil
	}
	return &pieces{r, int64(off), int64(size), make([]atomic.Pointer[piece], (size+pieceSize-1)/pieceSize)}
}

// at returns the bytes from an offset on, at least 8 if there are 8; nil if they can't be read.
func (q *pieces) at(off uint64) []byte {
	k := off / pieceSize
	b := q.read[k].Load()
	start := int64(k * pieceSize)
	n := min(q.size-start, int64(len(b)))
	if b == nil {
		b = new(piece)
		if got, _ := q.r.ReadAt(b[:n], q.off+start); got < int(n) {
			return nil
		}
		if !q.read[k].CompareAndSwap(nil, b) {
			b = q.read[k].Load()
		}
	}
	return b[off%pieceSize : n]
}
