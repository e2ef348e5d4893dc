package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/recorder"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/timeline"
	"github.com/ehasm/ehasm/unwind"

	"github.com/spf13/pflag"
)

const recordHelp = `Profile a program while it runs. record unwinds stacks in the kernel's ring buffers,
through eh_elfs and rows on demand, and writes only the profile, with names. There is
no perf.data. If the kernel's copy of a stack is too short, record reads the rest from
the program, and uses it if three earlier samples of the thread agree.

Usage:
  ehasm record [flags] [--] COMMAND [ARGUMENT...]
  ehasm record [flags] -p PID[,PID...]
  ehasm record [flags] --name PATTERN | --unit UNIT | --container ID
  ehasm record [flags] -a
  ehasm record --top [-p PID | -a | COMMAND]
  ehasm record --dump PID
`

const recordMore = `The name of the output chooses its format: .pb.gz for go tool pprof, .svg is a flame
graph for a browser, .folded for flamegraph.pl and the like. .json, .perf.txt, .perf.data
(perf report) and the timeline .json.gz (profiler.firefox.com) have every sample.
Samples that the kernel lost are a separate box, and stacks that are not complete begin
with [truncated].

COMMAND keeps its terminal, its signals and its exit status; ^C ends it, and the profile
is still written. The recording ends with the command, with the processes of -p, after
--duration, or with ^C. -p includes the children that a process has already. Without a
sample, record says why; with -p and -a the exit status is then 1.

Samples are taken by the processor's cycles if it counts them, otherwise by cpu-clock.
-e takes one or several events of perf list (page-faults, context-switches, instructions,
L1-dcache-load-misses, cycles:u, r1c2), tracepoints (sched:sched_switch, with --filter as in
perf) and probes: uprobe:FILE:FUNCTION, kprobe:FUNCTION, and uretprobe and kretprobe for
returns. .pb.gz has values for each. Each fault, switch, tracepoint and probe is a sample;
with -c, every Nth is. Tracepoints and probes need root.

--off-cpu counts the time that threads are blocked, by the stack that blocks them: in
.pb.gz nanoseconds, in .svg and .folded microseconds. It needs the right to see the kernel.

With --every, record writes a profile into a folder each time, until the recording ends.
With --flight it keeps only the last minutes, in memory. It writes them at the end, on
SIGUSR2, and on 'ehasm record --dump PID' from elsewhere, with the time in the name.

--top shows on the terminal, each second, where the time of the last five seconds went:
functions, or after tab the tree of stacks. q ends it and the command; a profile is written
only with -o. The command's own terminal output goes to /dev/null unless it is redirected.

--alloc records what COMMAND allocates, with a library that is preloaded into it. It takes a
sample every 512 KB on average; objects of all sizes count in proportion. As a heap profile,
.pb.gz has what was allocated, and what is live at the end or after --duration. SIGUSR2
writes another file, with the time in its name. Processes that COMMAND starts are recorded,
too; programs with their own malloc, or without a dynamic loader, are not. --alloc unwinds
with eh_elfs, and builds those that the cache lacks first; --with names libraries that are
loaded later.

--push sends profiles to Grafana Pyroscope, to an OpenTelemetry Collector (otlp) or to
any server that takes pprof files by POST. If the server is unreachable, record tries each
profile again, for about a minute. It counts those that it could not send, and writes them
to the folder of -o, if there is one. Other users can read the command line: keep secret
headers in a file, --push-header @FILE, or in the environment variable EHASM_PUSH_HEADER, a
line each.

--labels takes a list of comm, pid, tid, executable, build-id, cgroup, container, host and
cpu, or none. Samples of pprof files get these labels, with OpenTelemetry's keys, such as
process.pid.
With -a and without --push the default is comm,pid,tid.

Without privileges you can record your own programs, without the time that they spend in
the kernel. For that time, for other users' programs and for -a, be root, have
CAP_PERFMON, or lower kernel.perf_event_paranoid.

Examples:
  ehasm record -- ./server --port 8080
  ehasm record -o flame.svg -- make -j2
  ehasm record -p 1234 --duration 30s -o profile.pb.gz
  ehasm record --name '^nginx' --duration 10s -o nginx.svg
  ehasm record -a --duration 10s -o system.svg
  ehasm record --off-cpu -p 1234 --duration 10s -o blocked.svg
  ehasm record -a --every 60s -o profiles
  ehasm record -a --push http://pyroscope:4040 --push-name shop
  ehasm record --flight 10m -o server.pb.gz -- ./server
  ehasm record -e uprobe:/lib/x86_64-linux-gnu/libc.so.6:malloc -o malloc.svg -- ./program
  ehasm record --top -p 1234
  ehasm record --alloc -o heap.pb.gz -- ./server
  ehasm record --alloc=total -o allocated.svg -- python3 work.py
`

