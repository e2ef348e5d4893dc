package srcline

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

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
		b, err := s.data(sec, file)
		if err != nil {
			s.close()
			return nil, fmt.Errorf("section %s: %w", sec.Name, err)
		}
		*dst = b
	}
	if len(s.info) == 0 {
		s.close()
		return nil, nil
	}
	return s, nil
}

// data gives the contents of a section: mapped where the file can be, or else
// in memory.
func (s *sections) data(sec *elf.Section, file io.ReaderAt) ([]byte, error) {
	if sec.Flags&elf.SHF_COMPRESSED != 0 {
		return sec.Data()
	}
	b, err := s.raw(sec, file)
	if err != nil || !strings.HasPrefix(sec.Name, ".z") {
		return b, err
	}
	// GNU's older form: "ZLIB", the size as a big-endian number, the stream.
	const head = 12
	if len(b) < head || string(b[:4]) != "ZLIB" {
		return nil, fmt.Errorf("not compressed as its name says")
	}
	r, err := zlib.NewReader(bytes.NewReader(b[head:]))
	if err != nil {
		return nil, err
	}
	// The size is a claim of the file: memory is taken as the data come.
	size := binary.BigEndian.Uint64(b[4:])
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(r, int64(min(size, 1<<40))))
	if err == nil && uint64(n) != size {
		err = io.ErrUnexpectedEOF
	}
	return out.Bytes(), err
}

func (s *sections) raw(sec *elf.Section, file io.ReaderAt) ([]byte, error) {
	f, ok := file.(*os.File)
	if !ok {
		return sec.Data()
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if sec.Offset > uint64(st.Size()) || sec.FileSize > uint64(st.Size())-sec.Offset {
		return nil, io.ErrUnexpectedEOF
	}
	if sec.FileSize == 0 {
		return nil, nil
	}
	page := uint64(os.Getpagesize())
	lead := sec.Offset % page
	m, err := unix.Mmap(int(f.Fd()), int64(sec.Offset-lead), int(sec.FileSize+lead), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return sec.Data()
	}
	s.mapped = append(s.mapped, m)
	return m[lead:], nil
}
