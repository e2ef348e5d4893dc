package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// viewJSON is a row of .debug_line.
type viewJSON struct {
	Address   string `json:"address"`
	View      int    `json:"view"`
	File      string `json:"file,omitempty"`
	Line      int    `json:"line,omitempty"`
	Statement bool   `json:"is_stmt"`
	// Enters are the inlined functions that begin at this view.
	Enters []string `json:"enters,omitempty"`
	End    bool     `json:"end,omitempty"`
}

// dumpViews shows the rows of line number programs.
func dumpViews(path string, r io.ReaderAt, size int64, opt dumpOptions, w io.Writer) error {
	o, err := openLines(path, r, size)
	if err != nil {
		return err
	}
	defer o.Close()
	each := func(yield func(viewJSON) bool) {
		for v := range o.Views() {
			if opt.pc != nil && uint64(*opt.pc) != v.Addr {
				continue
			}
			if !yield(viewJSON{fmt.Sprintf("%#x", v.Addr), v.View, v.File, v.Line, v.Statement, v.Enters, v.End}) {
				return
			}
		}
	}
	if opt.json {
		return errors.Join(writeJSONSeq(w, each), o.Err())
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