// recordOptions holds the flags of record.
type recordOptions struct {
	recorder.Options
	offCPU, faults bool
	dump           int // a process; 0: something is recorded
}

// Defaults of record.
const (
	defaultOutput    = "profile.pb.gz"
	defaultFrequency = 999
	defaultCopy      = 16 << 10
	longerCopy       = 64000 // if that is too short; a sample has at most 65535 bytes in all
	defaultRecordMax = 1024
	defaultRing      = 16 << 20 // with up to manyCPUs; 8 MB lost samples of 400 busy processes on two CPUs
	smallRing        = 8 << 20  // with more
	manyCPUs         = 16
	defaultPush      = 15 * time.Second

	defaultAllocPeriod = 512 << 10
)

func recordVerb() verb {
	v := verb{name: "record", brief: "profile a program, or the system, while it runs", help: recordHelp, more: recordMore, command: true, groups: recordGroups()}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &recordOptions{}
		fs.StringVarP(&opt.Output.Path, "output", "o", defaultOutput, "write to this `FILE`; its name chooses the format")
		format := fs.String("format", "", "`FORMAT`, whatever the output's name: "+formatNames(recordFormats()...))
		fs.IntSliceVarP(&opt.Target.PIDs, "pid", "p", nil, "record process `PID` and its children; several: 12,34")
		fs.BoolVarP(&opt.Target.All, "all", "a", false, "record the whole system")
		fs.StringVar(&opt.Target.Selection.Name, "name", "", "record processes whose names match `PATTERN`, as with pgrep, and their children")
		fs.StringVar(&opt.Target.Selection.Unit, "unit", "", "record the processes of this systemd `UNIT`, and their children")
		fs.StringVar(&opt.Target.Selection.Container, "container", "", "record the processes of the container `ID`, and their children")
		fs.StringVar(&opt.Target.Cgroup, "cgroup", "", "with -a: only this control group, a `FOLDER` of /sys/fs/cgroup")
		fs.VarP((*seconds)(&opt.Run.Limit), "duration", "d", "end the recording after this `TIME`: 5 (seconds), 10m")
		opt.Sampling.Frequency = defaultFrequency
		fs.VarP((*frequency)(&opt.Sampling.Frequency), "frequency", "F", "take `N` samples a second of each running CPU; max: as many as allowed")
		fs.BoolVar(&opt.offCPU, "off-cpu", false, "count the time that threads are blocked")
		fs.BoolVar(&opt.faults, "faults", false, "count page faults")
		fs.BoolVar(&opt.Run.Top, "top", false, "show functions and stacks on the terminal, each second")
		fs.DurationVar(&opt.Run.Every, "every", 0, "write a profile each `TIME` into the folder -o")
		fs.DurationVar(&opt.Run.Flight, "flight", 0, "keep the last `TIME` in memory, and write it on request")
		fs.IntVar(&opt.dump, "dump", 0, "make process `PID`, a recording with --flight, write what it keeps")
		fs.StringVar(&opt.Push.URL, "push", "", "send a profile each --every (15s) to the server at `URL`")
		fs.StringVar(&opt.Push.Protocol, "push-as", "pyroscope", "send as `PROTOCOL`: pyroscope, otlp, pprof")
		fs.StringVar(&opt.Push.Name, "push-name", "", "`NAME` of the service there; default: the command's name, or ehasm")
		fs.StringArrayVar(&opt.Push.Labels, "push-label", nil, "further label: `PAIR` is NAME=VALUE; may be repeated")
		fs.StringArrayVar(&opt.Push.Headers, "push-header", nil, "header of each request: `LINE` is 'NAME: VALUE', or @FILE of such; may be repeated")
		fs.VarP(&opt.Sampling.Events, "event", "e", "sample at this `EVENT`: cycles, cpu-clock, page-faults, ...; several: a,b")
		fs.Var(recorder.Filter{Events: &opt.Sampling.Events}, "filter", "of the tracepoints of -e before, only those that fulfil `EXPR`")
		fs.Uint64VarP(&opt.Sampling.Period, "count", "c", 0, "take a sample every `N` events, instead of -F N a second")
		opt.Sampling.Copy = defaultCopy
		sizeFlag(fs, "stack-copy", "copy `SIZE` of each stack (default 16K, 64000 where that is too little)", 0, func(n uint64) { opt.Sampling.Copy = int(n) })
		refill := fs.String("refill", "auto", "`WHEN` to complete stacks longer than the copy: auto, never")
		fs.IntVar(&opt.Sampling.MaxStack, "max-stack", defaultRecordMax, "at most `N` frames of user code per stack")
		sizeFlag(fs, "ring", "memory of `SIZE` for the samples of a CPU (default 16M, with many CPUs 8M)", 1, func(n uint64) { opt.Sampling.Ring = int(n) })
		fs.BoolVar(&opt.Sampling.Realtime, "realtime", false, "read samples at real-time priority (root): none are lost on a busy machine")
		pointers := fs.String("frame-pointers", "always", "`WHEN` to guess by rbp: always, gaps, never")
		fs.StringVar(&opt.Inside.Alloc, "alloc", "", "record what COMMAND allocates; .svg and .folded of `WHAT`: live, total")
		fs.Lookup("alloc").NoOptDefVal = recorder.HeapLive
		opt.Inside.Period = defaultAllocPeriod
		sizeFlag(fs, "alloc-period", "sample an allocation each `SIZE` of bytes, on average (default 512K)", 1, func(n uint64) { opt.Inside.Period = n })
		fs.StringArrayVar(&opt.Inside.With, "with", nil, "with --alloc: build for this `PATH`, too; may be repeated")
		synthFlag(fs, &opt.Sampling.TablesOnly)
		source := fs.String("source", "auto", "unwind by `SECTION`: eh_frame, debug_frame, sframe or auto, as in build")
		labelNames := declareLabels(fs)
		fs.StringVar(&opt.Output.Raw, "raw", "", "also write the samples to this perf.data `FILE`")
		fs.BoolVar(&opt.Output.Names.Mangled, "no-demangle", false, "do not demangle names")
		fs.BoolVar(&opt.Output.Names.Inline, "inline", false, "show inlined functions as frames")
		fs.BoolVar(&opt.Output.Names.Lines, "lines", false, "show the source file and line of each frame")
		fs.BoolVar(&opt.Output.Names.Signatures, "signatures", false, "show functions with their parameters, if types are known")
		fs.BoolVar(&opt.Run.Cache, "cache", true, "when done, keep new eh_elfs in the cache")
		fs.StringVar(&opt.Output.Stats, "stats", "", "write the summary as JSON to `FILE`; -: standard error")
		fs.BoolVarP(&opt.Run.Quiet, "quiet", "q", false, "write no summary")
		return func(ctx context.Context, args []string, c *console) int {
			if opt.Push.URL != "" && opt.Run.Every == 0 {
				opt.Run.Every = defaultPush
			}
			opt.Output.Named = fs.Changed("output")
			if !fs.Changed("stack-copy") && *refill == "auto" {
				opt.Sampling.Grow = longerCopy
			}
			err := opt.parseInside(len(args) > 0, fs.Changed("alloc"), fs.Changed("alloc-period"))
			switch {
			case fs.Changed("count") && fs.Changed("frequency"):
				err = errors.New("-c and -F exclude each other")
			case fs.Changed("count") && opt.Sampling.Period == 0:
				err = errors.New("-c 0: want at least 1")
			case opt.Sampling.Period > math.MaxInt64: // the kernel refuses more
				err = fmt.Errorf("-c %d: want at most %d", opt.Sampling.Period, int64(math.MaxInt64))
			}
			if err == nil {
				err = opt.parse(*format, *refill, *pointers, args)
			}
			if err == nil {
				err = opt.parseLabels(*labelNames, fs.Changed("labels"))
			}
			if err == nil {
				if opt.Sampling.Source, err = dwarfcfa.ParseSource(*source); err != nil {
					err = fmt.Errorf("--source: %w", err)
				}
			}
			if err == nil {
				err = output.Distinct(nil, opt.Output.Path, opt.Output.Raw, opt.Output.Stats)
			}
			if err != nil {
				return v.misuse(c, err)
			}
			return runRecord(ctx, args, opt, c)
		}
	}
	return v
}

