package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/jsonout"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/sframe"

	"github.com/spf13/pflag"
)

const convertHelp = `Write the unwind tables of an ELF file in another format: as the contents of a .sframe
section, for a kernel or C library that reads them; or as a symbol file of Breakpad with
STACK CFI records, for services that read minidumps.

Usage:
  ehasm convert [flags] FILE -o OUTPUT
`

const convertMore = `SFrame says where the caller's rsp, return address and rbp are. Rows that a version cannot
express are left out and counted. In version 2 the CFA is on rsp or rbp; version 3 also has
signal frames and other registers. No version has an end of stack by an expression, or a
lost rbp. Version 1, which binutils 2.40 reads, has no end of stack.

In versions 1 and 2 function starts are relative to the section: --address gives its
link-time address, which is 0 after 'objcopy --add-section'. In version 3 they are relative
to the function's own entry, as the Linux kernel expects.

With --to=breakpad, registers without a rule keep their values, and the module has the
file's build-id. convert leaves out ends of stacks, lost registers, and expressions with
other operations than + and -, such as those of procedure linkage tables.

Examples:
  ehasm convert --to=breakpad libfoo.so -o libfoo.so.sym
  ehasm convert --to=sframe libfoo.so -o libfoo.sframe
  ehasm convert --to=sframe --sframe-version=3 --address=0x5000 libfoo.so -o libfoo.sframe
  objcopy --add-section .sframe=libfoo.sframe libfoo.so with.so
`

// convertOptions holds the flags of convert.
type convertOptions struct {
	to      string // sframe or breakpad
	output  string
	version uint8
	address uint64
	source  dwarfcfa.Source
	json    bool
}

func convertVerb() verb {
	v := verb{name: "convert", brief: "write unwind tables as a .sframe section, or for Breakpad", help: convertHelp, more: convertMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &convertOptions{}
		fs.StringVar(&opt.to, "to", "sframe", "write `FORMAT`: sframe or breakpad")
		fs.StringVarP(&opt.output, "output", "o", "", "write `FILE`; -: standard output, and the report to standard error")
		fs.Uint8Var(&opt.version, "sframe-version", 2, "version `N` of SFrame: 1, 2 or 3")
		address := fs.String("address", "0", "link-time address `ADDR` of the section")
		source := fs.String("source", "auto", "read `SECTION`: eh_frame, debug_frame, sframe, or auto: first two, else sframe")
		fs.BoolVar(&opt.json, "json", false, "print the result as JSON")
		return func(_ context.Context, paths []string, c *console) int {
			var err error
			if opt.address, err = strconv.ParseUint(*address, 0, 64); err != nil {
				return v.misuse(c, fmt.Errorf("--address: %q is not an address such as 0x4010", *address))
			}
			if opt.source, err = dwarfcfa.ParseSource(*source); err != nil {
				return v.misuse(c, fmt.Errorf("--source: %w", err))
			}
			switch {
			case opt.to != "sframe" && opt.to != "breakpad":
				return v.misuse(c, fmt.Errorf("--to: unknown format %q: want sframe or breakpad", opt.to))
			case opt.version < 1 || opt.version > 3:
				return v.misuse(c, fmt.Errorf("--sframe-version %d: want 1, 2 or 3", opt.version))
			case len(paths) != 1:
				return v.misuse(c, fmt.Errorf("want one file, got %d", len(paths)))
			case opt.output == "":
				return v.misuse(c, errors.New("-o FILE is missing"))
			}
			out := binaryOutput{opt.output, c}
			if err := out.check(paths); err != nil {
				return v.misuse(c, err)
			}
			r, err := convert(paths[0], out, opt)
			if err != nil {
				c.fail(paths[0], err)
				return exitFailed
			}
			if opt.json {
				jsonout.Write(out.report(), r)
			} else {
				r.print(out.report())
			}
			return exitDone
		}
	}
	return v
}

