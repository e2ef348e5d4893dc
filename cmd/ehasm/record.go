package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/recorder"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/timeline"
	"github.com/ehasm/ehasm/unwind"

	"github.com/spf13/pflag"
)

// This file is record, and the flags that top, agent and heap share with it: one set of options, of which each verb
// declares a part. What is checked here needs no system; package recorder checks the rest.

const recordHelp = `Profile a program while it runs. record takes samples from the kernel, unwinds
them at once, and writes only the profile, with names: there is no perf.data.
For root, most stacks are unwound in the kernel (--unwind); of others, a part is
copied. If that is too short, record reads the rest from the program, and uses
it if three earlier samples of the thread agree.

Usage:
  ehasm record [flags] [--] COMMAND [ARGUMENT...]
  ehasm record [flags] -p PID[,PID...]
  ehasm record [flags] --name PATTERN | --unit UNIT | --container ID
  ehasm record [flags] -a
`

// eventsText explains -e in the help of several verbs.
const eventsText = `Samples are taken by the processor's cycles if it counts them, otherwise by
cpu-clock. -e takes one or several events of perf list (page-faults,
context-switches, instructions, L1-dcache-load-misses, cycles:u, r1c2),
tracepoints (sched:sched_switch, with --filter as in perf) and probes:
uprobe:FILE:FUNCTION, kprobe:FUNCTION, and uretprobe and kretprobe for returns.
Each fault, switch, tracepoint and probe is a sample; with -c, every Nth is.
Tracepoints and probes need root.
`

// rightsText says who may record what.
const rightsText = `Without privileges you can record your own programs, without the time that they
spend in the kernel. For that time, for other users' programs and for -a, be
root, have CAP_PERFMON, or lower kernel.perf_event_paranoid.
`

// labelsText explains --labels.
const labelsText = `--labels takes a list of comm, pid, tid, executable, build-id, cgroup,
container, host and cpu, or none. Samples of pprof files get these labels, with
OpenTelemetry's keys, such as process.pid.
`

const recordMore = `The name of the output chooses its format: .pb.gz for go tool pprof, .svg is a
flame graph for a browser, .folded for flamegraph.pl and the like. .json,
.perf.txt, .perf.data (perf report) and the timeline .json.gz
(profiler.firefox.com) have every sample. .pb.gz has values for several events.
Samples that the kernel lost are a separate box, and stacks that are not
complete begin with [truncated].

COMMAND keeps its terminal, its signals and its exit status; ^C ends it, and the
profile is still written. The recording ends with the command, with the
processes of -p, after --duration, or with ^C. -p includes the children that a
process has already. Without a sample, record says why; with -p and -a the exit
status is then 1.

` + eventsText + `
--off-cpu counts the time that threads are blocked, by the stack that blocks
them: in .pb.gz nanoseconds, in .svg and .folded microseconds. It needs the
right to see the kernel. With -p and --name it stops threads that were blocked
all the time for a moment at the end, as 'ehasm stack' does.

` + labelsText + `With -a the default is comm,pid,tid.

` + rightsText + `
See also: 'ehasm top' shows functions while they run, 'ehasm heap' records what
a program allocates, 'ehasm agent' records all the time and sends profiles.

Examples:
  ehasm record -- ./server --port 8080
  ehasm record -o flame.svg -- make -j2
  ehasm record -p 1234 --duration 30s -o profile.pb.gz
  ehasm record --name '^nginx' --duration 10s -o nginx.svg
  ehasm record -a --duration 10s -o system.svg
  ehasm record --off-cpu -p 1234 --duration 10s -o blocked.svg
  ehasm record -e uprobe:/lib/x86_64-linux-gnu/libc.so.6:malloc -o m.svg -- ls
`

// recordOptions holds the flags of record and of the verbs like it: values in the words of package recorder, and those
// whose meaning depends on other flags.
type recordOptions struct {
	recorder.Options
	verb   verb       // for messages
	offCPU bool       // --off-cpu, which takeEvents makes an event of
	given  givenFlags // looked at by complete
}

// Defaults of record.
const (
	defaultOutput    = "profile.pb.gz"
	defaultFrequency = 999 // a second; not 1000, so as not to keep step with what a program does each millisecond
	defaultCopy      = 16 << 10
	longerCopy       = 64000 // if that is too short; a sample has at most 65535 bytes in all
	defaultRecordMax = 8192
	defaultRing      = 16 << 20 // with up to manyCPUs; 8 MB lost samples of 400 busy processes on two CPUs
	smallRing        = 8 << 20  // with more
	manyCPUs         = 16
)