// parse checks the flags and arguments and completes the options.
func (opt *recordOptions) parse(format, refill, pointers string, args []string) (err error) {
	targets := 0
	for _, is := range []bool{len(args) > 0, len(opt.Target.PIDs) > 0, opt.Target.All, opt.dump != 0,
		opt.Target.Selection.Name != "", opt.Target.Selection.Unit != "", opt.Target.Selection.Container != ""} {
		if is {
			targets++
		}
	}
	switch {
	case targets == 0:
		return errors.New("nothing to record: give a command, -p PID or -a")
	case opt.Target.All && len(args) > 0:
		return errors.New("-a records everything, without a command: say how long with -d SECONDS")
	case targets > 1:
		return errors.New("a command, -p, --name, --unit, --container, -a and --dump exclude each other")
	case opt.dump < 0:
		return fmt.Errorf("--dump %d: not a process", opt.dump)
	case opt.Target.Cgroup != "" && !opt.Target.All:
		return errors.New("--cgroup goes with -a")
	case opt.Sampling.Frequency < 1:
		return errors.New("-F 0: want at least 1")
	case opt.Run.Limit < 0:
		return fmt.Errorf("--duration %v: want a time", opt.Run.Limit)
	case opt.Sampling.Ring&(opt.Sampling.Ring-1) != 0:
		return fmt.Errorf("--ring %d: want a power of two", opt.Sampling.Ring)
	}
	if err := opt.Target.Selection.Check(); err != nil {
		return err
	}
	if err := opt.parseContinuous(); err != nil {
		return err
	}
	if opt.Sampling.Ring == 0 {
		opt.Sampling.Ring = defaultRing
		if runtime.NumCPU() > manyCPUs {
			opt.Sampling.Ring = smallRing
		}
	}
	for _, pid := range opt.Target.PIDs {
		if pid < 1 {
			return fmt.Errorf("-p %d: not a process", pid)
		}
	}
	slices.Sort(opt.Target.PIDs)
	opt.Target.PIDs = slices.Compact(opt.Target.PIDs) // one that is named twice would be sampled twice
	switch refill {
	case "auto":
		opt.Sampling.Refill = true
	case "never":
	default:
		return fmt.Errorf("--refill %q: want auto or never", refill)
	}
	if opt.Sampling.Pointers, err = unwind.ParseFramePointers(pointers); err != nil {
		return fmt.Errorf("--frame-pointers: %w", err)
	}
	if opt.Run.Every > 0 && format == "" {
		format = "pprof"
	}
	if opt.Push.URL != "" && format != "pprof" {
		return errors.New("--push: profiles are sent as pprof")
	}
	if err := opt.findFormat(format); err != nil {
		return err
	}
	if err := opt.checkChains(); err != nil {
		return err
	}
	if err := opt.oneValue(); err != nil {
		return err
	}
	if opt.Output.Format.Samples && opt.Inside.Alloc != "" {
		return errors.New("--alloc counts stacks: want .pb.gz, .svg or .folded")
	}
	return nil
}

