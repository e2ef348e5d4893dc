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

	"ehasm/internal/inflate"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// packed is a compressed section: gABI chapter 4, "Section Compression", or GNU's older
// form, "ZLIB" and the size as a big-endian number before the stream. It is
// inflated from its beginning as far as it is wanted.
type packed struct {
	name string
	size uint64 // of the data, as the file has it
	data []byte // inflate.Slack longer
	have atomic.Uint64

	mu   sync.Mutex
	raw  []byte
	zlib *inflate.Reader // or
	zstd *zstd.Decoder
	err  error
}

// sectionError is what upTo panics with.
type sectionError struct {
	name string
	err  error
}

func (e *sectionError) Error() string { return fmt.Sprintf("section %s: %v", e.name, e.err) }
func (e *sectionError) Unwrap() error { return e.err }

var errSize = errors.New("the data are not as long as they are said to be")

// newPacked reads the header of a compressed section.
func newPacked(name string, raw []byte) (*packed, error) {
	const chdr, old = 24, 12 // Elf64_Chdr; the older form
	p := &packed{name: name}
	kind := elf.COMPRESS_ZLIB
	switch {
	case name[:2] == ".z":
		if len(raw) < old || string(raw[:4]) != "ZLIB" {
			return nil, errors.New("not compressed as its name says")
		}
		p.size, p.raw = binary.BigEndian.Uint64(raw[4:]), raw[old:]
	case len(raw) < chdr:
		return nil, io.ErrUnexpectedEOF
	default:
		kind = elf.CompressionType(binary.LittleEndian.Uint32(raw))
		p.size, p.raw = binary.LittleEndian.Uint64(raw[8:]), raw[chdr:]
	}
	switch kind {
	case elf.COMPRESS_ZLIB: // RFC 1950, 2.2
		const deflate, dict = 8, 0x20
		if len(p.raw) < 2 || p.raw[0]&0xf != deflate || p.raw[1]&dict != 0 || binary.BigEndian.Uint16(p.raw)%31 != 0 {
			return nil, errors.New("zlib: invalid header")
		}
		if p.raw = p.raw[2:]; p.size/inflate.MaxRatio > uint64(len(p.raw)) {
			return nil, errSize
		}
		p.zlib = &inflate.Reader{}
		return p, nil
	case elf.COMPRESS_ZSTD:
		if p.size > 1<<40 {
			return nil, errSize
		}
		d, err := zstd.NewReader(bytes.NewReader(p.raw), zstd.WithDecoderConcurrency(1))
		p.zstd = d
		return p, err
	}
	return nil, fmt.Errorf("compression type %d", kind)
}

// reserve takes addresses for the data; false where the file says that they are
// many more than is usual, or there are none. The memory comes as it is used.
func (p *packed) reserve() bool {
	const usual = 64
	if p.size > usual*uint64(len(p.raw))+1<<20 {
		return false
	}
	b, err := unix.Mmap(-1, 0, int(p.size)+inflate.Slack, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	p.setData(b)
	return true
}

func (p *packed) setData(b []byte) {
	p.data = b
	if p.zlib != nil {
		p.zlib.Reset(p.raw, b)
	}
}

// all inflates into memory that is taken as the data come.
func (p *packed) all() ([]byte, error) {
	const usual = 16
	if p.zstd != nil {
		defer p.zstd.Close()
		out := bytes.NewBuffer(make([]byte, 0, min(p.size, usual*uint64(len(p.raw)))+bytes.MinRead))
		n, err := io.Copy(out, io.LimitReader(p.zstd, int64(p.size)))
		if err == nil && uint64(n) != p.size {
			err = errSize
		}
		return out.Bytes(), err
	}
	for n := min(p.size, usual*uint64(len(p.raw))+1<<10); ; n = min(2*n, p.size) {
		p.setData(make([]byte, n+inflate.Slack))
		err := p.inflate(n)
		if err != nil || n == p.size {
			return p.data[:n], err
		}
	}
}

// upTo sees to it that the first n bytes of the data are there. It panics with a
// sectionError where they are not to be had; see try.
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

func (p *packed) inflate(n uint64) error {
	const step = 1 << 16
	n = min(n, p.size)
	if p.err != nil || n <= p.have.Load() {
		return p.err
	}
	n = min(n+step, p.size)
	p.err = io.ErrUnexpectedEOF // stays where what follows faults
	var have uint64
	var err error
	if p.zstd != nil {
		var m int
		at := p.have.Load()
		m, err = io.ReadFull(p.zstd, p.data[at:n])
		have = at + uint64(m)
		if have == p.size || err != nil {
			p.zstd.Close()
		}
	} else {
		err = p.zlib.UpTo(int(n))
		have = min(uint64(p.zlib.Written()), p.size)
		if err == nil && have < n {
			err = errSize
		}
	}
	if p.err = err; err == nil {
		p.have.Store(have)
	}
	return err
}
