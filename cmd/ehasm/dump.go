package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/find"

	"github.com/spf13/pflag"
)

const dumpHelp = `Show a stage of compiling an ELF file's unwind tables to machine code.

Usage:
  ehasm dump --stage=STAGE [flags] FILE

Stages:
  entries  CIEs and FDEs with their instructions, as readelf -wf prints them
  rows     the rows of each FDE before any normalising, as readelf -wF prints them,
           without rows that end where they start
  table    the normalised table of the object: pc ranges, each with its row
  plan     pages, compare trees and row blocks
  asm      the machine code
  sites    what an unwinder does with a frame during an exception, by call, from
           .gcc_except_table
  lines    files and lines of code, from the debug information, unit by unit: what
           script --lines reads. Not a stage of compiling
  views    all rows of .debug_line, with the numbers of views and is_stmt, and the inlined
           functions that begin there
  types    prototypes of functions, from DWARF, .ctf and .BTF sections, or from raw BTF: what
           script --signatures reads
`

const dumpMore = `Examples:
  ehasm dump --stage=rows /bin/ls
  diff <(ehasm dump --stage=rows /bin/ls) <(readelf -wF /bin/ls)
  ehasm dump --stage=table --pc 0x4010 libfoo.so
  ehasm dump --stage=asm --pc 0x4010 libfoo.so
  ehasm dump --stage=entries --json libfoo.so
  ehasm dump --stage=types /sys/kernel/btf/vmlinux
`

// stages returns the stages in the order of compiling.
func stages() []string {
	return []string{"entries", "rows", "table", "plan", "asm", "sites", "lines", "views", "types"}
}

// dumpOptions holds the flags of dump.
type dumpOptions struct {
	stage string
	pc    *dwarfcfa.Addr
	code  compile.Options // what the stages before the file depend on
	json  bool
}

func dumpVerb() verb {
	v := verb{name: "dump", brief: "show a stage of compiling: entries, rows, table, plan, asm", help: dumpHelp, more: dumpMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		stage := fs.String("stage", "rows", "show `STAGE`: "+strings.Join(stages(), ", "))
		pc := fs.String("pc", "", "show only the part for link-time address `ADDR`, such as 0x4010")
		tables := declareTables(fs)
		noDeref := fs.Bool("no-deref", false, "stage asm: _eh_elf without deref argument")
		asJSON := fs.Bool("json", false, "print JSON")
		return func(_ context.Context, paths []string, c *console) int {
			opt := dumpOptions{stage: *stage, code: compile.Options{NoDeref: *noDeref}, json: *asJSON}
			if len(paths) != 1 {
				return v.misuse(c, fmt.Errorf("want one file, got %d", len(paths)))
			}
			if !slices.Contains(stages(), opt.stage) {
				return v.misuse(c, fmt.Errorf("--stage: unknown stage %q: want %s", opt.stage, strings.Join(stages(), ", ")))
			}
			if err := tables(&opt.code); err != nil {
				return v.misuse(c, err)
			}
			if fs.Changed("pc") {
				n, err := strconv.ParseUint(*pc, 0, 64)
				if err != nil {
					return v.misuse(c, fmt.Errorf("--pc: %q is not an address such as 0x4010", *pc))
				}
				addr := dwarfcfa.Addr(n)
				opt.pc = &addr
			}
			if err := dump(paths[0], opt, c.out); err != nil && c.out.Flush() == nil { // otherwise run reports it
				c.fail(paths[0], err)
			}
			return exitDone
		}
	}
	return v
}

// errNoInformation says that --pc names an address outside all tables.
var errNoInformation = errors.New("no unwind information")

func dump(path string, opt dumpOptions, w io.Writer) error {
	r, size, done, err := find.OpenFile(path)
	if err != nil {
		return err
	}
	defer done()
	switch opt.stage {
	case "lines":
		return dumpLines(path, r, size, opt, w)
	case "views":
		return dumpViews(path, r, size, opt, w)
	case "types":
		return dumpTypes(path, r, size, opt, w)
	}
	object, err := dwarfcfa.NewObject(path, r, size)
	if err != nil {
		return err
	}
	if opt.stage == "entries" || opt.stage == "rows" {
		return dumpSections(object, opt, w)
	}
	if opt.stage == "sites" {
		return dumpSites(object, opt, w)
	}
	table, _, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: opt.code.Source})
	if err != nil {
		return err
	}
	if opt.pc != nil {
		if _, ok := table.Lookup(*opt.pc); !ok {
			return fmt.Errorf("%#x: %w", uint64(*opt.pc), errNoInformation)
		}
	}
	if opt.stage == "table" {
		if opt.json {
			writeJSON(w, table.DescribeRanges(opt.pc))
			return nil
		}
		return dwarfcfa.DumpTable(w, table, opt.pc)
	}
	layout, err := compile.Plan(table, opt.code)
	if err != nil {
		return err
	}
	if opt.stage == "plan" {
		if opt.json {
			writeJSON(w, layout.Describe(opt.pc))
			return nil
		}
		return layout.Dump(w, opt.pc)
	}
	code, err := compile.Code(layout, opt.code)
	if err != nil {
		return err
	}
	if opt.json {
		return writeJSONSeq(w, code.All(opt.pc))
	}
	return code.Listing(w, opt.pc)
}

// dumpSites shows the table of sites as decoded from its encoding.
func dumpSites(object *dwarfcfa.Object, opt dumpOptions, w io.Writer) error {
	decoded, leftOut, err := compile.Sites(object, opt.code)
	if decoded == nil {
		return err
	}
	if opt.json {
		err = writeJSONSeq(w, decoded.Describe(opt.pc))
	} else {
		err = decoded.Dump(w, opt.pc)
	}
	return errors.Join(append([]error{err}, leftOut...)...)
}

// dumpSections shows the stages before the table. If one of two sections cannot be
// read, it shows the other.
func dumpSections(object *dwarfcfa.Object, opt dumpOptions, w io.Writer) error {
	sections, unread := object.Sections(opt.code.Source)
	if opt.pc != nil {
		sections = slices.DeleteFunc(sections, func(s *dwarfcfa.Section) bool {
			for range s.DescribeEntries(opt.pc) {
				return false
			}
			return true
		})
		if len(sections) == 0 && unread == nil {
			return fmt.Errorf("%#x: %w", uint64(*opt.pc), errNoInformation)
		}
	}
	if len(sections) == 0 {
		return unread
	}
	if opt.json {
		if err := writeJSONSeq(w, func(yield func(dwarfcfa.EntryInfo) bool) {
			for _, s := range sections {
				entries := s.DescribeEntries(opt.pc)
				if opt.stage == "rows" {
					entries = s.DescribeRows(opt.pc)
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
	if opt.stage == "rows" {
		write = dwarfcfa.DumpRows
	}
	for _, s := range sections {
		if err := write(w, s, opt.pc); err != nil {
			return err
		}
	}
	return unread
}

// writeJSONSeq writes an array with an element per line, without holding all
// elements in memory.
func writeJSONSeq[T any](w io.Writer, seq iter.Seq[T]) error {
	before := "[\n  "
	for v := range seq {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s", before, b); err != nil {
			return err
		}
		before = ",\n  "
	}
	if before == "[\n  " {
		_, err := io.WriteString(w, "[]\n")
		return err
	}
	_, err := io.WriteString(w, "\n]\n")
	return err
}
