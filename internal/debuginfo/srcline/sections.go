package srcline

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/ehasm/ehasm/internal/files/pages"
)

// This file loads the DWARF sections of a file: mapped if possible, inflated lazily where they are
// large, and shared by all units.

// sections holds the DWARF sections of a file. alt holds those of the supplementary file,
// in which dwz (or DWARF 5, 7.3.6) puts shared entries.
type sections struct {
	contents
	alt    *sections // DW_FORM_strp_sup and the like lead there; nil: none
	owner  *sections // of these, which are its .debug_types; nil: none
	mapped [][]byte  // memory to be unmapped by close

	// The parts of them that are not inflated yet; nil: none.
	packed struct{ info, abbrev, line *packed }

	mu      sync.Mutex // of what follows, which is parsed on demand
	abbrevs map[abbrevKey]*abbrevTable
	index   unitIndex
}

// contents are the bytes of the sections, inflated.
type contents struct {
	info, abbrev, str, lineStr, strOffsets, addr []byte
	ranges, rnglists, line, aranges              []byte
	types                                        []byte // .debug_types
}

// unitIndex are the units that were met so far.
type unitIndex struct {
	units    []*unit             // by offset, up to parsed; without type units
	parsed   uint64              // offset of the next header in .debug_info
	unitsErr error               // why parsing stopped there
	typeAt   map[uint64]entryKey // types in type units, by signature
	typed    bool                // .debug_types has been parsed
	typesErr error               // why it is incomplete
}

// abbrevKey names a table of abbreviations: the same bytes mean other sizes in other formats.
type abbrevKey struct {
	off   uint64 // in .debug_abbrev
	f     format
	types bool // with the attributes of all tags
}

// table returns the abbreviations of a unit and caches them.
func (s *sections) table(u *unit) *abbrevTable {
	return s.abbrevTable(abbrevKey{u.abbrevOff, u.format, false})
}

// abbrevTable returns the table of a key, read once.
func (s *sections) abbrevTable(k abbrevKey) *abbrevTable {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.abbrevs[k]
	if t == nil {
		t = s.parseAbbrevs(k.off, k.f, wanted{types: k.types})
		if s.abbrevs == nil {
			s.abbrevs = make(map[abbrevKey]*abbrevTable)
		}
		s.abbrevs[k] = t
	}
	return t
}

// parseAbbrevs reads the declarations at an offset, up to the one that is wanted.
func (s *sections) parseAbbrevs(off uint64, f format, want wanted) *abbrevTable {
	p := s.packed.abbrev
	const usual = 1 << 13 // bytes that most tables have; twice as many are tried next
	// The length of a table is only known at its end.
	for n := off + usual; p != nil && n < uint64(len(s.abbrev)); n += n - off {
		p.upTo(n)
		if t, whole := parseAbbrevs(s.abbrev[:n], off, f, want); whole {
			return t
		}
	}
	p.upTo(uint64(len(s.abbrev)))
	t, _ := parseAbbrevs(s.abbrev, off, f, want)
	return t
}

// forget drops caches. Tables in use stay valid: they are only no longer found. s may be nil.
func (s *sections) forget() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.abbrevs = nil
	s.mu.Unlock()
	s.alt.forget()
}

// close unmaps all sections, those of the supplementary file as well. No slice of them may be used after it. s may be
// nil.
func (s *sections) close() {
	if s == nil {
		return
	}
	for _, m := range s.mapped {
		pages.Unmap(m)
	}
	s.alt.close()
}

// loadSections loads the DWARF sections of file whose names end in suffix; f has the
// file's headers. The result is nil if there is no .debug_info.
func loadSections(f *elf.File, file io.ReaderAt, suffix string) (*sections, error) {
	s := &sections{}
	// Compressed sections that are needed whole are inflated side by side.
	var busy sync.WaitGroup
	var mu sync.Mutex
	var first error
	for name, dst := range map[string]*[]byte{
		"info": &s.info, "abbrev": &s.abbrev, "str": &s.str, "line_str": &s.lineStr, "str_offsets": &s.strOffsets,
		"addr": &s.addr, "ranges": &s.ranges, "rnglists": &s.rnglists, "line": &s.line, "aranges": &s.aranges,
		"types": &s.types,
	} {
		// .zdebug_ is GNU's older way to mark compression.
		sec := f.Section(".debug_" + name + suffix)
		if sec == nil {
			sec = f.Section(".zdebug_" + name + suffix)
		}
		if sec == nil || sec.Type == elf.SHT_NOBITS {
			continue
		}
		// Relocatable .dwo files have a section for each type unit.
		if more := sameName(f, sec); len(more) > 1 && suffix != "" { // each type unit has its own section
			b, err := joined(more)
			if *dst = b; err != nil {
				first = fmt.Errorf("section %s: %w", sec.Name, err)
			}
			continue
		}
		// These sections are large and read in part: their inflating waits.
		later := map[string]**packed{"info": &s.packed.info, "abbrev": &s.packed.abbrev, "line": &s.packed.line}[name]
		load := func() {
			l, err := loadSection(sec, file, later != nil)
			mu.Lock()
			defer mu.Unlock()
			*dst = l.data
			if later != nil {
				*later = l.packed
			}
			s.mapped = append(s.mapped, l.pages...)
			if err != nil {
				first = fmt.Errorf("section %s: %w", sec.Name, err)
			}
		}
		if later == nil && isPacked(sec) {
			busy.Go(load) // needs inflating now
		} else {
			load()
		}
	}
	busy.Wait()
	// Without .debug_info there is nothing to look up.
	if first != nil || len(s.info) == 0 {
		s.close()
		return nil, first
	}
	return s, nil
}

