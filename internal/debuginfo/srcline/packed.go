package srcline

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/ehasm/ehasm/internal/files/pages"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// This file inflates compressed sections as far as they are read: a lookup needs a part of .debug_info, and a
// compressed stream can only be read from its beginning.

// packed is a compressed section: gABI chapter 4, "Section Compression", or GNU's older form, "ZLIB" and the size as a
// big-endian number before the stream. It is inflated from its beginning, as far as needed. Its methods are safe for
// concurrent use; data below have does not change.
type packed struct {
	name string
	size uint64        // of the data, as the file has it
	raw  uint64        // size of the stream
	data []byte        // of size bytes; see reserve
	have atomic.Uint64 // bytes inflated so far

	mu     sync.Mutex
	stream io.ReadCloser // what follows have
	err    error         // why inflating stopped
}

// sectionError is what upTo panics with.
type sectionError struct {
	name string
	err  error
}

func (e *sectionError) Error() string { return fmt.Sprintf("section %s: %v", e.name, e.err) }
func (e *sectionError) Unwrap() error { return e.err }

// errSize: the header's size is wrong.
var errSize = errors.New("the data are not as long as they are said to be")

// newPacked reads the header of a compressed section. elffile.Open has bounded what it may say.
func newPacked(sec *elf.Section, raw []byte) (*packed, error) {
	const chdr, old = 24, 12 // Elf64_Chdr; the older form
	p := &packed{name: sec.Name}
	kind := elf.COMPRESS_ZLIB
	switch {
	case sec.Flags&elf.SHF_COMPRESSED == 0:
		if len(raw) < old || string(raw[:4]) != "ZLIB" {
			return nil, errors.New("not compressed as its name says")
		}
		p.size, raw = binary.BigEndian.Uint64(raw[4:]), raw[old:]
	case len(raw) < chdr:
		return nil, io.ErrUnexpectedEOF
	default:
		kind = elf.CompressionType(binary.LittleEndian.Uint32(raw))
		p.size, raw = binary.LittleEndian.Uint64(raw[8:]), raw[chdr:]
	}
	switch p.raw = uint64(len(raw)); kind {
	case elf.COMPRESS_ZLIB:
		var err error
		p.stream, err = zlib.NewReader(bytes.NewReader(raw))
		return p, err
	case elf.COMPRESS_ZSTD:
		d, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		p.stream = d.IOReadCloser()
		return p, nil
	}
	return nil, fmt.Errorf("compression type %d", kind)
}

// reserve reserves addresses for the data; false if there are none. Memory is allocated on use.
func (p *packed) reserve() bool {
	if p.size == 0 {
		return false
	}
	b, err := pages.Reserve(int(p.size))
	p.data = b
	return err == nil
}

// all inflates everything into memory that grows with the data.
func (p *packed) all() ([]byte, error) {
	const usual = 16 // times that debug information shrinks, at most, in most files
	defer p.stream.Close()
	out := bytes.NewBuffer(make([]byte, 0, min(p.size, usual*p.raw)+bytes.MinRead))
	n, err := io.Copy(out, io.LimitReader(p.stream, int64(p.size)))
	if err == nil && uint64(n) != p.size {
		err = errSize
	}
	return out.Bytes(), err
}

// upTo inflates at least the first n bytes of the data. If that fails it panics with a sectionError, which try turns
// into an error: a check at each read of a section would be forgotten somewhere. p may be nil: the section is not
// compressed.
func (p *packed) upTo(n uint64) {
	if p == nil || n <= p.have.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.inflate(n); err != nil {
		panic(&sectionError{p.name, err})
	}
}

// inflate is upTo for a caller with p.mu.
func (p *packed) inflate(n uint64) error {
	const step = 1 << 16 // bytes
	n = min(n, p.size)
	have := p.have.Load()
	if p.err != nil || n <= have {
		return p.err
	}
	n = min(n+step, p.size)     // some more, so that small units do not each take a call
	p.err = io.ErrUnexpectedEOF // remains if the code below faults
	if _, err := io.ReadFull(p.stream, p.data[have:n]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errSize
		}
		p.err = err
		p.stream.Close()
		return err
	}
	p.err = nil
	p.have.Store(n)
	if n == p.size {
		p.stream.Close()
	}
	return nil
}
