package perfdata

import (
	"errors"
	"io"

	"github.com/ehasm/ehasm/internal/files/pages"
)

const (
	headerSize = 8         // struct perf_event_header
	maxRecord  = 1<<16 - 1 // bytes: size has 16 bits
	blockSize  = 1 << 20
)

// block is a piece of memory that holds records. It is reused once nothing
// refers to it.
type block struct {
	buf   []byte
	refs  int    // queued records and the stream that fills the block
	pages []byte // the mapped pages of the file that hold buf; nil if it was read
}

// pool keeps blocks for reuse.
type pool struct {
	free   []*block        // at most 8, to be filled again
	mapped map[*block]bool // blocks that are mapped now, for unmap
}

// get returns a free block, held once.
func (p *pool) get() *block {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		b.refs = 1
		return b
	}
	return &block{buf: make([]byte, blockSize), refs: 1}
}

// release gives up a reference. Without any, the block is reused or unmapped.
func (p *pool) release(b *block) {
	if b.refs--; b.refs == 0 {
		if b.pages != nil {
			delete(p.mapped, b)
			pages.Unmap(b.pages)
			return
		}
		// More would only hold memory after a long queue.
		const keep = 8
		if len(p.free) < keep {
			p.free = append(p.free, b)
		}
	}
}

// stream holds bytes that have been read and not yet consumed:
// blk.buf[pos:end].
type stream struct {
	pool     *pool
	blk      *block
	pos, end int
}

// buffered returns what was read and not consumed.
func (s *stream) buffered() []byte {
	if s.blk == nil {
		return nil
	}
	return s.blk.buf[s.pos:s.end]
}

// room returns space after the buffered bytes, so that a record lies in one
// piece.
func (s *stream) room() []byte {
	if s.blk == nil {
		s.blk, s.pos, s.end = s.pool.get(), 0, 0
	}
	// Near the block's end, the rest moves to a new block: records never span blocks.
	if len(s.blk.buf)-s.pos <= maxRecord || s.end == len(s.blk.buf) {
		next := s.pool.get()
		n := copy(next.buf, s.blk.buf[s.pos:s.end])
		s.pool.release(s.blk)
		s.blk, s.pos, s.end = next, 0, n
	}
	return s.blk.buf[s.end:]
}

// source is the stream of the file's data.
type source struct {
	stream
	r    io.Reader // not used while a mapping is
	left int64     // bytes of the data section that have not been read; -1: up to the end of the file
	off  int64     // file offset of the first buffered byte

	mapping *mapping // nil: r is read
}

// fill buffers at least n bytes; n is at most maxRecord. It returns false if
// the data ends before.
func (s *source) fill(n int) (bool, error) {
	for s.end-s.pos < n || s.blk == nil {
		// Mapped windows need no reading.
		if s.mapping != nil && s.more() {
			continue
		}
		b := s.room()
		// Never beyond the section.
		if s.left >= 0 {
			b = b[:min(int64(len(b)), s.left)]
			if len(b) == 0 {
				return false, nil
			}
		}
		m, err := s.r.Read(b)
		s.end += m
		if s.left >= 0 {
			s.left -= int64(m)
		}
		if m > 0 {
			continue
		}
		// The end inside a record is the caller's to judge.
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// advance consumes n buffered bytes.
func (s *source) advance(n int) {
	s.pos += n
	s.off += int64(n)
}

// skip drops n bytes that are not records.
func (s *source) skip(n uint64) error {
	for n > 0 {
		m := min(n, uint64(s.end-s.pos))
		s.advance(int(m))
		if n -= m; n == 0 {
			break
		}
		if ok, err := s.fill(1); err != nil {
			return err
		} else if !ok {
			return ErrTruncated
		}
	}
	return nil
}
