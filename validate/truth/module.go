//go:build linux && amd64

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
)

// answerer is a table that can be asked for a step.
type answerer interface {
	Step(regs *abi.Regs, mem dwarfcfa.WordReader, bias uint64) abi.Status
}

// source makes the tables that are compared, in the order of its names.
type source struct {
	names []string
	make  func(o *dwarfcfa.File) []answerer // an entry may be nil: no table
}

// fileTables has the tables of the files themselves.
func fileTables() source {
	return source{
		names: []string{"table"},
		make:  func(o *dwarfcfa.File) []answerer { return []answerer{fileTable(o)} },
	}
}

// fileTable returns a file's own table, nil if it has none.
func fileTable(o *dwarfcfa.File) answerer {
	t, err := dwarfcfa.NewLazyTable(o, dwarfcfa.SourceAuto)
	if err != nil {
		return nil
	}
	return t
}

// madeTables adds the rows made from the code alone, which it passes to look.
func madeTables(look func(o *dwarfcfa.File, r *synth.Result)) source {
	return source{
		names: []string{"table", "made"},
		make: func(o *dwarfcfa.File) []answerer {
			tables := []answerer{fileTable(o), nil}
			result, err := synth.Of(o, synth.Options{Mode: synth.All})
			if err != nil {
				return tables
			}
			t, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{Made: result.Made(o.Name())})
			if err == nil {
				tables[1] = t
			}
			look(o, result)
			return tables
		},
	}
}

// object is a file with code, and the results of its tables.
type object struct {
	path   string
	chosen bool // its instructions are compared
	tables []answerer
	sums   []sums // per table
	names  *symbols.Table
	pcs    map[uint64]struct{} // link-time addresses of instructions that ran
	steps  int                 // executed in it
}

// mapping is a stretch of executable memory.
type mapping struct {
	low, high uint64
	bias      uint64
	object    *object // nil: no file, such as code of a JIT compiler
	pages     []*page // made when an instruction there executes
}

// page holds what is known of each address of a page of code.
type page struct {
	kinds [pageSize]kind
	seen  [pageSize]bool // is in object.pcs
}

// page returns the page that holds pc.
func (m *mapping) page(pc uint64) *page {
	p := &m.pages[(pc-m.low)/pageSize]
	if *p == nil {
		*p = new(page)
	}
	return *p
}

// space holds the mappings of a process.
type space struct {
	pid      int    // whose mappings these are
	program  string // path of the executable
	source   source
	wanted   []string           // parts of paths; none: all
	objects  map[string]*object // by path
	mappings []*mapping
	last     *mapping // the mapping that was found last
	stale    bool
}

// find returns the mapping that holds pc.
func (s *space) find(pc uint64) *mapping {
	if s.stale {
		s.read()
	}
	if m := s.last; m != nil && pc >= m.low && pc < m.high {
		return m
	}
	for range 2 { // a pc outside of all may be of a new mapping
		for _, m := range s.mappings {
			if pc >= m.low && pc < m.high {
				s.last = m
				return m
			}
		}
		s.read()
	}
	// Code of no known mapping: its instructions are followed, not compared.
	m := &mapping{low: pc &^ (pageSize - 1), high: pc&^(pageSize-1) + pageSize, pages: make([]*page, 1)}
	s.mappings = append(s.mappings, m)
	s.last = m
	return m
}

// read reads the list of mappings again and keeps what is known of those that stayed.
func (s *space) read() {
	s.stale, s.last = false, nil
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", s.pid))
	if err != nil {
		return
	}
	type key struct {
		low, high uint64
		path      string
	}
	known := map[key]*mapping{}
	for _, m := range s.mappings {
		if m.object != nil {
			known[key{m.low, m.high, m.object.path}] = m
		}
	}
	s.mappings = nil
	for line := range strings.Lines(string(text)) {
		var low, high, offset uint64
		var mode, device, inode, path string
		n, _ := fmt.Sscanf(line, "%x-%x %s %x %s %s %s", &low, &high, &mode, &offset, &device, &inode, &path)
		if n < 6 || !strings.Contains(mode, "x") || path == "[vsyscall]" { // vsyscall is code that cannot be read
			continue
		}
		if m := known[key{low, high, path}]; m != nil {
			s.mappings = append(s.mappings, m)
			continue
		}
		m := &mapping{low: low, high: high, pages: make([]*page, (high-low)/pageSize)}
		if path == "[vdso]" || strings.HasPrefix(path, "/") {
			m.object = s.open(path, low, high)
			if m.object != nil {
				m.bias = loadBias(path, low, offset)
			}
		}
		s.mappings = append(s.mappings, m)
	}
}

// open returns the object of a path, nil if it is no ELF file.
func (s *space) open(path string, low, high uint64) *object {
	if o := s.objects[path]; o != nil {
		return o
	}
	o := &object{path: path, chosen: len(s.wanted) == 0, pcs: map[uint64]struct{}{}}
	for _, w := range s.wanted {
		o.chosen = o.chosen || strings.Contains(path, w)
	}
	s.objects[path] = o
	o.tables = make([]answerer, len(s.source.names))
	o.sums = make([]sums, len(s.source.names))
	if !o.chosen {
		return o
	}
	var file *dwarfcfa.File
	var err error
	if path == "[vdso]" {
		image := make([]byte, high-low)
		m := memory{pid: s.pid}
		image = image[:m.read(low, image)]
		file, err = dwarfcfa.NewFile(path, bytes.NewReader(image), int64(len(image)))
	} else { // the file is not on disk
		file, err = dwarfcfa.Open(path)
		o.names = functionNames(path)
	}
	if err == nil {
		o.tables = s.source.make(file)
	}
	return o
}

// functionNames returns the names in a file, or in its debug file, or nil if there are
// none.
func functionNames(path string) *symbols.Table {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	t, err := symbols.FromELF(f, filepath.Dir(path), nil, []string{"/usr/lib/debug"})
	if err != nil {
		return nil
	}
	return t
}

// loadBias returns the difference between the addresses of a mapping and those that its
// segment was linked to.
func loadBias(path string, low, offset uint64) uint64 {
	if path == "[vdso]" {
		return low
	}
	f, err := elf.Open(path)
	if err != nil {
		return low - offset
	}
	defer f.Close()
	for _, p := range f.Progs {
		// two segments may share a page of the file; the mapping is of one with code
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Off&^(pageSize-1) <= offset && offset < p.Off+p.Filesz {
			return low - offset - (p.Vaddr - p.Off)
		}
	}
	return low - offset
}

// place names an address for people: file, function and offset, link-time address.
func (o *object) place(pc uint64) string {
	text := fmt.Sprintf("%s+%#x", filepath.Base(o.path), pc)
	if f := o.names.Find(pc); f != nil {
		text += fmt.Sprintf(" (%s+%#x)", f.Name, pc-f.Start)
	}
	return text
}
