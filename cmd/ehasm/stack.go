package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/stacks"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"

	"github.com/spf13/pflag"
)

const stackHelp = `Show the stacks of all threads of processes, or of a core file, with inlined
functions, files and lines, and what each thread is blocked in.

Usage:
  ehasm stack [flags] PID...
  ehasm stack [flags] -a | --name PATTERN
  ehasm stack [flags] CORE|- [EXECUTABLE]
  ehasm stack --core-pattern [flags] PID TID [-- HANDLER [arguments]]
`

const stackMore = `Each thread stops alone, and only while ehasm copies its registers and the used
part of its stack. ehasm reads names while everything runs. It waits 100 ms for
a thread to stop, and then only names it: it may be in uninterruptible sleep. A
runnable thread that waits for a CPU has 10 s. If ehasm is killed, the process
goes on. With --consistent all threads stop together, so that their stacks show
one moment, as for deadlocks. For root, stacks of blocked threads begin in the
kernel.

You need the rights of a debugger: be the process's user or root, and see
kernel.yama.ptrace_scope. A name of digits alone is a PID; ./1234 is a file.

In a core, the thread that crashed comes first. Code comes from the files that
were mapped. A file with another build-id, since replaced, is named and not
used. EXECUTABLE is the program, if it has moved. With - the core comes from
standard input, as from a decompressor. ehasm also looks for files in
/usr/lib/debug, in ~/.debug, and on the debuginfod servers of DEBUGINFOD_URLS.

Frames without unwind information are marked as guessed. A stack that is not
complete says why. Without --format the name of -o's FILE chooses: .svg,
.folded, .json, .pb.gz, .perf.txt; any other is text.

With --core-pattern ehasm handles crashes for the kernel, which writes the core
to its standard input. ehasm writes a report with the stacks
into ` + crashFolder + `,
or into the folder of -o, and passes the core on to HANDLER, if there is one:
  kernel.core_pattern=|/usr/bin/ehasm stack --core-pattern %P %I

Examples:
  ehasm stack 1234
  ehasm stack --merge=false --no-lines 1234
  ehasm stack --consistent 1234
  ehasm stack --children 1234
  ehasm stack --watch 100ms -n 50 -o flame.svg 1234
  ehasm stack -p 1234 -o stacks.json
`

// This file turns the flags and arguments of stack into a run of package stacks, or into a handler of crashes.

// stackOptions holds the flags of stack.
type stackOptions struct {
	stacks.Options
	output  string   // a file, a folder with --core-pattern, or "" for standard output
	crash   bool     // be the kernel's handler
	handler []string // of crashes, after this one
}

// stackVerb is the verb stack. The first error of the flags, the arguments and the output wins.
func stackVerb() verb {
	v := verb{name: "stack", brief: "show the stacks of all threads of a process or core", help: stackHelp,
		more: stackMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &stackOptions{}
		fs.IntSliceVarP(&opt.Processes.PIDs, "pid", "p", nil, "process `PID`; the flag may be left out")
		fs.BoolVarP(&opt.Processes.Every, "all", "a", false, "all processes that you may look at")
		fs.BoolVar(&opt.Processes.Children, "children", false, "also the processes' children, and theirs")
		name := fs.String("name", "", "processes whose names match `PATTERN`, as with pgrep")
		fs.StringVarP(&opt.output, "output", "o", "", "write to this `FILE`; with --core-pattern, to this folder")
		format := fs.String("format", "", "`FORMAT`: text, "+formatNames()+"; default: by -o's name")
		merge := fs.Bool("merge", false, fmt.Sprintf("write equal stacks once; default: above %d threads",
			stacks.ManyThreads))
		noLines := fs.Bool("no-lines", false, "show no inlined functions, files and lines")
		fs.BoolVar(&opt.Names.Signatures, "signatures", false, "show functions with their parameters, if types are known")
		fs.BoolVar(&opt.Names.Mangled, "no-demangle", false, "do not demangle names")
		fs.BoolVar(&opt.Consistent, "consistent", false, "stop all threads together, and say for how long")
		fs.DurationVar(&opt.Watch, "watch", 0, "look again each `TIME`, such as 1s, until ^C; stacks are counted")
		fs.IntVarP(&opt.Rounds, "rounds", "n", 0, "with --watch: look `N` times")
		fs.IntVar(&opt.MaxFrames, "max-frames", stack.MaxFrames, "keep `N` frames of a longer stack, half from each end")
		fs.BoolVar(&opt.crash, "core-pattern", false, "handle a crash for the kernel: PID and TID are %P and %I")
		pointers := fs.String("frame-pointers", "always", "`WHEN` to guess by rbp: always, gaps, never")
		return func(ctx context.Context, args []string, c *console) int {
			opt.Names.Inline, opt.Names.Lines = !*noLines, !*noLines
			if fs.Changed("merge") {
				opt.Merge = merge
			}
			err := opt.check(fs, *format, *pointers)
			if err == nil && fs.Changed("name") {
				if opt.Processes.Name, err = regexp.CompilePOSIX(*name); err != nil {
					err = fmt.Errorf("--name: %w", err)
				}
			}
			if err == nil && opt.crash {
				if err = opt.takeCrash(fs, args); err == nil {
					return handleCrash(ctx, opt, c)
				}
			}
			if err == nil {
				err = opt.take(args)
			}
			if err == nil {
				err = refuseTerminal(opt.spec(), opt.output, c)
			}
			if err == nil {
				err = output.Distinct([]string{opt.Core, opt.Executable}, opt.output)
			}
			if err != nil {
				return v.misuse(c, err)
			}
			return runStack(ctx, opt, c)
		}
	}
	return v
}