// parseLabels checks --labels. Without it, samples of the whole system have their processes and threads.
func (opt *recordOptions) parseLabels(names []string, given bool) (err error) {
	if opt.Output.Labels, err = labels.Parse(names); err != nil {
		return fmt.Errorf("--labels: %w", err)
	}
	switch {
	case !given && opt.Target.All && opt.Push.URL == "": // a server would keep a series for each thread
		opt.Output.Labels |= labels.PID | labels.TID
	case given && !slices.Contains(opt.Output.Format.Settings, "labels"):
		return fmt.Errorf("--labels has no effect in the format %s", opt.Output.Format.Name)
	case opt.Output.Labels&^labels.Comm != 0 && opt.Inside.Alloc != "":
		return errors.New("--alloc allows no label but comm")
	}
	if !slices.Contains(opt.Output.Format.Settings, "labels") {
		opt.Output.Labels = labels.Comm // others would only make more stacks different
	}
	return nil
}

// findFormat finds the format by its name, or by the output's.
func (opt *recordOptions) findFormat(format string) (err error) {
	if format != "" {
		opt.Output.Format, err = stackfmt.ByName(format, recordFormats()...)
		if err != nil {
			err = fmt.Errorf("--format: %w", err)
		}
		return err
	}
	opt.Output.Format = stackfmt.ByPath(opt.Output.Path, recordFormats()...)
	switch path := output.Name(opt.Output.Path); {
	case opt.Output.Format != nil:
		return nil
	default:
		return fmt.Errorf("-o %s: unknown suffix: want .pb.gz, .svg, .folded, .json, .json.gz, .perf.txt or perf.data, or --format", path)
	}
}

