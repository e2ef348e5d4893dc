package srcline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// dwoFiles finds the .dwo files that hold the functions of units in split DWARF
// (DWARF 5, 7.3.2, and GNU's extension of version 4).
type dwoFiles struct {
	dir       string        // of the object: moved .dwo files are often beside it
	skeletons map[*unit]top // root entries of the skeleton units; not changed afterwards

	mu    sync.Mutex // of units
	units map[*unit]*dwoUnit
}

// dwoUnit is the unit for one skeleton, opened once; unit is nil with err.
type dwoUnit struct {
	once sync.Once
	unit *unit
	err  error
}

// unit returns the unit in a .dwo file for the skeleton u, and how many bytes were read;
// nil if u is not a skeleton.
func (d *dwoFiles) unit(u *unit) (in *unit, size int, err error) {
	t, ok := d.skeletons[u]
	if !ok {
		return nil, 0, nil
	}
	// The lock is not held while a file is read; other units go on.
	d.mu.Lock()
	e := d.units[u]
	if e == nil {
		e = &dwoUnit{}
		d.units[u] = e
	}
	d.mu.Unlock()
	// Callers of the same unit wait for one reading.
	e.once.Do(func() {
		e.unit, e.err = d.open(u, t)
		if e.unit != nil {
			// Only the caller that opened it counts the size.
			size = len(e.unit.sec.info) + len(e.unit.sec.str)
		}
	})
	return e.unit, size, e.err
}

// forget drops what was opened; it is read again on demand.
func (d *dwoFiles) forget() {
	d.mu.Lock()
	d.units = make(map[*unit]*dwoUnit)
	d.mu.Unlock()
}

// open opens the .dwo of a skeleton unit: in the folder of the compilation, or beside the object.
func (d *dwoFiles) open(u *unit, t top) (*unit, error) {
	name := u.str(t.dwoName)
	// The path is relative to the folder of the compilation; files are often moved beside the
	// object.
	paths := []string{name}
	if !filepath.IsAbs(name) {
		paths = []string{filepath.Join(u.str(t.compDir), name), filepath.Join(d.dir, name)}
	}
	// At last by the file name alone, beside the object.
	paths = append(paths, filepath.Join(d.dir, filepath.Base(name)))
	for _, p := range paths {
		in, err := openDwo(p, u, t)
		// The next place may have it; other errors concern a file that is there.
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		return in, nil
	}
	return nil, fmt.Errorf("split debug information: %s not found, .dwp files are not read: no inlined functions of its unit", name)
}

// openDwo reads the .dwo at path and returns the unit that belongs to the skeleton.
func openDwo(path string, skeleton *unit, t top) (*unit, error) {
	file, f, err := openELF(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// A reader that is no *os.File is read, not mapped: there may be thousands.
	s, err := loadSections(f, io.NewSectionReader(file, 0, 1<<62), ".dwo")
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, ErrNone
	}
	if err := s.parseUnits(toEnd); err != nil {
		return nil, err
	}
	// Types of DWARF 4 lie in their own section, .debug_types.dwo.
	s.mu.Lock()
	s.parseTypes()
	s.mu.Unlock()
	for _, u := range s.index.units {
		// The root entries say which unit the skeleton means: a .dwo may hold several.
		own, err := u.top()
		if err != nil {
			return nil, err
		}
		if own.dwoID != t.dwoID {
			continue
		}
		// The .dwo has indices of addresses; the addresses themselves are in the object, as are
		// range lists of version 4.
		u.root.low, u.root.addr, u.root.addrBase = skeleton.root.low, skeleton.root.addr, skeleton.root.addrBase
		// opened is done here, so that ready does not overwrite what is set.
		u.opened.Do(func() {})
		u.root.language = own.language
		// Type units share the tables of the file.
		for _, k := range s.index.typeAt {
			k.unit.opened.Do(func() {})
			k.unit.root.language, k.unit.root.strOffsetsBase = own.language, splitStrOffsets(k.unit)
		}
		u.root.ranges, u.root.rangesBase = skeleton.root.ranges, t.rangesBase
		if u.version >= 5 { // the tables' headers are skipped: DWARF 5, 7.26 and 7.28
			u.root.strOffsetsBase, u.root.rnglistsBase = splitStrOffsets(u), 12 // bytes; 20 in 64-bit DWARF
			if u.wide {
				u.root.rnglistsBase = 20
			}
		}
		return u, nil
	}
	return nil, fmt.Errorf("no unit with the id %#x", t.dwoID)
}

// splitStrOffsets returns where the offsets begin in .debug_str_offsets.dwo: behind a header that version 5 has
// brought (DWARF 5, 7.26), since a .dwo has no DW_AT_str_offsets_base.
func splitStrOffsets(u *unit) uint64 {
	switch {
	case u.version < 5:
		return 0
	case u.wide:
		return 16
	}
	return 8
}