// check sets what the flags' texts mean, and refuses values that make no sense whatever the arguments are.
func (opt *stackOptions) check(fs *pflag.FlagSet, format, pointers string) (err error) {
	// The name of the output chooses the format; --format overrides it. A nil format is text for
	// people.
	opt.Format = stackfmt.ByPath(opt.output)
	if format == "text" {
		opt.Format = nil
	} else if fs.Changed("format") {
		if opt.Format, err = stackfmt.ByName(format); err != nil {
			return fmt.Errorf("--format: %w, or text", err)
		}
	}
	if opt.Pointers, err = unwind.ParseFramePointers(pointers); err != nil {
		return fmt.Errorf("--frame-pointers: %w", err)
	}
	switch {
	case opt.MaxFrames < 2:
		return fmt.Errorf("--max-frames %d: want at least 2", opt.MaxFrames)
	case opt.Watch < 0 || fs.Changed("watch") && opt.Watch == 0:
		return fmt.Errorf("--watch %v: want a time above 0", opt.Watch)
	case opt.Rounds < 0 || fs.Changed("rounds") && opt.Rounds == 0:
		return fmt.Errorf("--rounds %d: want at least 1", opt.Rounds)
	case opt.Rounds > 0 && opt.Watch == 0:
		return errors.New("--rounds has no effect without --watch")
	case opt.Merge != nil && opt.Format != nil:
		return fmt.Errorf("--merge has no effect in the format %s", opt.Format.Name)
	}
	return nil
}

// spec returns the format, to ask whether it is binary; text has no Spec.
func (opt *stackOptions) spec() *stackfmt.Spec {
	if opt.Format == nil {
		return &stackfmt.Spec{Name: "text"}
	}
	return opt.Format
}

// take sets what the arguments name: processes, or a core. A core has stacks of one moment, so the flags that look at
// a process again have no meaning for it.
func (opt *stackOptions) take(args []string) error {
	var files []string
	for _, arg := range args {
		if strings.Trim(arg, "0123456789") != "" || arg == "" {
			files = append(files, arg)
			continue
		}
		// An argument of digits is a PID, anything else a file.
		pid, err := parsePID(arg)
		if err != nil {
			return err
		}
		opt.Processes.PIDs = append(opt.Processes.PIDs, pid)
	}
	for _, pid := range opt.Processes.PIDs {
		if pid < 1 || pid > 1<<31-1 {
			return fmt.Errorf("PID %d: want a number from 1 to 2^31-1", pid)
		}
	}
	// many: the flags name processes whose number is not known yet.
	many := opt.Processes.Every || opt.Processes.Children || opt.Processes.Name != nil
	// A core and processes exclude each other, and so do most ways of naming processes.
	switch {
	case len(files) > 0 && many:
		return fmt.Errorf("file %q: --all, --children and --name want processes, not a core", files[0])
	case opt.Processes.Every && (opt.Processes.Children || opt.Processes.Name != nil || len(opt.Processes.PIDs) > 0):
		return errors.New("--all has all processes: want no other")
	case opt.Processes.Children && opt.Processes.Name == nil && len(opt.Processes.PIDs) == 0:
		return errors.New("--children: want a PID or --name")
	case len(files) > 0 && len(opt.Processes.PIDs) > 0:
		return fmt.Errorf("PID %d and file %q: want processes or a core", opt.Processes.PIDs[0], files[0])
	case len(files) > 2:
		return fmt.Errorf("argument %q: want CORE and EXECUTABLE only", files[2])
	case len(files) > 0 && (opt.Watch > 0 || opt.Consistent):
		return errors.New("--watch and --consistent need a process: a core does not change")
	case len(files) == 2:
		opt.Executable = files[1]
	case len(files) == 0 && len(opt.Processes.PIDs) == 0 && !many:
		return errors.New("want a PID or a core")
	case (len(opt.Processes.PIDs) > 1 || many) && opt.Watch > 0:
		return errors.New("--watch: want one PID")
	}
	if len(files) > 0 {
		opt.Core = files[0]
	}
	return nil
}

