package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
)

// This file is what ehasm synth shows and writes of rows that are made from code.

// Made holds rows and the file that they belong to.
type Made struct {
	Rows        *synth.Result
	path        string // of the file
	relocatable bool   // the rows are of the linked image, not of the file
}

// MakeRows makes rows from the code of a file, which may be a relocatable object. opt.Wrong is set here.
func MakeRows(path string, opt synth.Options) (*Made, error) {
	f, size, done, err := find.OpenFile(path)
	if err != nil {
		return nil, output.BareError(err)
	}
	defer done()
	m := &Made{path: path}
	var from io.ReaderAt = f
	if relocatable.IsRelocatable(f) {
		image, err := relocatable.Link(f, size)
		if err != nil {
			return nil, err
		}
		from, size = bytes.NewReader(image), int64(len(image))
		m.relocatable = true
	}
	// The image or the file: both are read as a linked object.
	object, err := dwarfcfa.NewFile(path, from, size)
	if err != nil {
		return nil, err
	}
	opt.Wrong = check.WrongRows
	m.Rows, err = synth.Of(object, opt)
	return m, err
}

// A debug file names an executable or library by its sections; a .o file has none yet.
var errRelocatable = errors.New("no debug file for a relocatable object; see --cfi")

// DebugFile returns a separate debug file with the rows as .debug_frame. gdb finds it by build-id or .gnu_debuglink,
// and takes its .debug_frame where the program has no FDE.
func (m *Made) DebugFile() ([]byte, error) {
	if m.relocatable {
		return nil, errRelocatable
	}
	f, _, done, err := find.OpenFile(m.path)
	if err != nil {
		return nil, err
	}
	defer done()
	image, err := synth.DebugFile(f, synth.Section(m.Rows.Functions))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", output.Name(m.path), err)
	}
	return image, nil
}

// FunctionsNamed returns the functions of a name, or the one that holds an address. A name that
// parses as a number is compared with names as well.
func FunctionsNamed(list []synth.Function, name string) (out []synth.Function) {
	addr, err := strconv.ParseUint(name, 0, 64)
	for i := range list {
		f := &list[i]
		if f.Name == name || err == nil && dwarfcfa.Addr(addr) >= f.Start() && dwarfcfa.Addr(addr) < f.End() {
			out = append(out, *f)
		}
	}
	return out
}

// Rows is the result of synth as --json prints it.
type Rows struct {
	File      string         `json:"file"`
	Wanted    uint64         `json:"wanted_bytes"`   // of code without rows, or of all code
	Answered  uint64         `json:"answered_bytes"` // of them have a row now
	Functions int            `json:"functions"`
	Rows      int            `json:"rows"`
	Declined  map[string]int `json:"declined_instructions"` // by reason
	List      []rowsFunction `json:"list,omitempty"`
}

// rowsFunction is a function of Rows.
type rowsFunction struct {
	Name  string `json:"name,omitempty"` // "" for a function without a symbol
	Start string `json:"start"`
	End   string `json:"end"`
	Rows  int    `json:"rows"` // ranges of addresses with one row each
}

// NewRows returns the result of synth for a file. With list it contains each of the functions.
func NewRows(path string, r *synth.Result, functions []synth.Function, list bool) Rows {
	j := Rows{
		File: path, Wanted: r.Wanted, Answered: r.Answered, Functions: len(r.Functions), Rows: r.Rows(),
		// The same numbers as PrintRows; keys are part of the JSON and stay.
		Declined: map[string]int{"guessed": r.Declined.Guessed, "no CFA": r.Declined.NoCFA,
			"return address popped": r.Declined.Popped, "no psABI": r.Declined.Foreign},
	}
	if list {
		for i := range functions {
			f := &functions[i]
			j.List = append(j.List, rowsFunction{
				f.Name, fmt.Sprintf("%#x", uint64(f.Start())), fmt.Sprintf("%#x", uint64(f.End())), len(f.Ranges),
			})
		}
	}
	return j
}

// PrintRows prints a summary.
func PrintRows(w io.Writer, path string, r *synth.Result) {
	name := output.Name(filepath.Base(path))
	if r.Wanted == 0 {
		fmt.Fprintf(w, "%s: all code has rows\n", name)
		return
	}
	fmt.Fprintf(w, "%s: %d rows in %d functions made, for %d of %d bytes (%.1f %%)\n",
		name, r.Rows(), len(r.Functions), r.Answered, r.Wanted, 100*float64(r.Answered)/float64(r.Wanted))
	for _, d := range []struct {
		n    int
		text string
	}{
		{r.Declined.NoCFA, "where paths do not agree on the CFA, or it is in no place that a row can name"},
		{r.Declined.Guessed, "whose state depends on a choice that the code does not prove"},
		{r.Declined.Popped, "whose return address is no longer in its place on the stack"},
		{r.Declined.Foreign, "of V8's builtins or of a return from a signal handler, which keep to no psABI"},
	} {
		if d.n > 0 {
			fmt.Fprintf(w, "  no row for %d instructions %s\n", d.n, d.text)
		}
	}
}

// PrintFunctions writes a line per function.
func PrintFunctions(w io.Writer, list []synth.Function) {
	var b strings.Builder
	for i := range list {
		f := &list[i]
		fmt.Fprintf(&b, "%#x..%#x  %d rows  %s\n", uint64(f.Start()), uint64(f.End()), len(f.Ranges), output.Name(f.Name))
	}
	io.WriteString(w, b.String())
}