// givenFlags holds the values of flags that are parsed after all have been given: what --format may be depends on -o,
// which may come later. A verb without one of the flags leaves its default.
type givenFlags struct {
	fs                       *pflag.FlagSet
	format, pointers, unwind *string
	labels                   *[]string
}

// changed reports whether a flag was given. Of a flag that the verb does not have, it was not.
func (g *givenFlags) changed(name string) bool { return g.fs.Lookup(name) != nil && g.fs.Changed(name) }

// newRecordOptions returns the options of a verb before its flags are declared: flags keep pointers into it. It has
// the defaults of flags that the verb may not declare.
func newRecordOptions(v verb, fs *pflag.FlagSet) *recordOptions {
	format, pointers, where := "", "always", "auto"
	opt := &recordOptions{verb: v, given: givenFlags{fs, &format, &pointers, &where, &[]string{"comm"}}}
	opt.Sampling.Frequency, opt.Sampling.Copy, opt.Sampling.MaxStack = defaultFrequency, defaultCopy, defaultRecordMax
	opt.Sampling.Refill, opt.Run.Cache = true, true
	return opt
}

// recordVerb is the verb record. Its flags end at the command's name.
func recordVerb() verb {
	v := verb{name: "record", brief: "profile a program, or the system, while it runs", help: recordHelp, more: recordMore,
		command: true, groups: recordGroups()}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := newRecordOptions(v, fs)
		opt.outputFlags()
		opt.targetFlags("record")
		opt.eventFlags()
		fs.BoolVar(&opt.offCPU, "off-cpu", false, "count the time that threads are blocked")
		opt.nameFlags()
		opt.given.labels = declareLabels(fs)
		fs.StringVar(&opt.Output.Raw, "raw", "", "also write the samples to this perf.data `FILE`")
		opt.walkFlags()
		return opt.run
	}
	return v
}

// outputFlags declares where the profile goes, and what is told of it.
func (opt *recordOptions) outputFlags() {
	fs := opt.given.fs
	fs.StringVarP(&opt.Output.Path, "output", "o", defaultOutput,
		"write to this `FILE`; its name chooses the format; -: text")
	opt.given.format = fs.String("format", "", "`FORMAT`, whatever the output's name: "+formatNames(recordFormats()...))
	fs.StringVar(&opt.Output.Stats, "stats", "", "write the summary as JSON to `FILE`; -: standard error")
	fs.BoolVarP(&opt.Run.Quiet, "quiet", "q", false, "write no summary")
}

// targetFlags declares which processes are recorded, and for how long. do is what the verb does with them.
func (opt *recordOptions) targetFlags(do string) {
	fs := opt.given.fs
	fs.IntSliceVarP(&opt.Target.PIDs, "pid", "p", nil, do+" process `PID` and its children; several: 12,34")
	fs.BoolVarP(&opt.Target.All, "all", "a", false, do+" the whole system")
	fs.StringVar(&opt.Target.Selection.Name, "name", "", "processes whose names match `PATTERN`, as with pgrep")
	fs.StringVar(&opt.Target.Selection.Unit, "unit", "", "the processes of this systemd `UNIT`")
	fs.StringVar(&opt.Target.Selection.Container, "container", "", "the processes of the container `ID`")
	fs.StringVar(&opt.Target.Cgroup, "cgroup", "", "with -a: only this group, a `FOLDER` of /sys/fs/cgroup")
	fs.VarP((*seconds)(&opt.Run.Limit), "duration", "d", "end after this `TIME`: 5 (seconds), 10m")
}

// eventFlags declares when samples are taken.
func (opt *recordOptions) eventFlags() {
	fs := opt.given.fs
	fs.VarP((*frequency)(&opt.Sampling.Frequency), "frequency", "F", "`N` samples a second of each running CPU, or max")
	fs.VarP(&opt.Sampling.Events, "event", "e",
		"sample at this `EVENT`: cycles, cpu-clock, page-faults ...; or several: a,b")
	fs.Var(recorder.Filter{Events: &opt.Sampling.Events}, "filter",
		"of the tracepoints before, only those that fulfil `EXPR`")
	fs.Uint64VarP(&opt.Sampling.Period, "count", "c", 0, "take a sample every `N` events, instead of -F N a second")
}