// recordFormats are those of record besides stackfmt.Specs.
func recordFormats() []*stackfmt.Spec {
	return []*stackfmt.Spec{timeline.Spec(), chainsSpec()}
}

// checkChains checks what goes with a perf.data file as the output.
func (opt *recordOptions) checkChains() error {
	o, names := &opt.Output, &opt.Output.Names
	switch {
	case o.Format.New != nil:
		return nil
	case o.Path == "-":
		return errors.New("-o -: a perf.data file cannot be written to a pipe")
	case opt.Run.Top || opt.Run.Every+opt.Run.Flight > 0 || o.Raw != "" || slices.Contains(opt.Sampling.Events.Names(), "off-cpu"):
		return errors.New("the format perf.data goes with none of --top, --every, --flight, --raw and --off-cpu")
	case names.Inline || names.Lines || names.Signatures || names.Mangled:
		return errors.New("--inline, --lines, --signatures and --no-demangle have no effect in the format perf.data")
	}
	return nil
}

// parseInside checks what goes with --alloc.
func (opt *recordOptions) parseInside(command, given, periodGiven bool) error {
	switch {
	case given && opt.Inside.Alloc != recorder.HeapLive && opt.Inside.Alloc != recorder.HeapTotal:
		return fmt.Errorf("--alloc=%s: want live or total", opt.Inside.Alloc)
	case periodGiven && !given:
		return errors.New("--alloc-period goes with --alloc")
	case len(opt.Inside.With) > 0 && !given:
		return errors.New("--with goes with --alloc")
	case !given:
		return nil
	case !command || len(opt.Target.PIDs) > 0 || opt.Target.All:
		return errors.New("--alloc needs a command: it is in the program from its start on")
	case opt.Run.Top || opt.Run.Every+opt.Run.Flight > 0 || opt.Push.URL != "" || opt.Output.Raw != "" || opt.offCPU || opt.faults || len(opt.Sampling.Events.List) > 0:
		return errors.New("--alloc goes with none of --top, --every, --flight, --push, --raw, --off-cpu, --faults and --event")
	}
	return nil
}