// converted is the result of convert.
type converted struct {
	Object    string            `json:"object"`
	Output    string            `json:"output"`
	Format    string            `json:"format"`
	Version   uint8             `json:"version,omitempty"` // of SFrame
	Functions int               `json:"functions,omitempty"`
	Rows      int               `json:"rows"`
	Size      int               `json:"size"`
	TableSize int64             `json:"table_size"` // of what was read
	Bytes     uint64            `json:"bytes_of_code"`
	Left      map[string]uint64 `json:"left_out"`
}

func (r *converted) print(w io.Writer) {
	what := fmt.Sprintf("SFrame version %d, %d functions", r.Version, r.Functions)
	if r.Format == "breakpad" {
		what = "Breakpad"
	}
	fmt.Fprintf(w, "%s: %s, %d rows, %d bytes for %d of %s\n", r.Output, what, r.Rows, r.Size, r.TableSize, shown.Name(r.Object))
	for _, reason := range slices.Sorted(maps.Keys(r.Left)) {
		fmt.Fprintf(w, "  %d of %d bytes of code are left out: %s\n", r.Left[reason], r.all(), reason)
	}
}

// all returns the number of bytes of code that the object has rows for.
func (r *converted) all() uint64 {
	n := r.Bytes
	for _, left := range r.Left {
		n += left
	}
	return n
}

// convert is the verb.
func convert(path string, out binaryOutput, opt *convertOptions) (*converted, error) {
	file, size, done, err := find.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer done()
	object, err := dwarfcfa.NewObject(path, file, size)
	if err != nil {
		return nil, err
	}
	table, found, err := dwarfcfa.BuildTable(object, dwarfcfa.BuildOptions{Source: opt.source})
	if err != nil {
		return nil, err
	}
	r := &converted{Object: path, Output: opt.output, Format: opt.to, TableSize: found.SectionSize + found.HdrSize}
	var b []byte
	if opt.to == "breakpad" {
		b, err = breakpad(object, table, path, r)
	} else {
		b, err = sframeSection(object, table, opt, r)
	}
	if err != nil {
		return nil, err
	}
	r.Size = len(b)
	if err := out.write(b); err != nil {
		return nil, err
	}
	return r, nil
}

// take notes what a format can express.
func (r *converted) take(rep dwarfcfa.ConvertReport) {
	r.Functions, r.Rows, r.Bytes, r.Left = rep.Functions, rep.Rows, rep.Bytes, rep.Left
}

func sframeSection(object *dwarfcfa.Object, table *dwarfcfa.Table, opt *convertOptions, r *converted) ([]byte, error) {
	starts, err := object.FunctionStarts(opt.source)
	if err != nil && !errors.Is(err, dwarfcfa.ErrNoUnwindInfo) { // .sframe has none
		return nil, err
	}
	entries, rep := table.ToSFrame(opt.version, starts)
	r.Version = opt.version
	r.take(rep)
	return sframe.Encode(sframe.Options{Version: opt.version, Addr: opt.address, PCRel: opt.version == 3}, entries)
}

// breakpad returns a symbol file of Breakpad.
func breakpad(object *dwarfcfa.Object, table *dwarfcfa.Table, path string, r *converted) ([]byte, error) {
	id := object.BuildID()
	if len(id) == 0 {
		return nil, errors.New("no build-id, by which Breakpad names a module")
	}
	records, rep := table.ToBreakpad()
	r.take(rep)
	name := filepath.Base(path)
	head := fmt.Sprintf("MODULE Linux x86_64 %s %s\nINFO CODE_ID %X %s\n", breakpadID(id), name, id, name)
	return append([]byte(head), records...), nil
}

// breakpadID returns a module's identifier: the first 16 bytes of the build-id as a GUID, whose first three fields are
// little-endian, and the age 0.
func breakpadID(id []byte) string {
	var guid [16]byte
	copy(guid[:], id)
	le := binary.LittleEndian
	return fmt.Sprintf("%08X%04X%04X%X0", le.Uint32(guid[:]), le.Uint16(guid[4:]), le.Uint16(guid[6:]), guid[8:])
}
