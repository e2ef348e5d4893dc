package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/debuginfo/debuginfod"
	"github.com/ehasm/ehasm/internal/files/atomicfile"
	"github.com/ehasm/ehasm/internal/files/interrupt"
	"github.com/ehasm/ehasm/internal/files/outfile"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/stacks"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/stack"
	"github.com/ehasm/ehasm/unwind"

	"github.com/spf13/pflag"
)

const stackHelp = `Show the stacks of all threads of processes, or of a core file, with inlined functions,
files and lines, and what each thread is blocked in.

Usage:
  ehasm stack [flags] PID...
  ehasm stack [flags] -a | --name PATTERN
  ehasm stack [flags] CORE|- [EXECUTABLE]
  ehasm stack --core-pattern [flags] PID TID [-- HANDLER [arguments]]
`

const stackMore = `Each thread stops alone, and only while ehasm copies its registers and the used part of
its stack. ehasm reads names while everything runs. It waits 100 ms for a thread to stop,
and then only names it: it may be in uninterruptible sleep. A runnable thread that waits
for a CPU has 10 s. If ehasm is killed, the process goes on. With --consistent all threads
stop together, so that their stacks show one moment, as for deadlocks. For root, stacks of
blocked threads begin in the kernel.

You need the rights of a debugger: be the process's user or root, and see
kernel.yama.ptrace_scope. A name of digits alone is a PID; ./1234 is a file.

In a core, the thread that crashed comes first. Code comes from the files that were mapped.
A file with another build-id, since replaced, is named and not used. EXECUTABLE is the
program, if it has moved. With - the core comes from standard input, as from a
decompressor. ehasm also looks for files in /usr/lib/debug, in ~/.debug, and on the
debuginfod servers of DEBUGINFOD_URLS.

Frames without unwind information are marked as guessed. A stack that is not complete says
why. Without --format the name of -o's FILE chooses: .svg, .folded, .json, .pb.gz,
.perf.txt; any other is text.

With --core-pattern ehasm handles crashes for the kernel, which writes the core to its
standard input. ehasm writes a report with the stacks into ` + crashFolder + `,
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

// stackOptions holds the flags of stack.
type stackOptions struct {
	names      symbolize.Options
	pointers   unwind.FramePointers
	pids       []int
	every      bool // process
	children   bool
	name       *regexp.Regexp // of more processes; nil: none
	core       string
	executable string
	output     string
	format     *stackfmt.Spec // nil: text
	merge      *bool          // nil: with many threads
	consistent bool
	watch      time.Duration // 0: once
	rounds     int           // 0: until interrupted
	crash      bool          // be the kernel's handler
	handler    []string      // of crashes, after this one
}

// manyThreads is the number of threads above which equal stacks are merged.
const manyThreads = 20

func stackVerb() verb {
	v := verb{name: "stack", brief: "show the stacks of all threads of a process or core", help: stackHelp, more: stackMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &stackOptions{}
		fs.IntSliceVarP(&opt.pids, "pid", "p", nil, "process `PID`; the flag may be left out")
		fs.BoolVarP(&opt.every, "all", "a", false, "all processes that you may look at")
		fs.BoolVar(&opt.children, "children", false, "also the processes' children, and theirs")
		name := fs.String("name", "", "processes whose names match `PATTERN`, as with pgrep")
		fs.StringVarP(&opt.output, "output", "o", "", "write to this `FILE`; with --core-pattern, to this folder")
		format := fs.String("format", "", "`FORMAT`: text, "+formatNames()+"; default: by -o's name")
		merge := fs.Bool("merge", false, fmt.Sprintf("write equal stacks once; default: above %d threads", manyThreads))
		noLines := fs.Bool("no-lines", false, "show no inlined functions, files and lines")
		fs.BoolVar(&opt.names.Signatures, "signatures", false, "show functions with their parameters, if types are known")
		fs.BoolVar(&opt.names.Mangled, "no-demangle", false, "do not demangle names")
		fs.BoolVar(&opt.consistent, "consistent", false, "stop all threads together, and say for how long")
		fs.DurationVar(&opt.watch, "watch", 0, "look again each `TIME`, such as 1s, until ^C; stacks are counted")
		fs.IntVarP(&opt.rounds, "rounds", "n", 0, "with --watch: look `N` times")
		fs.BoolVar(&opt.crash, "core-pattern", false, "handle a crash for the kernel: PID and TID are %P and %I")
		pointers := fs.String("frame-pointers", "always", "`WHEN` to guess by rbp: always, gaps, never")
		return func(ctx context.Context, args []string, c *console) int {
			opt.names.Inline, opt.names.Lines = !*noLines, !*noLines
			if fs.Changed("merge") {
				opt.merge = merge
			}
			err := opt.check(fs, *format, *pointers)
			if err == nil && fs.Changed("name") {
				if opt.name, err = regexp.CompilePOSIX(*name); err != nil {
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
				err = outfile.Distinct([]string{opt.core, opt.executable}, opt.output)
			}
			if err != nil {
				return v.misuse(c, err)
			}
			return runStack(ctx, opt, c)
		}
	}
	return v
}

// check sets what the flags' texts mean.
func (opt *stackOptions) check(fs *pflag.FlagSet, format, pointers string) (err error) {
	opt.format = stackfmt.ByPath(opt.output)
	if format == "text" {
		opt.format = nil
	} else if fs.Changed("format") {
		if opt.format, err = stackfmt.ByName(format); err != nil {
			return fmt.Errorf("--format: %w, or text", err)
		}
	}
	if opt.pointers, err = unwind.ParseFramePointers(pointers); err != nil {
		return fmt.Errorf("--frame-pointers: %w", err)
	}
	switch {
	case opt.watch < 0 || fs.Changed("watch") && opt.watch == 0:
		return fmt.Errorf("--watch %v: want a time above 0", opt.watch)
	case opt.rounds < 0 || fs.Changed("rounds") && opt.rounds == 0:
		return fmt.Errorf("--rounds %d: want at least 1", opt.rounds)
	case opt.rounds > 0 && opt.watch == 0:
		return errors.New("--rounds has no effect without --watch")
	case opt.merge != nil && opt.format != nil:
		return fmt.Errorf("--merge has no effect in the format %s", opt.format.Name)
	}
	return nil
}

// spec returns the format, of which only that is asked whether it is binary.
func (opt *stackOptions) spec() *stackfmt.Spec {
	if opt.format == nil {
		return &stackfmt.Spec{Name: "text"}
	}
	return opt.format
}

// take sets what the arguments name: processes, or a core.
func (opt *stackOptions) take(args []string) error {
	var files []string
	for _, arg := range args {
		if strings.Trim(arg, "0123456789") != "" || arg == "" {
			files = append(files, arg)
			continue
		}
		pid, err := parsePID(arg)
		if err != nil {
			return err
		}
		opt.pids = append(opt.pids, pid)
	}
	for _, pid := range opt.pids {
		if pid < 1 || pid > 1<<31-1 {
			return fmt.Errorf("PID %d: want a number from 1 to 2^31-1", pid)
		}
	}
	many := opt.every || opt.children || opt.name != nil
	switch {
	case len(files) > 0 && many:
		return fmt.Errorf("file %q: --all, --children and --name want processes, not a core", files[0])
	case opt.every && (opt.children || opt.name != nil || len(opt.pids) > 0):
		return errors.New("--all has all processes: want no other")
	case opt.children && opt.name == nil && len(opt.pids) == 0:
		return errors.New("--children: want a PID or --name")
	case len(files) > 0 && len(opt.pids) > 0:
		return fmt.Errorf("PID %d and file %q: want processes or a core", opt.pids[0], files[0])
	case len(files) > 2:
		return fmt.Errorf("argument %q: want CORE and EXECUTABLE only", files[2])
	case len(files) > 0 && (opt.watch > 0 || opt.consistent):
		return errors.New("--watch and --consistent need a process: a core does not change")
	case len(files) == 2:
		opt.executable = files[1]
	case len(files) == 0 && len(opt.pids) == 0 && !many:
		return errors.New("want a PID or a core")
	case (len(opt.pids) > 1 || many) && opt.watch > 0:
		return errors.New("--watch: want one PID")
	}
	if len(files) > 0 {
		opt.core = files[0]
	}
	return nil
}

func parsePID(arg string) (int, error) {
	pid, err := strconv.ParseInt(arg, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("PID %q: want a number below 2^31", arg)
	}
	return int(pid), nil
}

// crashFolder is where reports of crashes go by default.
const crashFolder = "/var/lib/ehasm/crashes"

// takeCrash sets what the arguments of --core-pattern name.
func (opt *stackOptions) takeCrash(fs *pflag.FlagSet, args []string) (err error) {
	var excess []string
	fs.Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"core-pattern", "output", "format", "frame-pointers"}, f.Name) {
			excess = append(excess, "--"+f.Name)
		}
	})
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
	case fs.Changed("format") && opt.format != nil && opt.format.Name != "json":
		return fmt.Errorf("--format %s: reports of --core-pattern are text or json", opt.format.Name)
	}
	for _, arg := range args {
		pid, err := parsePID(arg)
		if err != nil {
			return err
		}
		if pid < 1 {
			return fmt.Errorf("PID %d: want a number from 1 to 2^31-1", pid)
		}
		opt.pids = append(opt.pids, pid)
	}
	if !fs.Changed("format") {
		opt.format = nil // the folder's name says nothing
	}
	opt.output = cmp.Or(opt.output, crashFolder)
	return nil
}

// stackRun is a run of the verb.
type stackRun struct {
	*stackOptions
	c   *console
	out *outfile.Output

	format stackfmt.Format // nil: text
	event  *stackfmt.Event
	seen   []*unwind.Object
}

func runStack(ctx context.Context, opt *stackOptions, c *console) int {
	r := &stackRun{stackOptions: opt, c: c, event: stacks.Event()}
	if opt.format != nil {
		r.format = opt.format.New(stackfmt.Options{Inline: opt.names.Inline, Lines: opt.names.Lines})
	}
	guard, saved := outfile.Guard, func(ctx context.Context) context.Context { return ctx }
	if opt.watch > 0 { // an interruption ends the watch, and what was seen is written
		guard = func(ctx context.Context, _ string) (context.Context, context.CancelFunc) {
			return interrupt.Context(ctx)
		}
		saved = context.WithoutCancel
	}
	ctx, stop := guard(ctx, opt.output)
	defer stop()
	var err error
	if r.out, err = outfile.New(opt.output, stackPerm, c.out); err != nil {
		c.fail(opt.output, err)
		return exitFailed
	}
	any := false
	if !r.out.Run(saved(ctx), func() { any = r.all(ctx) }) {
		c.fail("interrupted", fmt.Errorf("%s is not written", shown.Name(opt.output)))
		return interrupt.Status(ctx)
	}
	if !any {
		if f := r.out.File(); f != nil {
			f.Abort() // there is nothing to write
		}
		if ctx.Err() != nil {
			return interrupt.Status(ctx)
		}
		return exitFailed
	}
	if err := r.out.Finish(); err != nil {
		c.fail(opt.output, err)
	}
	return exitDone // or failed, if c has a failure
}

// stackPerm is the mode of outputs: a stack may show what others must not know.
const stackPerm = atomicfile.PermText &^ 0o077

// all writes what is asked for, and reports whether there is any.
func (r *stackRun) all(ctx context.Context) (any bool) {
	if r.core != "" {
		any = r.one(r.coreName(), func() error { return r.ofCore(ctx) })
	}
	if r.core == "" {
		any = r.ofProcesses(ctx)
	}
	if any && r.format != nil {
		rec := stackfmt.Recording{Command: []string{"stacks"}, Events: []*stackfmt.Event{r.event}, Objects: r.seen, Start: time.Now()}
		if err := r.format.Finish(r.out, &rec); err != nil && !r.out.Failed() {
			r.c.fail(r.output, err)
		}
	}
	return any
}

func (r *stackRun) one(name string, take func() error) bool {
	if err := take(); err != nil {
		r.c.fail(name, err)
		return false
	}
	return true
}

// source is where the objects and names of a process or core come from.
type source struct {
	objects *unwind.Objects
	names   *symbolize.Namer
	cache   *symbolize.Cache
	worker  stackfmt.Worker
	stop    context.CancelFunc
}

// open makes a source.
func (r *stackRun) open(ctx context.Context, vdso func() ([]byte, error)) *source {
	compiling, stop := context.WithCancel(ctx)
	s := &source{stop: stop}
	opt := unwind.Options{DebugDirs: unwind.DefaultDebugDirs(), VDSO: vdso}
	names := r.names
	names.MapDirs, names.DebugDirs = []string{"/tmp"}, opt.DebugDirs
	if fetch := fetcher(ctx, false, r.c); fetch != nil {
		opt.Fetch = func(id []byte) (string, error) { return fetch(id, debuginfod.Executable) }
		names.Fetch = func(id []byte) (string, error) { return fetch(id, debuginfod.DebugInfo) }
	}
	s.objects = stack.NewObjects(compiling, opt)
	names.Objects = s.objects.All
	s.names = symbolize.New(names)
	if r.format == nil {
		s.cache = s.names.NewCache(nil)
	} else {
		s.worker = r.format.Worker()
		s.cache = s.names.NewCache(s.worker.Render)
	}
	return s
}

// close ends the use of a source, and reports what was not as it should be.
func (r *stackRun) close(s *source, name string) {
	s.stop()
	for _, err := range s.names.Close() {
		r.c.note(name, err)
	}
	for _, o := range s.objects.All() {
		if err := o.Err(); err != nil && o.Needed() && !errors.Is(err, unwind.ErrNoFile) && o.IsFile() {
			r.c.note(o.Name, err)
		}
	}
	r.seen = append(r.seen, s.objects.All()...)
}

// how returns how stacks are taken.
func (r *stackRun) how(s *source) stack.Options {
	return stack.Options{Objects: s.objects, FramePointers: r.pointers}
}

// add names the stacks of a target, into the groups of the text or into the format.
func (r *stackRun) add(s *source, groups *stacks.Groups, t *stack.Target) {
	list := make([]symbolize.Stack, len(t.Threads))
	for i := range t.Threads {
		list[i] = symbolize.Stack{Maps: t.Maps, PCs: t.Threads[i].PCs}
	}
	s.names.ForeseePlaces(list)
	if r.format == nil {
		groups.Add(t)
		return
	}
	stacks.Samples(t, s.cache, r.event, func(sample *stackfmt.Sample) { r.out.Write(s.worker.Add(nil, sample)) })
}

// write writes the groups as text and a target's notes.
func (r *stackRun) write(name string, groups *stacks.Groups, t *stack.Target) {
	if r.format == nil {
		r.out.Write(groups.Text(nil, t, r.consistent)) // the output reports errors
	}
	for _, note := range t.Notes {
		r.c.note(name, errors.New(note))
	}
}

func (r *stackRun) merged(t *stack.Target) bool {
	if r.merge != nil {
		return *r.merge
	}
	return r.watch > 0 || len(t.Threads) > manyThreads
}

func (r *stackRun) coreName() string {
	if r.core == "-" {
		return "standard input"
	}
	return r.core
}

// ofCore writes the stacks of the core.
func (r *stackRun) ofCore(ctx context.Context) error {
	open := func() (*stack.CoreFile, error) { return stack.OpenCoreFile(r.core) }
	if r.core == "-" {
		open = func() (*stack.CoreFile, error) { return stack.OpenCorePipe(os.Stdin) }
	}
	core, err := open()
	if err != nil {
		return err
	}
	defer core.Close()
	s := r.open(ctx, core.VDSO)
	defer r.close(s, r.coreName())
	if r.executable != "" {
		if err := core.Use(r.executable, s.objects); err != nil {
			return fmt.Errorf("EXECUTABLE %s: %w", shown.Name(r.executable), err)
		}
	}
	t, err := core.Target(ctx, r.how(s))
	if err != nil {
		return err
	}
	groups := stacks.NewGroups(s.cache, r.merged(t))
	r.add(s, groups, t)
	r.write(r.coreName(), groups, t)
	return nil
}
