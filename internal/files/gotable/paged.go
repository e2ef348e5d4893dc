package gotable

import (
	"errors"
	"io"
	"sync"
)

// Paged returns a reader that keeps pages of a file, up to 512 KB, for callers that read a few
// bytes here and there. It is safe for concurrent use.
func Paged(r io.ReaderAt) io.ReaderAt { return &paged{from: r, pages: make(map[int64][]byte)} }

// Sizes of what Paged keeps.
const (
	pageSize  = 16 << 10 // bytes
	mostPages = 32       // then one makes room for the next
)

// paged is the reader of Paged.
type paged struct {
	from  io.ReaderAt
	mu    sync.Mutex       // protects pages
	pages map[int64][]byte // by number; one at the end of the file is shorter
}

// ReadAt is io.ReaderAt's. Long reads go to the file.
func (p *paged) ReadAt(b []byte, off int64) (n int, err error) {
	if len(b) > pageSize || off < 0 {
		return p.from.ReadAt(b, off)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) {
		page, err := p.page((off + int64(n)) / pageSize)
		if err != nil {
			return n, err
		}
		start := int((off + int64(n)) % pageSize)
		if start >= len(page) {
			return n, io.EOF
		}
		n += copy(b[n:], page[start:])
	}
	return n, nil
}

// page returns a page of the file.
func (p *paged) page(number int64) ([]byte, error) {
	if page, ok := p.pages[number]; ok {
		return page, nil
	}
	page := p.room()
	n, err := p.from.ReadAt(page, number*pageSize)
	if n < pageSize && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p.pages[number] = page[:n]
	return page[:n], nil
}

// room returns memory for a page, of any other page if there are many. Dropping all would be worse: the next stack
// needs most of them again.
func (p *paged) room() []byte {
	if len(p.pages) >= mostPages {
		for number, page := range p.pages {
			delete(p.pages, number)
			return page[:pageSize]
		}
	}
	return make([]byte, pageSize)
}
