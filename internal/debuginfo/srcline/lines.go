package srcline

import (
	"cmp"
	"debug/dwarf"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
)

// This file makes a unit's table of lines. program.go runs the program; names of files are debug/dwarf's work, which
// knows all versions of the header.

// row is a place in the code at which a source line begins. It ends where the next row begins.
type row struct {
	addr uint64
	file uint32 // noFile: the code ends here
	line uint32
}

// noFile marks the address behind a sequence.
const noFile = ^uint32(0)

// lineTable holds the rows of a unit, by address.
type lineTable struct {
	rows  []row
	files []string // by the number that rows and DW_AT_call_file use
	sums  []string // MD5s, by the same number, as far as they are known
}

// find returns a Frame with the file and line at addr. ok is false behind all code of the unit, and in gaps between
// its sequences. Line 0 is an answer: code of no line.
func (t *lineTable) find(addr uint64) (place Frame, ok bool) {
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].addr > addr })
	if i == 0 || t.rows[i-1].file == noFile {
		return Frame{}, false
	}
	r := t.rows[i-1]
	place = Frame{File: t.file(r.file), Line: int(r.line)}
	if uint64(r.file) < uint64(len(t.sums)) {
		place.MD5 = t.sums[r.file]
	}
	return place, true
}

// file returns the name of a file, "" for an unknown number.
func (t *lineTable) file(n uint32) string {
	if uint64(n) < uint64(len(t.files)) {
		return t.files[n]
	}
	return ""
}

// size estimates the memory that t takes, in bytes.
func (t *lineTable) size() int {
	n := 16 * cap(t.rows)
	for _, f := range t.files {
		n += len(f) + 16
	}
	return n
}

// newReader opens the line number program at an offset of .debug_line, to read its files.
// debug/dwarf needs a unit for that, but uses only its byte order and address size: an
// empty unit avoids reading all of .debug_info and its abbreviations.
func (s *sections) newReader(off uint64, compDir string) (*dwarf.LineReader, error) {
	emptyUnit := []byte{8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 0} // 7.5.1.1, and an empty entry
	const entry = 11                                        // offset of the empty entry: behind the header
	d, err := dwarf.New([]byte{0}, nil, nil, emptyUnit, s.line, nil, nil, s.str)
	if err != nil {
		return nil, err
	}
	if err := d.AddSection(".debug_line_str", s.lineStr); err != nil {
		return nil, err
	}
	return d.LineReader(&dwarf.Entry{Offset: entry, Tag: dwarf.TagCompileUnit, Field: []dwarf.Field{
		{Attr: dwarf.AttrStmtList, Val: int64(off), Class: dwarf.ClassLinePtr},
		{Attr: dwarf.AttrCompDir, Val: compDir, Class: dwarf.ClassString},
	}})
}

// parseLines runs the unit's line number program. After an error, t has the rows found
// before it.
func (u *unit) parseLines(t *lineTable) error {
	top, err := u.top()
	if err != nil || top.stmtList.form == 0 || len(u.sec.line) == 0 {
		return err
	}
	if top.stmtList.u > uint64(len(u.sec.line)) {
		return fmt.Errorf("unit at %#x of .debug_info: its lines are beyond the end of .debug_line", u.off)
	}
	p, err := u.sec.newProgram(top.stmtList.u)
	dir := u.str(top.compDir)
	var r *dwarf.LineReader
	if err == nil {
		r, err = u.sec.newReader(top.stmtList.u, dir)
	}
	if err == nil {
		t.sums = p.sums
		err = t.run(p, u.sec.line)
		t.takeFiles(r, dir, p.definesFiles)
	}
	if err != nil {
		return fmt.Errorf("unit at %#x of .debug_info: lines: %w", u.off, err)
	}
	return nil
}

// takeFiles copies the names of files. The reader leaves names of version 5 relative to
// dir, the folder of the compilation. The program may define more files.
func (t *lineTable) takeFiles(r *dwarf.LineReader, dir string, further bool) {
	// Names that the program defines (DW_LNE_define_file) come only while it runs.
	for e := (dwarf.LineEntry{}); further && r.Next(&e) == nil; {
	}
	for _, f := range r.Files() {
		name := ""
		if f != nil {
			name = f.Name
		}
		if name != "" && dir != "" && !path.IsAbs(name) && !strings.HasPrefix(name, path.Clean(dir)+"/") {
			name = path.Join(dir, name)
		}
		t.files = append(t.files, name)
	}
}

// join concatenates sequences, one for each section of code that the compiler made. Where one begins inside another,
// the other ends: linkers that fold identical functions leave two for the same code.
func (t *lineTable) join(sequences [][]row) {
	slices.SortStableFunc(sequences, func(a, b []row) int { return cmp.Compare(a[0].addr, b[0].addr) })
	if len(sequences) == 1 {
		t.rows = slices.Clip(sequences[0])
		return
	}
	var total int
	for _, s := range sequences {
		total += len(s)
	}
	t.rows = make([]row, 0, total)
	for _, s := range sequences {
		n := len(t.rows) // drop what the earlier sequence has from here on
		for n > 0 && t.rows[n-1].addr >= s[0].addr {
			n--
		}
		t.rows = append(t.rows[:n], s...)
	}
}
