// Package readelfcmp compares what dwarfcfa reads from an object with what
// binutils' readelf, an independent reader, prints for it: the entries with
// their instructions (--debug-dump=frames) and the rows
// (--debug-dump=frames-interp). It serves tests and the sweep over a machine's
// files.
//
// dwarfcfa dumps in readelf's own format, so that the comparison is one of
// lines. The two differ by design in three ways, which Compare takes out:
//
//   - readelf prints a row for every instruction that advances the location,
//     also by zero; of several rows at one location only the last holds for any
//     pc, and only that is kept;
//   - readelf prints rows at or past the end of their FDE, which hold for no pc;
//   - readelf prints columns above 16 (libffi saves xmm6 to xmm15), whose rules
//     dwarfcfa ignores. Their instructions are compared, their cells are not.
package readelfcmp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// maxDifferences bounds Result.Differences.
const maxDifferences = 20

// Result counts what was compared.
type Result struct {
	Sections  []string // sections compared
	Entries   int      // CIEs and FDEs, with their instructions
	Rows      int      // row lines
	Different int      // entries that differ in their instructions or rows

	Differences []string // the first of them, both sides
}

// errNoReadelf is wrapped by the errors of Compare where readelf is not
// installed.
var errNoReadelf = errors.New("no readelf")

// Compare compares all unwind sections of the object at path. An error means
// that the comparison could not be made; differences are in the result.
func Compare(path string) (Result, error) {
	var res Result
	o, err := dwarfcfa.Open(path)
	if err != nil {
		return res, err
	}
	defer o.Close()
	for _, c := range []comparison{
		{o: o, res: &res, flag: "-wNf", dump: dwarfcfa.DumpEntries},
		{o: o, res: &res, flag: "-wNF", dump: dwarfcfa.DumpRows, rows: true},
	} {
		if err := c.run(path); err != nil {
			return res, err
		}
	}
	return res, nil
}

// lookReadelf returns the path of readelf.
func lookReadelf() (string, error) {
	tool, err := exec.LookPath("readelf")
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoReadelf, err)
	}
	return tool, nil
}

// comparison compares the output of one run of readelf with package dwarfcfa's.
type comparison struct {
	o    *dwarfcfa.File
	res  *Result
	flag string                                                   // of readelf
	dump func(io.Writer, *dwarfcfa.Section, *dwarfcfa.Addr) error // package dwarfcfa's output in the same form
	rows bool                                                     // rows, not entries
}

// run starts readelf and compares the sections in its output, in readelf's order.
func (c *comparison) run(path string) (err error) {
	tool, err := lookReadelf()
	if err != nil {
		return err
	}
	cmd := exec.Command(tool, c.flag, "--", path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		io.Copy(io.Discard, out) // readelf must not wait for a reader
		if werr := cmd.Wait(); err == nil && werr != nil {
			err = fmt.Errorf("readelf: %w: %.200s", werr, complaints.String())
		}
	}()
	theirs := newEntryScanner(out)
	for theirs.section() {
		if err := c.section(theirs); err != nil {
			return err
		}
	}
	return theirs.err
}

// section compares one section, at whose heading theirs stands.
func (c *comparison) section(theirs *entryScanner) error {
	var src dwarfcfa.Source
	switch theirs.name {
	case ".eh_frame":
		src = dwarfcfa.SourceEHFrame
	case ".debug_frame", ".zdebug_frame":
		src = dwarfcfa.SourceDebugFrame
	default:
		return fmt.Errorf("readelf shows section %s", theirs.name)
	}
	s, err := c.o.Section(src)
	if err != nil {
		return err
	}
	if !c.rows {
		c.res.Sections = append(c.res.Sections, s.Name)
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(c.dump(w, s, nil)) }() // writes while the lines are compared
	ours := newEntryScanner(r)
	ours.section()
	for {
		a, b := ours.next(), theirs.next()
		if a == nil && b == nil {
			return errors.Join(ours.err, theirs.err)
		}
		c.entry(a, b)
	}
}