// takeEvents takes the events of all flags.
func (opt *recordOptions) takeEvents() error {
	s := &opt.Sampling
	given := 0
	for name, is := range map[string]bool{"page-faults": opt.faults, "off-cpu": opt.offCPU, "": len(s.Events.List) > 0} {
		if is {
			given++
		}
		if is && name != "" {
			s.Events.Set(name)
		}
	}
	several := len(s.Events.List) > 1
	switch {
	case given > 1:
		return errors.New("--off-cpu, --faults and --event exclude each other")
	case slices.Contains(s.Events.Names(), "off-cpu") && (several || s.Period > 0):
		return errors.New("off-cpu excludes other events and -c")
	case several && (opt.Run.Top || opt.Push.URL != ""):
		return errors.New("several events exclude --top and --push")
	}
	return nil
}

// oneValue returns an error if the format adds up samples that cannot be added up.
func (opt *recordOptions) oneValue() error {
	if f := opt.Output.Format; len(opt.Sampling.Events.List) > 1 && !f.Samples && !f.Values {
		return fmt.Errorf("the format %s holds one event: for several want .pb.gz, .json, .perf.txt or a timeline", f.Name)
	}
	return nil
}

// parseContinuous checks what goes with --every, --flight and the events that have flags of
// their own.
func (opt *recordOptions) parseContinuous() error {
	const least = time.Second
	if err := opt.takeEvents(); err != nil {
		return err
	}
	offCPU := slices.Contains(opt.Sampling.Events.Names(), "off-cpu")
	switch {
	case opt.Run.Top && (opt.Run.Every+opt.Run.Flight > 0 || offCPU || opt.Output.Raw != "" || opt.Output.Path == "-"):
		return errors.New("--top goes with none of --every, --push, --flight, --off-cpu, --raw and -o -")
	case opt.Run.Every != 0 && opt.Run.Flight != 0:
		return errors.New("--every and --flight exclude each other")
	case opt.Run.Every < 0 || opt.Run.Every > 0 && opt.Run.Every < least:
		return fmt.Errorf("--every %v: want at least %v", opt.Run.Every, least)
	case opt.Run.Flight < 0 || opt.Run.Flight > 0 && opt.Run.Flight < least:
		return fmt.Errorf("--flight %v: want at least %v", opt.Run.Flight, least)
	case offCPU && opt.Run.Every+opt.Run.Flight > 0:
		return errors.New("--off-cpu goes with neither --every nor --flight: what is blocked goes on from one to the next")
	case opt.Run.Every+opt.Run.Flight > 0 && opt.Output.Raw != "":
		return errors.New("--raw goes with neither --every nor --flight")
	case opt.Run.Every+opt.Run.Flight > 0 && opt.Output.Path == "-":
		return errors.New("-o -: --every and --flight write files")
	case opt.Push.URL == "" && len(opt.Push.Labels)+len(opt.Push.Headers)+len(opt.Push.Name) > 0:
		return errors.New("--push-name, --push-label and --push-header go with --push")
	case opt.Run.Every > 0 && !opt.Output.Named && opt.Push.URL == "":
		return errors.New("--every: name a folder with -o")
	}
	return nil
}

// runRecord is the verb.
func runRecord(ctx context.Context, args []string, opt *recordOptions, c *console) int {
	if opt.dump != 0 {
		if err := recorder.Dump(opt.dump); err != nil {
			c.fail(fmt.Sprintf("process %d", opt.dump), err)
		}
		return exitDone // or failed, if c has a failure
	}
	if opt.Output.Format.Binary && opt.Output.Path == "-" && isTerminal(c.out.w) {
		c.fail("standard output", errors.New("the profile is binary and this is a terminal: name a file with -o"))
		return exitFailed
	}
	status, err := recorder.Run(ctx, args, &opt.Options, reporter{c})
	var named *recorder.Error
	var usage *recorder.UsageError
	switch {
	case err == nil:
	case errors.As(err, &usage):
		return verb{name: "record"}.misuse(c, usage)
	case errors.As(err, &named):
		c.fail(named.Name, named.Err)
		if named.NotRun {
			return commandStatus(named.Err)
		}
	default:
		c.fail("record", err)
	}
	return status
}
