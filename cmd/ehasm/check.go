package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/check"
	"github.com/ehasm/ehasm/internal/files/output"

	"github.com/spf13/pflag"
)

// This file has the flags of check and the order of its work; check_run.go goes through files, check_baseline.go keeps
// findings that are accepted. Package check finds, package inspect prints.

const checkHelp = `Compare the unwind tables of ELF files with their code.

Usage:
  ehasm check [flags] PATH...
  ehasm check [flags] --diff OLD NEW

A PATH is an executable, a shared object, a relocatable file (.o), a static
library (.a), or a folder with such files. check interprets each function. At
each instruction it compares the row of .eh_frame or .debug_frame with the
places of the CFA, the return address and the caller's registers. A finding
covers consecutive instructions that are wrong for the same reason:

  cfa        the CFA is elsewhere: stacks end or go on wrongly (error)
  return     the return address is not where the row says (error)
  ret        at a ret the stack pointer is not at the return address (error)
  saved      the slot does not hold the register (error)
  clobbered  the row has the register unchanged, but it is changed (error)
  border     a row begins inside an instruction (note)
  hidden     libgcc finds no FDE by .eh_frame_hdr: a throw terminates (error)
  lsda       the LSDA can't be read: a throw terminates (error)
  header     .eh_frame_hdr says what .eh_frame has not (error)
  overlap    two FDEs cover the code (note)
  terminator FDEs follow a terminator of .eh_frame (note)
  loader     the loader writes pointers that gdb reads from the file (note)
  no-row     code that is called or jumped to has no row (note)

A row that is wrong for a single instruction that is no call is a warning. A
finding that rests on an assumption is a note that names it, such as a change of
context at the end of longjmp, or a private calling convention: of a function
that saves no register, and that only calls and jumps of its file lead to.
Instructions that check cannot judge are counted by reason. With debug
information, findings have the lines of the source. In folders and static
libraries, check skips and counts files without unwind tables.

Exit status: 0 nothing found, 1 findings or failures, 2 wrong usage. With
--baseline and --diff only new findings count; --fail-on says from which
severity on they count.
`

const checkMore = `Examples:
  ehasm check /lib/x86_64-linux-gnu/libc.so.6
  ehasm check -v foo.o                        with instructions and rows
  ehasm check --sarif build/ > check.sarif    for services that show findings
  ehasm check --write-baseline known libfoo.so
  ehasm check --baseline known libfoo.so
  ehasm check --diff release/libfoo.so build/libfoo.so
  ehasm check --fix foo.o | patch -p0         mend foo.s, assembled with -g
`

// checkOptions holds the flags that apply to each file.
type checkOptions struct {
	verbose, json, sarif, notes, fix, abi bool
	workers                               int             // functions analysed at a time, 1 or more
	failOn                                check.Severity  // the least that makes the exit status 1
	source                                dwarfcfa.Source // the section to judge
	known                                 knownFindings   // of --baseline or of OLD, left out
}

// checkOutputs are the flags that say what else to write or read: a list of accepted findings, or another file to
// compare with.
type checkOutputs struct {
	baseline, write string
	diff            bool
}