// nameFlags declares what is told of a frame.
func (opt *recordOptions) nameFlags() {
	fs, names := opt.given.fs, &opt.Output.Names
	fs.BoolVar(&names.Mangled, "no-demangle", false, "do not demangle names")
	fs.BoolVar(&names.Inline, "inline", false, "show inlined functions as frames")
	fs.BoolVar(&names.Lines, "lines", false, "show the source file and line of each frame")
	fs.BoolVar(&names.Signatures, "signatures", false, "show functions with their parameters, if types are known")
}

// walkFlags declares how stacks are found.
func (opt *recordOptions) walkFlags() {
	fs, s := opt.given.fs, &opt.Sampling
	sizeFlag(fs, "stack-copy", "copy `SIZE` of each stack (default 16K, 8K for -a as root; 64000 if too little)", 0,
		func(n uint64) { s.Copy = int(n) })
	opt.given.unwind = fs.String("unwind", "auto", "`WHERE` stacks are unwound: in the kernel, in a copy, or auto")
	fs.IntVar(&s.MaxStack, "max-stack", defaultRecordMax, "at most `N` frames of user code per stack")
	sizeFlag(fs, "ring", "memory of `SIZE` for a CPU's samples (default 16M, with many CPUs 8M)", 1,
		func(n uint64) { s.Ring = int(n) })
	opt.given.pointers = fs.String("frame-pointers", "always", "`WHEN` to guess by rbp: always, gaps, never")
	synthFlag(fs, &s.TablesOnly)
	fs.BoolVar(&opt.Run.Cache, "cache", true, "when done, keep new eh_elfs in the cache")
}

// run checks what the flags say, and records.
func (opt *recordOptions) run(ctx context.Context, args []string, c *console) int {
	opt.Output.Named = opt.given.changed("output")
	if err := opt.complete(args); err != nil {
		return opt.verb.misuse(c, err)
	}
	return opt.record(ctx, args, c)
}

// complete checks the flags and arguments and completes the options, for record itself and all verbs like it. The
// error is a usage error.
func (opt *recordOptions) complete(args []string) error {
	// a size that was asked for stays; else copies grow when too many stacks are cut
	if !opt.given.changed("stack-copy") {
		opt.Sampling.Grow = longerCopy
	}
	switch {
	case opt.given.changed("count") && opt.given.changed("frequency"):
		return errors.New("-c and -F exclude each other")
	case opt.given.changed("count") && opt.Sampling.Period == 0:
		return errors.New("-c 0: want at least 1")
	case opt.Sampling.Period > math.MaxInt64: // the kernel refuses more
		return fmt.Errorf("-c %d: want at most %d", opt.Sampling.Period, int64(math.MaxInt64))
	}
	if err := opt.parse(*opt.given.format, *opt.given.pointers, args); err != nil {
		return err
	}
	if err := opt.parseLabels(*opt.given.labels, opt.given.changed("labels")); err != nil {
		return err
	}
	return output.Distinct(nil, opt.Output.Path, opt.Output.Raw, opt.Output.Stats)
}