// entry compares the lines of one entry; nil is an entry that is missing.
func (c *comparison) entry(ours, theirs []string) {
	if c.rows {
		theirs = effective(theirs)
		c.res.Rows += max(0, len(ours)-2)
	} else {
		c.res.Entries++
	}
	if equal(ours, theirs) {
		return
	}
	c.res.Different++
	if len(c.res.Differences) < maxDifferences {
		c.res.Differences = append(c.res.Differences, difference(ours, theirs))
	}
}

// equal reports whether two entries have the same lines.
func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// difference describes two unequal entries by their first unequal line.
func difference(ours, theirs []string) string {
	line := func(lines []string, i int) string {
		if i < len(lines) {
			return strings.TrimRight(lines[i], " ")
		}
		return "(none)"
	}
	i := 0
	for i < len(ours) && i < len(theirs) && ours[i] == theirs[i] {
		i++
	}
	head := line(theirs, 0)
	if len(theirs) == 0 {
		head = line(ours, 0)
	}
	return fmt.Sprintf("%s: ours %q, readelf's %q", head, line(ours, i), line(theirs, i))
}

// effective leaves out the rows of readelf's that hold for no pc, and columns
// above the return address.
func effective(lines []string) []string {
	const locDigits = 16
	if len(lines) < 3 { // without rows
		return lines
	}
	end := ""
	if _, pcs, ok := strings.Cut(lines[0], " FDE cie="); ok {
		_, end, _ = strings.Cut(pcs, "..")
	}
	columns := 0
	if names, above, ok := strings.Cut(lines[1], " ra    "); ok && above != "" {
		columns = len(strings.Fields(names)) // LOC is in it, ra is not
		lines[1] = strings.TrimSuffix(lines[1], above)
	}
	kept := lines[:2]
	for i, line := range lines[2:] {
		if len(line) >= locDigits {
			loc := line[:locDigits]
			if i+3 < len(lines) && strings.HasPrefix(lines[i+3], loc) || end != "" && loc >= end {
				continue
			}
		}
		if columns > 0 {
			line = cutCells(line, columns)
		}
		kept = append(kept, line)
	}
	return kept
}

// cutCells cuts a row after its location and n cells more. A cell is a word
// with the words in parentheses after it, such as "r9 (r9)", and one space or
// more up to its width.
func cutCells(line string, n int) string {
	seen := -1
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' || line[i] == '(' || i > 0 && line[i-1] != ' ' {
			continue
		}
		if seen++; seen == n+1 {
			return line[:i]
		}
	}
	return line
}

// entryScanner reads a dump entry by entry.
type entryScanner struct {
	in    *bufio.Scanner
	name  string // of the section
	line  string // read and not used; the heading of a section or of an entry
	have  bool
	lines []string // of the entry last returned
	err   error
}

// newEntryScanner returns a scanner of a dump, whose lines may be long.
func newEntryScanner(r io.Reader) *entryScanner {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 1<<16), 1<<24)
	return &entryScanner{in: in}
}

// advance reads the next line that is not empty.
func (e *entryScanner) advance() bool {
	for e.in.Scan() {
		if e.line = e.in.Text(); e.line != "" {
			e.have = true
			return true
		}
	}
	e.have = false
	if e.err == nil {
		e.err = e.in.Err()
	}
	return false
}

// heading begins the first line of a section.
const heading = "Contents of the "

// section goes on to the next heading of a section.
func (e *entryScanner) section() bool {
	for e.have || e.advance() {
		if rest, ok := strings.CutPrefix(e.line, heading); ok {
			e.name, _, _ = strings.Cut(rest, " ")
			e.have = false
			return true
		}
		e.have = false
	}
	return false
}

// isHead reports whether a line is the first of an entry: it begins with the
// offset in 8 digits, rows with a location in 16, instructions with spaces.
func isHead(line string) bool {
	return strings.IndexByte(line, ' ') == 8
}

// next returns the lines of the next entry of the section, nil at its end. They
// are valid until the next call.
func (e *entryScanner) next() []string {
	for {
		if !e.have && !e.advance() {
			return nil
		}
		if strings.HasPrefix(e.line, heading) {
			return nil
		}
		if isHead(e.line) {
			break
		}
		e.have = false
	}
	e.lines = append(e.lines[:0], e.line)
	for e.advance() {
		if isHead(e.line) || strings.HasPrefix(e.line, heading) {
			break
		}
		e.lines = append(e.lines, e.line)
	}
	return e.lines
}
