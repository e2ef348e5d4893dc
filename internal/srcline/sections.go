package srcline

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// sections are the DWARF sections of a file. Those of another file are alt, the
// supplementary file that dwz or DWARF 5, 7.3.6 puts shared entries in.
type sections struct {
	info, abbrev, str, lineStr, strOffsets, addr []byte
	ranges, rnglists, line, aranges              []byte
	units                                        []*unit // by offset
	alt                                          *sections
	mapped                                       [][]byte

	mu      sync.Mutex
	abbrevs map[abbrevKey]*abbrevTable
}

type abbrevKey struct {
	off uint64
	f   format
}

// table returns the abbreviations of a unit; they are kept.
func (s *sections) table(u *unit) *abbrevTable {
	k := abbrevKey{u.abbrevOff, u.format}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.abbrevs[k]
	if t == nil {
		t = parseAbbrevs(s.abbrev, k.off, k.f, 0)
		if s.abbrevs == nil {
			s.abbrevs = make(map[abbrevKey]*abbrevTable)
		}
		s.abbrevs[k] = t
	}
	return t
}

// forget drops what can be read again.
func (s *sections) forget() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.abbrevs = nil
	s.mu.Unlock()
	s.alt.forget()
}

func (s *sections) close() {
	if s == nil {
		return
	}
	for _, m := range s.mapped {
		unix.Munmap(m)
	}
	s.alt.close()
}

// loadSections takes the sections whose names end in suffix from file, whose
// headers are f. The result is nil where there is no .debug_info.
func loadSections(f *elf.File, file io.ReaderAt, suffix string) (*sections, error) {
	s := &sections{}
	var busy sync.WaitGroup
	var mu sync.Mutex
	var first error
	for name, dst := range map[string]*[]byte{
		"info": &s.info, "abbrev": &s.abbrev, "str": &s.str, "line_str": &s.lineStr, "str_offsets": &s.strOffsets,
		"addr": &s.addr, "ranges": &s.ranges, "rnglists": &s.rnglists, "line": &s.line, "aranges": &s.aranges,
	} {
		sec := f.Section(".debug_" + name + suffix)
		if sec == nil {
			sec = f.Section(".zdebug_" + name + suffix)
		}
		if sec == nil || sec.Type == elf.SHT_NOBITS {
			continue
		}
		load := func() {
			b, err := sectionData(sec, file)
			*dst = b
			if err != nil {
				mu.Lock()
				first = fmt.Errorf("section %s: %w", sec.Name, err)
				mu.Unlock()
			}
		}
		if m := mapSection(sec, file); m.data != nil {
			*dst = m.data
			s.mapped = append(s.mapped, m.pages)
		} else {
			busy.Go(load) // inflating is most of the time that opening takes
		}
	}
	busy.Wait()
	if first != nil || len(s.info) == 0 {
		s.close()
		return nil, first
	}
	return s, nil
}

// mapping is the data of a section in pages of memory.
type mapping struct{ data, pages []byte }

// mapSection maps a section, if file is one that can be mapped and the section
// is not compressed.
func mapSection(sec *elf.Section, file io.ReaderAt) mapping {
	f, ok := file.(*os.File)
	if !ok || sec.Flags&elf.SHF_COMPRESSED != 0 || strings.HasPrefix(sec.Name, ".z") || sec.FileSize == 0 {
		return mapping{}
	}
	st, err := f.Stat()
	if err != nil || sec.Offset > uint64(st.Size()) || sec.FileSize > uint64(st.Size())-sec.Offset {
		return mapping{}
	}
	lead := sec.Offset % uint64(os.Getpagesize())
	m, err := unix.Mmap(int(f.Fd()), int64(sec.Offset-lead), int(sec.FileSize+lead), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return mapping{}
	}
	return mapping{m[lead:], m}
}

// sectionData reads a section, and inflates it where it is compressed: gABI
// chapter 4, "Section Compression", or GNU's older form, "ZLIB" and the size as a
// big-endian number before the stream.
func sectionData(sec *elf.Section, file io.ReaderAt) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	raw := io.NewSectionReader(file, int64(sec.Offset), int64(sec.FileSize))
	old := strings.HasPrefix(sec.Name, ".z")
	if !old && sec.Flags&elf.SHF_COMPRESSED == 0 {
		return sec.Data()
	}
	var head [24]byte // Elf64_Chdr
	n := len(head)
	if old {
		n = 12
	}
	if _, err := io.ReadFull(raw, head[:n]); err != nil {
		return nil, err
	}
	kind, size := elf.CompressionType(binary.LittleEndian.Uint32(head[:])), binary.LittleEndian.Uint64(head[8:])
	if old {
		kind, size = elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(head[4:])
	}
	var r io.Reader
	switch in := bufio.NewReaderSize(raw, 1<<16); {
	case old && string(head[:4]) != "ZLIB":
		return nil, errors.New("not compressed as its name says")
	case kind == elf.COMPRESS_ZLIB:
		r, err = zlib.NewReader(in)
	case kind == elf.COMPRESS_ZSTD:
		var d *zstd.Decoder
		if d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1)); err == nil {
			defer d.Close()
			r = d
		}
	default:
		err = fmt.Errorf("compression type %d", kind)
	}
	if err != nil {
		return nil, err
	}
	// The size is a claim of the file: for more than the usual, memory is taken
	// as the data come.
	const usual, most = 16, 1 << 40
	out := bytes.NewBuffer(make([]byte, 0, min(size, usual*sec.FileSize)+bytes.MinRead))
	got, err := io.Copy(out, io.LimitReader(r, int64(min(size, most))))
	if err == nil && uint64(got) != size {
		err = io.ErrUnexpectedEOF
	}
	return out.Bytes(), err
}
