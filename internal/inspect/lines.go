package inspect

import (
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/debuginfo/srcline"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/unwind"
)

// Line is a range of code that belongs to one line.
type Line struct {
	// Link-time addresses in hexadecimal, End exclusive: JSON's numbers lose bits above 2^53.
	Start string `json:"start"`
	End   string `json:"end"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

// openLines reads an object's debug information. For a damaged file it returns the error of
// the other stages, unless the file is a relocatable object, which these refuse.
func openLines(path string, r io.ReaderAt, size int64) (*srcline.Info, error) {
	o, err := srcline.Open(r, srcline.Options{Path: path, DebugDirs: unwind.DefaultDebugDirs()})
	if err == nil || errors.Is(err, srcline.ErrNone) {
		return o, err
	}
	if _, bad := dwarfcfa.NewFile(path, r, size); bad != nil && !errors.Is(bad, dwarfcfa.ErrNotLoadable) {
		return nil, bad
	}
	return nil, err
}

// lines shows the lines of an object's code.
func (d *Dump) lines(path string, r io.ReaderAt, size int64, w io.Writer) error {
	o, err := openLines(path, r, size)
	if err != nil {
		return err
	}
	defer o.Close()
	// d.PC filters; a pc without a line is an error at the end.
	shown := 0 // lines written so far
	each := func(yield func(Line) bool) {
		for l := range o.Lines() {
			if d.PC != nil && (uint64(*d.PC) < l.Start || uint64(*d.PC) >= l.End) {
				continue
			}
			shown++
			if !yield(Line{fmt.Sprintf("%#x", l.Start), fmt.Sprintf("%#x", l.End), l.File, l.Line}) {
				return
			}
		}
	}
	if d.JSON {
		err = output.JSONSeq(w, each)
	} else {
		for l := range each {
			if _, err = fmt.Fprintf(w, "%s..%s %s:%d\n", l.Start, l.End, dwarfcfa.PrintableName(l.File), l.Line); err != nil {
				break
			}
		}
	}
	if d.PC != nil && shown == 0 && err == nil {
		err = fmt.Errorf("%#x: no line is known", uint64(*d.PC))
	}
	return errors.Join(err, o.Err())
}
