package inspect

import (
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/jsonout"
)

// View is a row of .debug_line. Several rows may have one address: views number them (DWARF 5 has
// no such number; binutils and GCC count alike).
type View struct {
	// Link-time, hexadecimal; and the number of the row among those of the address, from 0.
	Address   string `json:"address"`
	View      int    `json:"view"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Statement bool   `json:"is_stmt"` // is_stmt of the line number program: a good place for a breakpoint
	// Enters are the inlined functions that begin at this view.
	Enters []string `json:"enters,omitempty"`
	// The row is the end of a sequence: its address is the first one past the code.
	End bool `json:"end,omitempty"`
}

// views shows the rows of line number programs.
func (d *Dump) views(path string, r io.ReaderAt, size int64, w io.Writer) error {
	o, err := openLines(path, r, size)
	if err != nil {
		return err
	}
	defer o.Close()
	each := func(yield func(View) bool) {
		for v := range o.Views() {
			if d.PC != nil && uint64(*d.PC) != v.Addr {
				continue
			}
			if !yield(View{fmt.Sprintf("%#x", v.Addr), v.View, v.File, v.Line, v.Statement, v.Enters, v.End}) {
				return
			}
		}
	}
	if d.JSON {
		return errors.Join(jsonout.WriteSeq(w, each), o.Err())
	}
	for v := range each {
		place, mark := fmt.Sprintf("%s:%d", dwarfcfa.PrintableName(v.File), v.Line), ""
		if v.End {
			place = "end"
		}
		if v.Statement {
			mark = " is_stmt"
		}
		for _, name := range v.Enters {
			mark += " enters " + dwarfcfa.PrintableName(name)
		}
		if _, err = fmt.Fprintf(w, "%s view %d %s%s\n", v.Address, v.View, place, mark); err != nil {
			break
		}
	}
	return errors.Join(err, o.Err())
}
