package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/spf13/pflag"
)

const convertHelp = `Write the unwind tables of an ELF file as the contents of a .sframe section, for
a kernel or C library that reads them.

Usage:
  ehasm convert [flags] FILE -o OUTPUT
`

const convertMore = `SFrame says where the caller's rsp, return address and rbp are. Rows that a
version cannot express are left out and counted. In version 2 the CFA is on rsp
or rbp; version 3 also has signal frames and other registers. No version has an
end of stack by an expression, or a lost rbp. Version 1, which binutils 2.40
reads, has no end of stack.

In versions 1 and 2 function starts are relative to the section: --address gives
its link-time address, which is 0 after 'objcopy --add-section'. In version 3
they are relative to the function's own entry, as the Linux kernel expects.

--attach writes a copy of FILE that has the section in memory too: in a PT_LOAD,
which PT_GNU_SFRAME names. convert reads it back and compares it with the file's
table at every address. The copy keeps its build-id, and runs as FILE does.

Examples:
  ehasm convert --to=sframe libfoo.so -o libfoo.sframe
  ehasm convert --to=sframe --sframe-version=3 libfoo.so -o libfoo.sframe
  objcopy --add-section .sframe=libfoo.sframe libfoo.so with.so
  ehasm convert --to=sframe --attach libfoo.so -o with.so
`

// This file is convert. The bytes are package inspect's work; the verb decides where they and the report go.

// convertOptions holds the flags of convert.
type convertOptions struct {
	inspect.ConvertOptions
	output string // a path, or "-" for standard output
	json   bool   // the report is JSON instead of text
}

// convertVerb is the verb convert. It needs -o: the result is a file, and the report goes elsewhere. Rows that SFrame
// cannot express are in the report, and no failure.
func convertVerb() verb {
	v := verb{name: "convert", brief: "write unwind tables as a .sframe section", help: convertHelp, more: convertMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &convertOptions{}
		format := fs.String("to", "sframe", "write `FORMAT`: sframe")
		fs.StringVarP(&opt.output, "output", "o", "", "write `FILE`; -: standard output, and the report to standard error")
		fs.Uint8Var(&opt.Version, "sframe-version", 2, "version `N` of SFrame: 1, 2 or 3")
		address := fs.String("address", "0", "link-time address `ADDR` of the section")
		fs.BoolVar(&opt.Attach, "attach", false, "write a copy of FILE with the section in a segment")
		source := fs.String("source", "auto",
			"read `SECTION`: eh_frame, debug_frame, sframe, or auto: first two, else sframe")
		fs.BoolVar(&opt.json, "json", false, "print the result as JSON")
		return func(_ context.Context, paths []string, c *console) int {
			var err error
			if opt.Address, err = strconv.ParseUint(*address, 0, 64); err != nil {
				return v.misuse(c, fmt.Errorf("--address: %q is not an address such as 0x4010", *address))
			}
			if opt.Source, err = dwarfcfa.ParseSource(*source); err != nil {
				return v.misuse(c, fmt.Errorf("--source: %w", err))
			}
			switch {
			case *format != "sframe":
				return v.misuse(c, fmt.Errorf("--to: unknown format %q: want sframe", *format))
			case opt.Version < 1 || opt.Version > 3:
				return v.misuse(c, fmt.Errorf("--sframe-version %d: want 1, 2 or 3", opt.Version))
			case opt.Attach && fs.Changed("address"):
				return v.misuse(c, errors.New("--attach places the section itself: it does not go with --address"))
			case len(paths) != 1:
				return v.misuse(c, fmt.Errorf("want one file, got %d", len(paths)))
			case opt.output == "":
				return v.misuse(c, errors.New("-o FILE is missing"))
			}
			out := binaryOutput{opt.output, c, output.PermText}
			if opt.Attach {
				// a copy of a program is one
				out.perm = 0o755
			}
			out.perm = permLike(out.perm, paths[0])
			if err := out.check(paths); err != nil {
				return v.misuse(c, err)
			}
			// Convert returns bytes and report together; nothing is written if it fails.
			b, r, err := inspect.Convert(paths[0], opt.ConvertOptions)
			if err == nil {
				r.Output, err = opt.output, out.write(b)
			}
			if err != nil {
				c.fail(paths[0], err)
				return exitFailed
			}
			if opt.json {
				output.JSON(out.report(), r)
			} else {
				r.Print(out.report())
			}
			return exitDone
		}
	}
	return v
}