// sameName returns the sections that have the name of one.
func sameName(f *elf.File, sec *elf.Section) (list []*elf.Section) {
	for _, s := range f.Sections {
		if s.Name == sec.Name && s.Type != elf.SHT_NOBITS {
			list = append(list, s)
		}
	}
	return list
}

// joined returns the concatenated contents of sections.
func joined(list []*elf.Section) (all []byte, err error) {
	for _, sec := range list {
		b, err := sec.Data()
		if err != nil {
			return nil, err
		}
		if all = append(all, b...); len(all) > maxJoined {
			return nil, fmt.Errorf("more than %d bytes", maxJoined)
		}
	}
	return all, nil
}

// maxJoined bounds the bytes of joined: sections of a hostile file may overlap.
const maxJoined = 1 << 28

// isPacked reports whether a section is compressed.
func isPacked(sec *elf.Section) bool {
	return sec.Flags&elf.SHF_COMPRESSED != 0 || strings.HasPrefix(sec.Name, ".z")
}

// loaded is a section.
type loaded struct {
	data   []byte
	packed *packed  // inflates the rest of data; nil: data is complete
	pages  [][]byte // what must be unmapped
}

// loadSection maps or reads a section. A compressed one may be inflated later, where it is
// mapped.
func loadSection(sec *elf.Section, file io.ReaderAt, later bool) (l loaded, err error) {
	defer func() {
		if p := recover(); p != nil { // the file has shrunk
			err = fmt.Errorf("%v", p)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // of this goroutine
	// A mapped section costs memory only where it is read.
	m := mapSection(sec, file)
	// A section that cannot be mapped is read, and must be read whole.
	raw := m.data
	if m.data != nil {
		l.pages = append(l.pages, m.pages)
	} else {
		raw, err = io.ReadAll(io.NewSectionReader(file, int64(sec.Offset), int64(sec.FileSize)))
		if err != nil {
			return l, err
		}
		if uint64(len(raw)) < sec.FileSize {
			return l, io.ErrUnexpectedEOF
		}
	}
	if !isPacked(sec) {
		l.data = raw
		return l, nil
	}
	p, err := newPacked(sec, raw)
	if err != nil {
		return l, err
	}
	// Address space is reserved for the inflated bytes; pages are filled on demand.
	if m.data != nil && p.reserve() {
		l.pages = append(l.pages, p.data)
		l.data = p.data[:p.size]
		if l.packed = p; !later {
			l.packed = nil
			err = p.inflate(p.size)
		}
		return l, err
	}
	// No address space to reserve: inflate into ordinary memory.
	l.data, err = p.all()
	return l, err
}

// mapping is the data of a section in pages of memory.
type mapping struct{ data, pages []byte }

// mapSection maps a section, if file is one that can be mapped.
func mapSection(sec *elf.Section, file io.ReaderAt) mapping {
	f, ok := file.(*os.File)
	if !ok || sec.FileSize == 0 {
		return mapping{}
	}
	st, err := f.Stat()
	// A section beyond the file's end would fault when read.
	if err != nil || sec.Offset > uint64(st.Size()) || sec.FileSize > uint64(st.Size())-sec.Offset {
		return mapping{}
	}
	// Mappings begin at a page; the section may begin inside it.
	lead := sec.Offset % uint64(os.Getpagesize())
	m, err := pages.Map(f, int64(sec.Offset-lead), int(sec.FileSize+lead))
	if err != nil {
		return mapping{}
	}
	return mapping{m[lead:], m}
}
