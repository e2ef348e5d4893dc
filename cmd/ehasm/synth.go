package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ehasm/ehasm/internal/analysis/synth"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/inspect"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
)

// This file is synth: rows made from code, as a summary, as directives of the assembler, or as a debug file. build,
// record and script make the same rows by --synth.

const synthHelp = `Make unwind rows from code: for code that has none, such as hand-written
assembly, or for all code. Nothing is run. An instruction gets a row only if all
paths to it agree; instructions left out are counted.

Usage:
  ehasm synth [flags] FILE
`

const synthMore = `Without a flag that says what to write, synth prints a summary of the rows. With
-o it writes a separate debug file with the rows as .debug_frame, which gdb and
elfutils find by the object's build-id as .build-id/xx/yyyy.debug.

--cfi is for authors of assembly: it prints the directives of each function,
with the offsets of the instructions to put them before. It also takes .o files.

--synth=missing makes rows for code without rows; wrong, also in place of rows
that 'ehasm check' finds wrong; all, for all code.

Functions are found by symbols, relocations, calls, and addresses that code
takes. With --synth=all, only the bounds of functions and their landing pads are
taken from the file's unwind tables.

'ehasm build --synth=missing' compiles the same rows into an eh_elf.

Examples:
  ehasm synth /usr/lib/x86_64-linux-gnu/libx264.so.164
  ehasm synth -o libfoo.debug libfoo.so
  ehasm synth --cfi --function=my_memcpy mem.o
  ehasm synth --list --json libfoo.so
`

// synthOptions holds the flags of synth. Without output, cfi, list and json it prints a summary.
type synthOptions struct {
	output   string
	mode     synth.Mode
	cfi      bool
	list     bool
	json     bool
	function string
	jobs     int
}

// synthVerb is the verb synth. It takes one file: each report is of a file, and -o names one output.
func synthVerb() verb {
	v := verb{name: "synth", brief: "make unwind rows from code", help: synthHelp, more: synthMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &synthOptions{}
		fs.StringVarP(&opt.output, "output", "o", "",
			"write a debug file `FILE` with the rows; -: standard output, and the report to standard error")
		mode := declareSynth(fs, "missing")
		fs.BoolVar(&opt.cfi, "cfi", false, "print .cfi_* directives, for the GNU assembler")
		fs.BoolVar(&opt.list, "list", false, "print a line for each function that gets rows")
		fs.StringVar(&opt.function, "function", "", "print only the function with this `NAME`, or at this address")
		declareJobs(fs, &opt.jobs, "analyse `N` functions at a time")
		fs.BoolVar(&opt.json, "json", false, "print the result as JSON")
		return func(ctx context.Context, paths []string, c *console) int {
			var err error
			opt.mode, err = mode()
			switch {
			case err != nil:
				return v.misuse(c, err)
			case len(paths) != 1:
				return v.misuse(c, errors.New("want one file"))
			case opt.output == "" && fs.Changed("output"):
				return v.misuse(c, errors.New("--output: the name of the file is empty"))
			case opt.cfi && (opt.json || opt.list):
				return v.misuse(c, errors.New("--cfi goes with neither --json nor --list"))
			}
			if err = checkJobs(opt.jobs); err == nil {
				err = binaryOutput{opt.output, c, output.PermText}.check(paths)
			}
			if err != nil {
				return v.misuse(c, err)
			}
			return synthesise(paths[0], opt, c)
		}
	}
	return v
}

// declareSynth declares the flag that says for which code rows are made, and
// returns a function that gets its value once it is parsed.
func declareSynth(fs *pflag.FlagSet, standard string) func() (synth.Mode, error) {
	name := fs.String("synth", standard, "make rows from code; `MODE`: off, missing, wrong or all; see below")
	return func() (synth.Mode, error) {
		m, err := synth.ParseMode(*name)
		if err != nil {
			err = fmt.Errorf("--synth: %w", err)
		}
		return m, err
	}
}

// synthesise is the verb: it makes the rows, writes the debug file, if one is wanted, and reports. A file for which no
// row can be made is no failure; a function that --function names and that gets none is.
func synthesise(path string, opt *synthOptions, c *console) int {
	c.newBar(-1, "reading code", progressbar.OptionSetItsString("functions"))
	r, err := inspect.MakeRows(path, synth.Options{Mode: opt.mode, Workers: opt.jobs, Progress: c.advanceBy})
	c.stopBar()
	if err != nil {
		c.fail(path, err)
		return exitFailed
	}
	functions := r.Rows.Functions
	if opt.function != "" {
		functions = inspect.FunctionsNamed(functions, opt.function)
		if len(functions) == 0 {
			c.fail(path, fmt.Errorf("no row was made for a function %s", output.Name(opt.function)))
			return exitFailed
		}
	}
	out := binaryOutput{opt.output, c, permLike(output.PermText, path)}
	if opt.output != "" {
		image, err := r.DebugFile()
		if err == nil {
			err = out.write(image)
		}
		if err != nil {
			c.fail(opt.output, err)
			return exitFailed
		}
	}
	report := out.report()
	switch {
	case opt.cfi:
		for i := range functions {
			if i > 0 {
				fmt.Fprintln(report)
			}
			if err := synth.WriteCFI(report, &functions[i]); err != nil {
				return exitFailed // the console tells
			}
		}
	case opt.json:
		output.JSON(report, inspect.NewRows(path, r.Rows, functions, opt.list))
	default:
		inspect.PrintRows(report, path, r.Rows)
		if opt.list {
			inspect.PrintFunctions(report, functions)
		}
	}
	return exitDone
}
