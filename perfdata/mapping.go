package perfdata

import (
	"io"
	"os"

	"github.com/ehasm/ehasm/internal/files/pages"
)

// windowSize is how much of a file is mapped at once, in bytes.
const windowSize = 8 << 20

// mapping is a file that is mapped window by window instead of being read.
type mapping struct {
	file *os.File
	size int64 // of the file when it was opened
}

// newMapping returns nil if in cannot be mapped, or is not at its start.
func newMapping(in io.Reader) *mapping {
	f, ok := in.(*os.File)
	if !ok {
		return nil
	}
	// A pipe, or a file that is read from its middle, is not mapped.
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	if pos, err := f.Seek(0, io.SeekCurrent); err != nil || pos != 0 {
		return nil
	}
	return &mapping{f, st.Size()}
}

// more maps the window that begins with the first buffered byte. It returns
// false if that adds no bytes; the rest is then read, since the file may have
// grown.
func (s *source) more() bool {
	buffered := int64(s.end - s.pos)
	// The window ends with the file as it was at first.
	n := min(windowSize, s.mapping.size-s.off)
	// Nor does it pass the data section.
	if s.left >= 0 {
		n = min(n, s.left+buffered)
	}
	// Bytes that are buffered already are mapped again, so that records lie in one piece.
	if n > buffered {
		if blk := s.pool.mapFile(s.mapping.file, s.off, int(n)); blk != nil {
			if s.blk != nil {
				s.pool.release(s.blk)
			}
			s.blk, s.pos, s.end = blk, 0, int(n)
			if s.left >= 0 {
				s.left -= n - buffered
			}
			return true
		}
	}
	// The file may have grown since: its rest is read.
	s.r = io.NewSectionReader(s.mapping.file, s.off+buffered, 1<<62)
	s.mapping = nil
	return false
}

// mapFile makes a block of n bytes of a file, nil if it cannot be mapped.
func (p *pool) mapFile(f *os.File, off int64, n int) *block {
	// Mappings begin at a page.
	lead := int(off % int64(os.Getpagesize()))
	mapped, err := pages.Map(f, off-int64(lead), n+lead)
	if err != nil {
		return nil
	}
	b := &block{buf: mapped[lead:], pages: mapped, refs: 1}
	// For unmap, in case records are still queued at Close.
	if p.mapped == nil {
		p.mapped = make(map[*block]bool)
	}
	p.mapped[b] = true
	return b
}

// unmap frees all blocks that are mapped.
func (p *pool) unmap() {
	for b := range p.mapped {
		pages.Unmap(b.pages)
	}
	p.mapped = nil
}
