package srcline

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strings"
)

// row is where a line's code begins.
type row struct {
	addr uint64
	file uint32 // noFile: the code ends here
	line uint32
}

const noFile = ^uint32(0)

// lineTable is the rows of a unit, by address.
type lineTable struct {
	rows  []row
	files []string // by the number that rows and call files have
}

// find returns the file and line at addr.
func (t *lineTable) find(addr uint64) (file string, line int, ok bool) {
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].addr > addr })
	if i == 0 || t.rows[i-1].file == noFile {
		return "", 0, false
	}
	r := t.rows[i-1]
	return t.file(r.file), int(r.line), true
}

func (t *lineTable) file(n uint32) string {
	if uint64(n) < uint64(len(t.files)) {
		return t.files[n]
	}
	return ""
}

// size is about the memory that t takes.
func (t *lineTable) size() int {
	n := 16 * cap(t.rows)
	for _, f := range t.files {
		n += len(f) + 16
	}
	return n
}

// newProgram opens the line number program at an offset of .debug_line. The
// reader of debug/dwarf wants a unit, of which it uses the byte order and the
// size of addresses: one without entries will do, so that it does not read the
// whole of .debug_info and its abbreviations.
func (s *sections) newProgram(off uint64, compDir string) (*dwarf.LineReader, error) {
	emptyUnit := []byte{8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 0} // 7.5.1.1, and an empty entry
	const entry = 11
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

// checkProgram looks at what the reader of debug/dwarf trusts: the numbers of
// folders and files in a header of version 5 (DWARF 5, 6.2.4), for which it takes
// memory at once.
func (s *sections) checkProgram(off uint64) error {
	const lengths = 12 // of the 64-bit format
	s.packed.line.upTo(off + lengths)
	c := cursor{b: s.line, off: off}
	n, wide := c.initialLength()
	if c.bad || n > uint64(len(s.line))-c.off {
		return fmt.Errorf("length %#x goes beyond the end", n)
	}
	s.packed.line.upTo(c.off + n)
	c.b = c.b[:c.off+n]
	version := c.u16()
	if version != 5 {
		return nil
	}
	c.skip(2) // address and segment selector sizes
	c.offset(wide)
	c.skip(5) // up to line_range
	if opcodes := c.u8(); opcodes > 0 {
		c.skip(uint64(opcodes) - 1)
	}
	for range 2 { // folders, files
		forms := make([]uint16, c.u8())
		for i := range forms {
			c.uleb()
			forms[i] = uint16(c.uleb())
		}
		count := c.uleb()
		if c.bad || count > uint64(len(c.b))-c.off {
			return fmt.Errorf("header names %d files", count)
		}
		for range count {
			for _, form := range forms {
				read(&c, attr{form: form}, format{wide, version})
			}
		}
	}
	if c.bad {
		return fmt.Errorf("header goes beyond the end")
	}
	return nil
}

// parseLines runs the unit's line number program. What was found before an error
// is in t.
func (u *unit) parseLines(t *lineTable) error {
	top, err := u.top()
	if err != nil || top.stmtList.form == 0 || len(u.sec.line) == 0 {
		return err
	}
	if top.stmtList.u > uint64(len(u.sec.line)) {
		return fmt.Errorf("unit at %#x of .debug_info: its lines are beyond the end of .debug_line", u.off)
	}
	if err := u.sec.checkProgram(top.stmtList.u); err != nil {
		return fmt.Errorf("unit at %#x of .debug_info: lines: %w", u.off, err)
	}
	dir := u.str(top.compDir)
	r, err := u.sec.newProgram(top.stmtList.u, dir)
	if err == nil {
		err = t.run(r, dir)
	}
	if err != nil {
		return fmt.Errorf("unit at %#x of .debug_info: lines: %w", u.off, err)
	}
	return nil
}

// run collects the rows. The reader's files may grow with the program; those of
// version 5 it leaves relative to dir, the folder of the compilation.
func (t *lineTable) run(r *dwarf.LineReader, dir string) error {
	numbers := make(map[*dwarf.LineFile]uint32)
	number := func(f *dwarf.LineFile) uint32 {
		if f == nil {
			return noFile - 1 // unknown, but there is code
		}
		n, ok := numbers[f]
		if !ok {
			files := r.Files()
			n = noFile - 1
			if i := slices.Index(files, f); i >= 0 {
				n = uint32(i)
			}
			numbers[f] = n
		}
		return n
	}
	var sequences [][]row
	var seq []row
	var err error
	for {
		var e dwarf.LineEntry
		if err = r.Next(&e); err != nil {
			break
		}
		n := len(seq)
		if e.EndSequence {
			if n > 0 && (span{seq[0].addr, e.Address}).live() {
				sequences = append(sequences, append(seq, row{e.Address, noFile, 0}))
			}
			seq = nil
			continue
		}
		if n > 0 && e.Address < seq[n-1].addr {
			continue // goes back, which no compiler does
		}
		x := row{e.Address, number(e.File), uint32(e.Line)}
		if n > 0 && seq[n-1].addr == x.addr {
			seq[n-1] = x // the later one covers instructions
			n--
			seq = seq[:n]
		}
		if n > 0 && seq[n-1].file == x.file && seq[n-1].line == x.line {
			continue
		}
		seq = append(seq, x)
	}
	t.join(sequences)
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
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// join puts sequences together. Where one begins in another, the latter ends.
func (t *lineTable) join(sequences [][]row) {
	slices.SortStableFunc(sequences, func(a, b []row) int { return cmp.Compare(a[0].addr, b[0].addr) })
	var total int
	for _, s := range sequences {
		total += len(s)
	}
	t.rows = make([]row, 0, total)
	for _, s := range sequences {
		n := len(t.rows)
		for n > 0 && t.rows[n-1].addr >= s[0].addr {
			n--
		}
		t.rows = append(t.rows[:n], s...)
	}
}
