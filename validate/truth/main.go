//go:build linux && amd64

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/analysis/synth"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const help = `Run a program one instruction at a time and hold unwind tables against its calls.

Usage:
  truth [flags] -- PROGRAM [ARGUMENT...]

Flags:
`

// run returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("truth", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SetInterspersed(false) // what follows the program's name is its own
	opt := options{}
	fs.IntVarP(&opt.steps, "steps", "n", 1_000_000, "stop after comparing at `N` instructions")
	fs.DurationVar(&opt.limit, "limit", 10*time.Minute, "stop after this time")
	fs.DurationVar(&opt.skip, "skip", 0, "let the program run freely that long first")
	fs.DurationVar(&opt.every, "every", 0, "let the program run freely that long between windows")
	fs.IntVar(&opt.window, "window", 100_000, "instructions of a window")
	fs.StringSliceVar(&opt.wanted, "in", nil,
		"compare only in objects whose path holds `TEXT`; calls out of them run freely")
	fs.StringSliceVar(&opt.env, "env", nil, "`NAME=VALUE` for the program")
	out := fs.StringP("output", "o", "", "write the program's output to this `FILE`")
	list := fs.Int("list", 20, "number of wrong instructions of an object to name")
	asJSON := fs.Bool("json", false, "write the result as JSON, with all wrong instructions")
	forced := fs.Bool("force", false, "the arguments are ELF files: start their functions with any registers")
	seed := fs.Uint64("seed", 1, "of --force: what registers and memory hold")
	only := fs.Bool("findings", false, "of --force: start the functions in which check finds errors and warnings")
	drawn := fs.Int("draw", 0, "of --force: draw `N` errors and N warnings a file, and go to each")
	times := fs.Int("times", 4, "of --force: runs of a function")
	made := fs.Bool("made", false, "compare rows made from the code alone, too")
	sums := fs.Bool("sum", false, "sum up the results of --json in the files that are the arguments")
	same := fs.Bool("pin", true, "keep program and tracer on one processor, where a switch between them is fast")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			fmt.Fprint(stdout, help, fs.FlagUsages())
			return 0
		}
		fmt.Fprintf(stderr, "truth: %v\n", err)
		return 2
	}
	if fs.NArg() == 0 || opt.steps < 1 || opt.window < 1 {
		fmt.Fprintln(stderr, "truth: want a program, and at least one step")
		return 2
	}
	if *sums {
		if err := sum(stdout, fs.Args(), *list); err != nil {
			fmt.Fprintf(stderr, "truth: %v\n", err)
			return 1
		}
		return 0
	}
	opt.source = fileTables()
	if *made {
		opt.source = madeTables(func(*dwarfcfa.File, *synth.Result) {})
	}
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			fmt.Fprintf(stderr, "truth: %v\n", err)
			return 1
		}
		defer f.Close()
		opt.output = f
	}
	runtime.LockOSThread() // the tracer is a thread
	if *same {
		pin()
	}
	var r *report
	var err error
	if *forced {
		r, err = force(fs.Args(), opt, *seed, *times, *drawn, *only)
	} else {
		var t *tracer
		if t, err = follow(fs.Args(), opt); err == nil {
			r = newReport(fs.Args(), t)
		}
	}
	if err != nil {
		fmt.Fprintf(stderr, "truth: %v\n", err)
		return 1
	}
	if *asJSON {
		err = r.json(stdout)
	} else {
		err = r.text(stdout, *list)
	}
	if err != nil {
		fmt.Fprintf(stderr, "truth: %v\n", err)
		return 1
	}
	return 0
}

// pin keeps this thread, and the program it starts, on the processor it is on.
func pin() {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			set.Zero()
			set.Set(cpu)
			_ = unix.SchedSetaffinity(0, &set) // slower without
			return
		}
	}
}