// parse is the part of complete that is the same for all formats of the command line: targets, events, sizes, and what
// goes with the format. format and pointers are the texts of flags.
func (opt *recordOptions) parse(format, pointers string, args []string) (err error) {
	targets := 0
	for _, is := range []bool{len(args) > 0, len(opt.Target.PIDs) > 0, opt.Target.All,
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
		return errors.New("a command, -p, --name, --unit, --container and -a exclude each other")
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
	if err := opt.takeEvents(); err != nil {
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
	if opt.Sampling.Unwind, err = record.ParseUnwind(*opt.given.unwind); err != nil {
		return fmt.Errorf("--unwind: %w", err)
	}
	if opt.Sampling.Pointers, err = unwind.ParseFramePointers(pointers); err != nil {
		return fmt.Errorf("--frame-pointers: %w", err)
	}
	// the name of a folder chooses no format
	if opt.Run.Every > 0 && format == "" {
		format = "pprof"
	}
	if opt.Push.URL != "" && format != "pprof" {
		return errors.New("--push: profiles are sent as pprof")
	}
	if err := opt.findFormat(format); err != nil {
		return err
	}
	if err := effective(opt.given.fs, opt.Output.Format); err != nil {
		return err
	}
	if err := opt.checkChains(); err != nil {
		return err
	}
	if err := opt.oneValue(); err != nil {
		return err
	}
	if opt.Output.Format.Samples && opt.Inside.Alloc != "" {
		return errors.New("a heap profile counts stacks: want .pb.gz, .svg or .folded")
	}
	return nil
}

// parseLabels checks --labels. Without it, samples of the whole system have their processes and threads.
func (opt *recordOptions) parseLabels(names []string, given bool) (err error) {
	if opt.Output.Labels, err = labels.Parse(names); err != nil {
		return fmt.Errorf("--labels: %w", err)
	}
	if !given && opt.Target.All && opt.Push.URL == "" { // a server would keep a series for each thread
		opt.Output.Labels |= labels.PID | labels.TID
	}
	if !slices.Contains(opt.Output.Format.Settings, "labels") {
		opt.Output.Labels = labels.Comm // others would only make more stacks different
	}
	return nil
}

// findFormat finds the format by its name, or by the output's; standard output gets text.
func (opt *recordOptions) findFormat(format string) (err error) {
	path := opt.Output.Path
	if path == "-" {
		path = ".folded"
	}
	if opt.Output.Format, err = formatOf(format, path); err == nil && opt.Output.Format == nil {
		err = fmt.Errorf("-o %s: unknown suffix: want .pb.gz, .svg, .folded, .json, .json.gz, .perf.txt or perf.data, or --format", output.Name(path))
	}
	return err
}

// recordFormats are those of record besides stackfmt.Specs.
func recordFormats() []*stackfmt.Spec {
	return []*stackfmt.Spec{timeline.Spec(), chainsSpec()}
}

// checkChains checks what goes with a perf.data file as the output. It is written by offset, header last, so a pipe
// cannot take it; and it has one recording, so no parts.
func (opt *recordOptions) checkChains() error {
	o := &opt.Output
	switch {
	case o.Format.New != nil:
		return nil
	case o.Path == "-":
		return errors.New("-o -: a perf.data file cannot be written to a pipe")
	case opt.Run.Top || opt.Run.Every+opt.Run.Flight > 0:
		return fmt.Errorf("%s writes no perf.data: record does", opt.verb.name)
	case o.Raw != "" || slices.Contains(opt.Sampling.Events.Names(), "off-cpu"):
		return errors.New("the format perf.data goes with neither --raw nor --off-cpu")
	}
	return nil
}

// takeEvents takes the events of all flags, and refuses those that exclude others. Names are looked up later.
func (opt *recordOptions) takeEvents() error {
	s := &opt.Sampling
	if opt.offCPU {
		if len(s.Events.List) > 0 {
			return errors.New("--off-cpu and --event exclude each other")
		}
		s.Events.Set("off-cpu")
	}
	several := len(s.Events.List) > 1
	switch {
	case slices.Contains(s.Events.Names(), "off-cpu") && (several || s.Period > 0):
		return errors.New("off-cpu excludes other events and -c")
	case several && (opt.Run.Top || opt.Push.URL != ""):
		return fmt.Errorf("%s: several events are for record", opt.verb.name)
	}
	return nil
}

// oneValue returns an error if the format adds up samples that cannot be added up: cycles and page faults, say.
func (opt *recordOptions) oneValue() error {
	if f := opt.Output.Format; len(opt.Sampling.Events.List) > 1 && !f.Samples && !f.Values {
		return fmt.Errorf("the format %s holds one event: for several want .pb.gz, .json, .perf.txt or a timeline", f.Name)
	}
	return nil
}

// record runs the recording, for all verbs like it, and returns the exit status: the command's, if one was recorded.
func (opt *recordOptions) record(ctx context.Context, args []string, c *console) int {
	if opt.Output.Format.Binary && opt.Output.Path == "-" && isTerminal(c.out.w) {
		c.fail("standard output", errors.New("the profile is binary and this is a terminal: name a file with -o"))
		return exitFailed
	}
	status, err := recorder.Run(ctx, args, &opt.Options, reporter{c, opt.verb.name})
	var named *recorder.Error
	var usage *recorder.UsageError
	switch {
	case err == nil:
	case errors.As(err, &usage):
		return opt.verb.misuse(c, usage)
	case errors.As(err, &named):
		c.fail(named.Name, named.Err)
		if named.NotRun {
			return commandStatus(named.Err)
		}
	default:
		c.fail(opt.verb.name, err)
	}
	return status
}