// checkVerb is the verb check. Findings make the exit status exitFailed, as failures do: a build that runs check stops
// at both.
func checkVerb() verb {
	v := verb{name: "check", brief: "compare unwind tables with the code", help: checkHelp, more: checkMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		var opt checkOptions
		var files checkOutputs
		fs.BoolVarP(&opt.verbose, "verbose", "v", false, "show instructions around findings, with computed and stated rows")
		fs.BoolVar(&opt.json, "json", false, "print JSON, an array with an object for each file")
		fs.BoolVar(&opt.sarif, "sarif", false, "print SARIF 2.1.0")
		fs.BoolVar(&opt.notes, "notes", false, "show notes too")
		fs.BoolVar(&opt.fix, "fix", false, "print a patch of the assembly sources that makes the directives right")
		fs.BoolVar(&opt.abi, "abi", false, "no function has a private calling convention: all registers are restored")
		declareJobs(fs, &opt.workers, "analyse `N` functions at a time")
		failOn := fs.String("fail-on", "warning", "exit with 1 from `SEVERITY` on: error, warning, note")
		source := fs.String("source", "auto", "judge `SECTION`: eh_frame, debug_frame, sframe, or auto: the first two")
		fs.StringVar(&files.baseline, "baseline", "", "leave out the findings listed in `FILE`")
		fs.StringVar(&files.write, "write-baseline", "", "list the findings in `FILE`, also those that --baseline accepts")
		fs.BoolVar(&files.diff, "diff", false, "show the findings that only NEW has; files or folders")
		return func(ctx context.Context, paths []string, c *console) int {
			err := files.check(paths)
			switch {
			case err != nil:
			case opt.json && opt.sarif:
				err = errors.New("--json and --sarif exclude each other")
			case opt.fix && (opt.json || opt.sarif || opt.verbose || files != checkOutputs{}):
				err = errors.New("--fix prints a patch and nothing else")
			}
			if err == nil {
				err = checkJobs(opt.workers)
			}
			if err != nil {
				return v.misuse(c, err)
			}
			if opt.source, err = dwarfcfa.ParseSource(*source); err != nil {
				return v.misuse(c, fmt.Errorf("--source: %w", err))
			}
			opt.failOn = check.Severity(*failOn)
			if !slices.Contains([]check.Severity{check.SeverityError, check.SeverityWarning, check.SeverityNote}, opt.failOn) {
				return v.misuse(c, fmt.Errorf("--fail-on: unknown severity %q: want error, warning or note", *failOn))
			}
			return files.run(ctx, paths, opt, c)
		}
	}
	return v
}

// check returns an error for arguments that make no sense.
func (o *checkOutputs) check(paths []string) error {
	switch {
	case o.diff && (o.baseline != "" || o.write != ""):
		return errors.New("--diff takes no baseline: OLD is one")
	case o.diff && len(paths) != 2:
		return fmt.Errorf("--diff: want OLD and NEW, got %d files", len(paths))
	case len(paths) == 0:
		return errors.New("no file given")
	}
	if err := output.Distinct(paths, o.write); err != nil {
		return fmt.Errorf("--write-baseline: %w", err)
	}
	return nil
}

// relative returns the paths below the longest folder that holds all files and is, or holds, all folders. Findings are
// identified by them, so that files of one name stay apart, and that a baseline holds in another checkout.
func relative(paths []string) []string {
	places, root := slices.Clone(paths), ""
	for i, path := range paths {
		if abs, err := filepath.Abs(path); err == nil {
			places[i] = abs
		}
		folder := places[i]
		if st, err := os.Stat(path); err != nil || !st.IsDir() {
			folder = filepath.Dir(folder)
		}
		if i == 0 {
			root = folder
		}
		// up to a folder that both have; with a slash, as /a/bc is not below /a/b
		for root != folder && !strings.HasPrefix(folder, strings.TrimSuffix(root, "/")+"/") && root != filepath.Dir(root) {
			root = filepath.Dir(root)
		}
	}
	for i, place := range places {
		if rel, err := filepath.Rel(root, place); err == nil {
			places[i] = rel
		}
	}
	return places
}

// run checks the files, after what gives the findings that are not new: OLD is checked in silence, or the baseline
// read.
func (o *checkOutputs) run(ctx context.Context, paths []string, opt checkOptions, c *console) int {
	switch {
	case o.diff:
		old := &checker{opt: opt, c: c, quiet: true}
		old.path(ctx, paths[0], "")
		opt.known = knownFindings{what: "also in " + output.Name(paths[0]), of: setOf(old.ids)}
		paths = paths[1:]
	case o.baseline != "":
		var err error
		if opt.known, err = readBaseline(o.baseline); err != nil {
			c.fail(o.baseline, err)
			return exitFailed
		}
	}
	r := &checker{opt: opt, c: c}
	ids := relative(paths)
	for i, path := range paths {
		if o.diff {
			ids[i] = "" // OLD and NEW may have any names
		}
		r.path(ctx, path, ids[i])
	}
	code := r.finish()
	if o.write != "" {
		if err := writeBaseline(o.write, r.ids); err != nil {
			c.fail(o.write, err)
		} else {
			code = exitDone // they are accepted
		}
	}
	return code
}
