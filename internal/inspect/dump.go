package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ehasm/ehasm/asmgen"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/relocatable"
	"github.com/ehasm/ehasm/internal/analysis/sites"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/output"
)

// This file shows the stages of compiling, one by one, for those who look for where a row went wrong.

// Stages returns the stages in the order of compiling.
func Stages() []string {
	return []string{"entries", "rows", "table", "plan", "asm", "sites", "lines", "types"}
}

// Dump says which stage to show of a file, and which part of it.
type Dump struct {
	Stage string          // one of Stages
	PC    *dwarfcfa.Addr  // only the part for this address; nil: all
	Code  compile.Options // what the stages before the file depend on
	JSON  bool            // one JSON value for each entry, else text
}

// errNoInformation says that --pc names an address outside all tables.
var errNoInformation = errors.New("no unwind information")

// Write shows a stage of the file at path. Each stage needs those before it: the function goes from
// file to machine code and stops at the wanted one.
func (d *Dump) Write(path string, w io.Writer) error {
	r, size, done, err := find.OpenFile(path)
	if err != nil {
		return err
	}
	defer done()
	// These stages read debug information alone, which files without unwind tables have, too.
	switch d.Stage {
	case "lines":
		return d.lines(path, r, size, w)
	case "types":
		return d.types(path, r, size, w)
	}
	// A .o file is read as if it had been linked alone.
	if relocatable.IsRelocatable(r) {
		image, err := relocatable.Link(r, size)
		if err != nil {
			return err
		}
		r, size = bytes.NewReader(image), int64(len(image))
	}
	object, err := dwarfcfa.NewFile(path, r, size)
	if err != nil {
		return err
	}
	if d.Stage == "entries" || d.Stage == "rows" {
		return d.sections(object, w)
	}
	if d.Stage == "sites" {
		return d.sites(object, w)
	}
	// Detached: separate debug files have .debug_frame and no code to check ranges against.
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: d.Code.Source, Detached: true})
	if err != nil {
		return err
	}
	// An address outside the table is an error for all later stages alike.
	if d.PC != nil {
		if _, ok := table.Lookup(*d.PC); !ok {
			return fmt.Errorf("%#x: %w", uint64(*d.PC), errNoInformation)
		}
	}
	if d.Stage == "table" {
		if d.JSON {
			output.JSON(w, table.DescribeRanges(d.PC))
			return nil
		}
		return dwarfcfa.DumpTable(w, table, d.PC)
	}
	// As compile.Layout does it; the packed form that it may prefer for its size is shown on request alone.
	layout, err := plan.Build(table, plan.Options{Dispatch: d.Code.Dispatch, Calls: object.Calls()})
	if err != nil {
		return err
	}
	if d.Stage == "plan" {
		if d.JSON {
			output.JSON(w, layout.Describe(d.PC))
			return nil
		}
		return layout.Dump(w, d.PC)
	}
	code, err := asmgen.Assemble(layout, asmgen.Options{NoDeref: d.Code.NoDeref})
	if err != nil {
		return err
	}
	if d.JSON {
		return output.JSONSeq(w, listing(code, d.PC))
	}
	return writeListing(w, code, d.PC)
}

// sites shows the table of sites as decoded from its encoding. The encoding is what an eh_elf carries, so a mistake in
// it would show.
func (d *Dump) sites(object *dwarfcfa.File, w io.Writer) error {
	decoded, leftOut, err := decodedSites(object, d.Code.Source)
	if decoded == nil {
		return err
	}
	if d.JSON {
		err = output.JSONSeq(w, decoded.Describe(d.PC))
	} else {
		err = decoded.Dump(w, d.PC)
	}
	return errors.Join(append([]error{err}, leftOut...)...)
}

// decodedSites returns an object's table for exceptions as decoded from its encoding, and what it leaves out; nil if
// the object has no tables. leftOut are areas that can't be read, one by one.
func decodedSites(object *dwarfcfa.File, source dwarfcfa.Source) (table *sites.Table, leftOut []error, err error) {
	sections, err := object.Sections(source)
	if len(sections) == 0 {
		return nil, nil, err
	}
	built, report := sites.Build(object, sections)
	b, err := built.Encode()
	if err != nil {
		return nil, nil, err
	}
	if table, err = sites.Decode(b); err != nil {
		return nil, nil, err
	}
	copy(table.Personalities, built.Personalities) // with their names
	return table, report.Details, nil
}

// sections shows the stages before the table. If one of two sections cannot be
// read, it shows the other.
func (d *Dump) sections(object *dwarfcfa.File, w io.Writer) error {
	sections, unread := object.Sections(d.Code.Source)
	// With --pc, a section without an entry for the address is left out.
	if d.PC != nil {
		sections = slices.DeleteFunc(sections, func(s *dwarfcfa.Section) bool {
			for range s.DescribeEntries(d.PC) {
				return false
			}
			return true
		})
		if len(sections) == 0 && unread == nil {
			return fmt.Errorf("%#x: %w", uint64(*d.PC), errNoInformation)
		}
	}
	if len(sections) == 0 {
		return unread
	}
	if d.JSON {
		// One sequence over all sections, since --json prints one array.
		if err := output.JSONSeq(w, func(yield func(dwarfcfa.EntryInfo) bool) {
			for _, s := range sections {
				entries := s.DescribeEntries(d.PC)
				if d.Stage == "rows" {
					entries = s.DescribeRows(d.PC)
				}
				for e := range entries {
					if !yield(e) {
						return
					}
				}
			}
		}); err != nil {
			return err
		}
		return unread
	}
	write := dwarfcfa.DumpEntries
	if d.Stage == "rows" {
		write = dwarfcfa.DumpRows
	}
	for _, s := range sections {
		if err := write(w, s, d.PC); err != nil {
			return err
		}
	}
	return unread
}