// parsePID parses a PID from the arguments. Zero and below are the caller's to refuse.
func parsePID(arg string) (int, error) {
	pid, err := strconv.ParseInt(arg, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("PID %q: want a number below 2^31", arg)
	}
	return int(pid), nil
}

// crashFolder is where reports of crashes go by default.
const crashFolder = "/var/lib/ehasm/crashes"

// takeCrash sets what the arguments of --core-pattern name. The kernel shows a handler's errors nowhere, so all that
// can be wrong with the line is refused when it is tried by hand.
func (opt *stackOptions) takeCrash(fs *pflag.FlagSet, args []string) (err error) {
	// As a handler, ehasm obeys few flags. One without effect in kernel.core_pattern would go
	// unnoticed for long.
	var excess []string
	fs.Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"core-pattern", "output", "format", "frame-pointers"}, f.Name) {
			excess = append(excess, "--"+f.Name)
		}
	})
	// Arguments after -- are a handler that gets the core next.
	if n := fs.ArgsLenAtDash(); n >= 0 {
		if args, opt.handler = args[:n], args[n:]; len(opt.handler) == 0 {
			return errors.New("--core-pattern: want a HANDLER after --")
		}
	}
	switch {
	case len(excess) > 0:
		return fmt.Errorf("%s has no effect with --core-pattern", excess[0])
	case len(args) != 2:
		return errors.New("--core-pattern: want PID and TID, %P and %I of kernel.core_pattern")
	case fs.Changed("format") && opt.Format != nil && opt.Format.Name != "json":
		return fmt.Errorf("--format %s: reports of --core-pattern are text or json", opt.Format.Name)
	}
	for _, arg := range args {
		pid, err := parsePID(arg)
		if err != nil {
			return err
		}
		if pid < 1 {
			return fmt.Errorf("PID %d: want a number from 1 to 2^31-1", pid)
		}
		opt.Processes.PIDs = append(opt.Processes.PIDs, pid)
	}
	if !fs.Changed("format") {
		opt.Format = nil // the folder's name says nothing
	}
	opt.output = cmp.Or(opt.output, crashFolder)
	return nil
}

// runStack runs the verb with checked options and returns the exit status.
func runStack(ctx context.Context, opt *stackOptions, c *console) int {
	// Without --watch, an interruption leaves the output unwritten.
	guard, saved := host.Guard, func(ctx context.Context) context.Context { return ctx }
	if opt.Watch > 0 { // an interruption ends the watch, and what was seen is written
		guard = func(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
			return host.InterruptContext(ctx)
		}
		saved = context.WithoutCancel
	}
	ctx, stop := guard(ctx, opt.output)
	defer stop()
	// Opening comes first: if the output cannot be written, no process is stopped in vain.
	out, err := output.New(opt.output, stackPerm, c.out)
	if err != nil {
		c.fail(opt.output, err)
		return exitFailed
	}
	opt.Fetch = fetcher(ctx, false, c)
	any := false
	if !out.Run(saved(ctx), func() { any = stacks.Run(ctx, &opt.Options, out, reporter{c, "stack"}) }) {
		c.fail("interrupted", fmt.Errorf("%s is not written", output.Name(opt.output)))
		return host.InterruptStatus(ctx)
	}
	if !any {
		if f := out.File(); f != nil {
			f.Abort() // there is nothing to write
		}
		if ctx.Err() != nil {
			return host.InterruptStatus(ctx)
		}
		return exitFailed
	}
	if err := out.Finish(); err != nil {
		c.fail(opt.output, err)
	} else if out.File() != nil && opt.Format != nil {
		c.note(opt.output, errors.New(opt.Format.HowToLook(output.Name(opt.output))))
	}
	return exitDone // or failed, if c has a failure
}

// stackPerm is the mode of outputs: a stack may show what others must not know.
const stackPerm = output.PermText &^ 0o077
