package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/debuginfo/debuginfod"
	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/script"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/spf13/pflag"
)

const scriptHelp = `Unwind the samples of a perf.data file, and write their stacks. script reads the
unwind tables of the files that samples are in. Tables that many frames need are
compiled meanwhile, into an eh_elf, or come from the cache that 'ehasm build
--cache' fills, if proven to mean the same. New eh_elfs go into the cache once
the output is written, unless --cache=false.

Usage:
  ehasm script [flags] [FILE]
`

const scriptMore = `Record with registers and a copy of the stack:

  perf record --call-graph dwarf PROGRAM

Formats:

  perf       the text of perf script
  folded     a line per distinct stack with its samples, for flamegraph.pl
  json       an object per sample
  pprof      a profile for go tool pprof
  svg        a flame graph for a browser
  firefox    a timeline of each thread, for https://profiler.firefox.com
  perf.data  the recording itself, with call chains instead of copies of stacks
             and registers: small, safer to share, read quickly by perf

Without --format the name of -o's FILE chooses: .svg, .folded, .json, .pb.gz,
.perf.txt, .json.gz (firefox), perf.data. In folded, stacks whose outermost
frame is unknown begin with [truncated]. Functions of the kernel end in _[k],
those compiled at run time in _[j], inlined ones in _[i].

With --before a flame graph shows how the shares of functions differ from those
of another recording: red for more, blue for less.

script looks for objects under their recorded paths, then by build-id in
~/.debug and /usr/lib/debug. Names also come from separate debug files there and
from /tmp/perf-PID.map. For the kernel they come from the copy of kallsyms in
~/.debug, or for the running one from /proc/kallsyms. --inline and --lines need
DWARF, in the object or its debug file. script fetches missing files from the
debuginfod servers in DEBUGINFOD_URLS, if that is set, and keeps them where gdb
and perf do.

--signatures shows functions with their parameters. They come from DWARF, else
from .BTF sections (for the running kernel, from /sys/kernel/btf), else from
mangled names. A function without any of these keeps its plain name.

--labels takes a list of comm, pid, tid, executable, build-id, cgroup,
container, host and cpu, or none. Samples of pprof files get these labels, with
OpenTelemetry's keys, such as process.pid.

Some code has no unwind information: code compiled at run time, the C run-time's
startup files, some assembler code. For code in files script makes rows, as
'ehasm synth' shows them, unless --synth=off. Elsewhere the walk goes on by
frame pointer, which may skip a caller. --frame-pointers=gaps does so only in
files that have a table without a row for this code, as perf script does, and
otherwise ends the stack. With never and --synth=off, all frames of files come
from unwind information. If the object's file is there, a guessed frame must lie
after a call. json and pprof mark it; svg and the summary count stacks with such
frames separately.

Examples:
  ehasm script | less
  ehasm script -o flame.svg
  ehasm script --signatures -o prototypes.folded
  ehasm script -o callers.svg --reversed --inverted --comm nginx
  ehasm script -i after.data --before before.data -o difference.svg
  ehasm script -o timeline.json.gz
  ehasm script -o small.perf.data && perf report -i small.perf.data
  ehasm script -o prof.pb.gz && go tool pprof -http=: prof.pb.gz
  perf record -o - --call-graph dwarf ls | ehasm script -i -
`

// This file is script: a recording comes in, stacks in a format go out. Flags become script.Options; the rest is the
// life of the output file, which is whole or absent.

// scriptOptions holds the flags of script.
type scriptOptions struct {
	script.Options
	input    string            // a file, a folder of record, or "-" for standard input
	output   string            // a file, or "" for standard output
	stats    string            // a file for the summary as JSON, or "-"; "": none
	before   string            // a recording to compare with
	format   *stackfmt.Spec    // its New makes the writer; nil in New means a recording with call chains
	settings *stackfmt.Options // of the format; shared with the flags
	making   ondemand.Options  // rows on demand and the cache
	quiet    bool              // no summary, no notes and no bar
}

// scriptVerb is the verb script. Without arguments it reads perf.data of the current folder, as perf script does.
func scriptVerb() verb {
	v := verb{name: "script", brief: "unwind the samples of a perf.data file", help: scriptHelp, more: scriptMore}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := &scriptOptions{}
		fs.StringVarP(&opt.input, "input", "i", "perf.data", "read this `FILE`; -: standard input")
		fs.StringVarP(&opt.output, "output", "o", "", "write to this `FILE`")
		format := newFormatFlags(fs)
		opt.settings = &format.settings
		labelNames := declareLabels(fs)
		fs.StringVar(&opt.before, "before", "", "show how shares differ from those of the recording `FILE` (svg)")
		declareJobs(fs, &opt.Workers, "unwind in `N` threads")
		fs.IntVar(&opt.MaxStack, "max-stack", script.DefaultMaxStack, "at most `N` frames of user code per stack")
		pointers := fs.String("frame-pointers", "always", "`WHEN` to guess by rbp: always, gaps, never")
		fs.StringVar(&opt.Objects.Symfs, "symfs", "", "look for recorded paths below this `FOLDER`")
		fs.StringSliceVar(&opt.Filter.Comms, "comm", nil, "only threads with this `NAME`")
		fs.IntSliceVar(&opt.Filter.PIDs, "pid", nil, "only process `N`")
		fs.IntSliceVar(&opt.Filter.TIDs, "tid", nil, "only thread `N`")
		fs.StringSliceVar(&opt.Filter.Events, "event", nil, "only samples of this `EVENT`")
		span := fs.String("time", "", "only samples between `FROM,TO` in seconds; either may be left out")
		fs.BoolVar(&opt.Names.Mangled, "no-demangle", false, "do not demangle names")
		fs.BoolVar(&opt.Names.Inline, "inline", false, "show inlined functions as frames")
		fs.BoolVar(&opt.Names.Signatures, "signatures", false, "show functions with their parameters, if types are known")
		fs.StringVar(&opt.Names.Kallsyms, "kallsyms", "/proc/kallsyms",
			"take kernel functions' names from `FILE`, not perf's copy")
		source := fs.String("source", "auto", "unwind by `SECTION`: eh_frame, debug_frame, sframe or auto, as in build")
		synthFlag(fs, &opt.making.TablesOnly)
		fs.BoolVar(&opt.making.Keep, "cache", true, "when done, keep new eh_elfs in the cache")
		fs.StringVar(&opt.stats, "stats", "", "write the summary as JSON to `FILE`; -: standard error")
		fs.BoolVarP(&opt.quiet, "quiet", "q", false, "write no summary")
		return func(ctx context.Context, args []string, c *console) int {
			// A file that --kallsyms names is believed; /proc/kallsyms is of this machine's kernel
			// alone.
			opt.Names.HostKernel, opt.Names.KernelNotes = !fs.Changed("kallsyms"), kernelNotes
			var err error
			if err := opt.takeInput(args, fs.Changed("input")); err != nil {
				return v.misuse(c, err)
			}
			if opt.format, err = format.choose(opt.output); err != nil {
				return v.misuse(c, err)
			}
			if err := refuseTerminal(opt.format, opt.output, c); err != nil {
				return v.misuse(c, err)
			}
			// The namer adds to frames what the format shows: both get the same two flags.
			opt.settings.Inline, opt.Names.Lines = opt.Names.Inline, opt.settings.Lines
			if opt.Labels, err = labels.Parse(*labelNames); err != nil {
				return v.misuse(c, fmt.Errorf("--labels: %w", err))
			}
			opt.settings.NoComm = !opt.Labels.Has(labels.Comm)
			opt.FramePointers, err = unwind.ParseFramePointers(*pointers)
			if err != nil {
				return v.misuse(c, fmt.Errorf("--frame-pointers: %w", err))
			}
			if opt.making.Source, err = dwarfcfa.ParseSource(*source); err != nil {
				return v.misuse(c, fmt.Errorf("--source: %w", err))
			}
			if *span != "" {
				err = opt.Filter.ParseTime(*span)
			}
			switch {
			case err != nil:
				return v.misuse(c, fmt.Errorf("--time: %w", err))
			case opt.before == "-":
				return v.misuse(c, errors.New("--before -: want a file"))
			case opt.MaxStack < 1:
				return v.misuse(c, fmt.Errorf("--max-stack %d: want at least 1", opt.MaxStack))
			}
			if err := checkJobs(opt.Workers); err != nil {
				return v.misuse(c, err)
			}
			// An output must not replace a recording that is being read.
			if err := output.Distinct(append(recordingParts(opt.input), recordingParts(opt.before)...), opt.output,
				opt.stats); err != nil {
				return v.misuse(c, err)
			}
			// What a flag names must be there. A wrong --symfs would otherwise show only as missing
			// objects.
			for _, path := range opt.named() {
				if _, err := os.Stat(path); err != nil {
					c.fail(path, err)
					return exitFailed
				}
			}
			return runScript(ctx, opt, c)
		}
	}
	return v
}

// runScript is the verb: it opens the recording, writes the stacks, and reports. It returns the exit status. An
// interruption leaves no output file; a recording that is cut short gives what it has, as text.
func runScript(ctx context.Context, opt *scriptOptions, c *console) int {
	opt.making.Symfs = opt.Objects.Symfs
	maker := ondemand.New(opt.making)
	// compiling ends before ctx: once all samples are read, no unfinished eh_elf is of use.
	compiling, stopCompiling := context.WithCancel(ctx)
	defer stopCompiling()
	opt.prepare(ctx, compiling, maker, c)
	r, err := openRecording(opt.input, opt.chains())
	if err != nil {
		c.fail(opt.input, err)
		return exitFailed
	}
	// The output is no more readable than the recording.
	perm := permLike(output.PermText, opt.input)
	ctx, stop := host.Guard(ctx, opt.output)
	defer stop()
	out, err := output.New(opt.output, perm, c.out)
	if err != nil {
		r.Close()
		c.fail(opt.output, err)
		return exitFailed
	}
	// A bar and text on the same terminal would overwrite each other.
	if !opt.quiet && !(out.File() == nil && isTerminal(c.out.w)) {
		c.startReading(recordingSize(opt.input))
		opt.Progress = c.hasRead
	}
	var summary *script.Summary
	// The work runs apart, so that an interruption is answered even while a read blocks.
	if !out.Run(ctx, func() {
		if opt.before != "" {
			opt.settings.Graph.Before = readBefore(ctx, opt, c)
		}
		summary, err = opt.run(ctx, r, out)
		r.Close()
	}) {
		c.stopBar()
		c.fail("interrupted", fmt.Errorf("%s is not written", output.Name(opt.output)))
		return host.InterruptStatus(ctx)
	}
	stopCompiling()
	c.stopBar()
	whole := err == nil
	// Half a recording is no recording, while half of a text is still of use.
	if !whole && opt.chains() {
		out.Abandon()
		if errors.Is(err, perfdata.ErrNoSeek) {
			err = fmt.Errorf("%w: give -o FILE", err)
		}
		c.fail(opt.blamed(out, err), err)
		return exitFailed
	}
	if err != nil && !out.Failed() { // otherwise finish reports it
		c.fail(opt.input, err)
	}
	if err := out.Finish(); err != nil {
		c.fail(opt.output, err)
		whole = false
	}
	if whole && out.File() != nil && !opt.quiet {
		c.note(opt.output, errors.New(opt.format.HowToLook(output.Name(opt.output))))
	}
	opt.report(summary, perm, c)
	// Filling the cache is an extra: it can be interrupted without loss of the output.
	if whole && ctx.Err() == nil {
		ctx, stop := host.InterruptContext(ctx)
		defer stop()
		maker.FillCache(ctx, opt.Workers, filling(c, opt.quiet))
		if ctx.Err() != nil {
			return host.InterruptStatus(ctx)
		}
	}
	return exitDone // or failed, if c has a failure
}

// takeInput takes the recording from the arguments. given says that -i has named one already.
func (opt *scriptOptions) takeInput(args []string, given bool) error {
	switch {
	case len(args) > 0 && given:
		return fmt.Errorf("argument %q: -i names the recording already", args[0])
	case len(args) > 1:
		return fmt.Errorf("argument %q: want one recording", args[1])
	case len(args) == 1:
		opt.input = args[0]
	}
	return nil
}

// chains reports whether the output is a recording with call chains.
func (opt *scriptOptions) chains() bool { return opt.format.New == nil }

// run writes the stacks, or the recording.
func (opt *scriptOptions) run(ctx context.Context, r *perfdata.Reader, out *output.Output) (*script.Summary, error) {
	if opt.chains() {
		return script.RunChains(ctx, r, out, opt.Options)
	}
	opt.Format = opt.format.New(*opt.settings)
	return script.Run(ctx, r, out, opt.Options)
}

// blamed returns the name of the file that an error is about: the output's if writing failed, else the recording's.
func (opt *scriptOptions) blamed(out *output.Output, err error) string {
	switch {
	case !out.Failed() && !errors.Is(err, perfdata.ErrNoSeek):
		return opt.input
	case out.File() == nil:
		return "standard output"
	}
	return opt.output
}

// named returns the paths of flags that must be there; what is looked for without a flag may
// be missing.
func (opt *scriptOptions) named() (paths []string) {
	if opt.Objects.Symfs != "" {
		paths = append(paths, opt.Objects.Symfs)
	}
	if opt.Names.Kallsyms != "" && !opt.Names.HostKernel {
		paths = append(paths, opt.Names.Kallsyms)
	}
	return paths
}

// prepare says where objects and names come from: this machine, unless --symfs names another one's files. compiling
// ends when no more eh_elfs are of use. It opens nothing.
func (opt *scriptOptions) prepare(ctx, compiling context.Context, maker *ondemand.Maker, c *console) {
	// The copy of /proc/kallsyms lies in the cache, and serves until the next boot.
	if opt.making.Keep {
		opt.Names.KernelCopy = builder.KernelCopy(os.Getenv)
	}
	folders := []string{"/tmp"} // of maps
	opt.Objects.DebugDirs = unwind.DefaultDebugDirs()
	opt.Objects.Before = opt.recorded(opt.input)
	// Under --symfs the recorded machine's folders come first.
	if root := opt.Objects.Symfs; root != "" {
		folders = append([]string{filepath.Join(root, "tmp")}, folders...)
		opt.Objects.DebugDirs = append([]string{filepath.Join(root, "usr/lib/debug")}, opt.Objects.DebugDirs...)
	}
	opt.Names.Places = jit.NewPlaces(false, folders...)
	// The vDSO has no file; the running kernel's serves.
	opt.Objects.VDSO = func() ([]byte, error) { return procfs.VDSO("/proc/self") }
	opt.Objects.Prepare = maker.Prepare
	opt.Objects.Compile = func(name string, file io.ReaderAt, size int64) ([]byte, error) {
		return maker.EhElf(compiling, name, file, size)
	}
	if fetch := fetcher(ctx, opt.quiet, c); fetch != nil {
		opt.Objects.Fetch = func(id []byte) (string, error) { return fetch(id, debuginfod.Executable) }
		opt.Names.Fetch = func(id []byte) (string, error) { return fetch(id, debuginfod.DebugInfo) }
	}
}

// recorded returns when the recording at path ended, as far as files of this machine must be older; zero: that is not
// known. A file that was written later is another one than was mapped. Files below --symfs were copied at any time.
func (opt *scriptOptions) recorded(path string) time.Time {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || opt.Objects.Symfs != "" {
		return time.Time{}
	}
	return st.ModTime()
}

// report writes the summary, and the file of --stats.
func (opt *scriptOptions) report(summary *script.Summary, perm fs.FileMode, c *console) {
	// A filter that lets nothing pass gets a reason instead of an empty file.
	if summary.Read > 0 && summary.Samples == 0 {
		c.fail(opt.input, errors.New(summary.Hints[0])) // an empty output is not what was asked for
		summary.Hints = nil
	}
	if !opt.quiet {
		for _, w := range summary.Warnings {
			c.note(opt.input, errors.New(w))
		}
		summary.Text(c.stderr)
	}
	if opt.stats != "" {
		if err := output.WriteStats(opt.stats, perm, summary, c.stderr); err != nil {
			c.fail(opt.stats, err)
		}
	}
}

// kernelNotes is where Linux shows its build-id.
const kernelNotes = "/sys/kernel/notes"

// fetcher returns a function that asks the debuginfod servers of the environment for
// files, or nil if there are no servers. The function returns "" for a file that they
// do not have.
func fetcher(ctx context.Context, quiet bool, c *console) func(buildID []byte, kind debuginfod.Kind) (string, error) {
	client := debuginfod.New(os.Getenv)
	if client == nil {
		return nil
	}
	if !quiet {
		client.Begin = func(from string, kind debuginfod.Kind, size int64) {
			text := "downloading"
			if size >= 0 {
				text = fmt.Sprintf("downloading %.1f MB", float64(size)/1e6)
			}
			c.note(from, errors.New(text))
		}
	}
	return func(buildID []byte, kind debuginfod.Kind) (string, error) {
		path, err := client.Find(ctx, buildID, kind)
		if errors.Is(err, debuginfod.ErrNotFound) {
			return "", nil
		}
		return path, err
	}
}

// readBefore reads the samples to compare with, and reports why there are none. The result, nil after an error, holds
// them for the format that draws both.
func readBefore(ctx context.Context, opt *scriptOptions, c *console) stackfmt.Format {
	r, err := openRecording(opt.before, false)
	if err != nil {
		c.fail(opt.before, err)
		return nil
	}
	defer r.Close()
	// The same settings read the other recording, into the same format, but nothing of it is
	// written.
	before := opt.Options
	before.Progress = nil
	before.Objects.Before = opt.recorded(opt.before)
	before.Format = opt.format.New(*opt.settings)
	summary, err := script.Run(ctx, r, io.Discard, before)
	switch {
	case err != nil:
		c.fail(opt.before, err)
	case summary.Samples == 0:
		c.fail(opt.before, errors.New(summary.Hints[0]))
	}
	return before.Format
}

// openRecording opens a recording. With own, perf's own records are delivered, too, for a copy of the recording. A
// file is mapped: its samples are read once, and copied once, into a batch.
func openRecording(path string, own bool) (*perfdata.Reader, error) {
	if path == "-" {
		return perfdata.NewReader(bufio.NewReaderSize(os.Stdin, 1<<20), perfdata.Options{Own: own})
	}
	return perfdata.Open(path, perfdata.Options{Map: true, Own: own})
}

// recordingParts returns the files of a recording: one, or those of a folder, as perf record --threads makes it.
func recordingParts(path string) []string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return []string{path}
	}
	parts := make([]string, len(entries))
	for i, e := range entries {
		parts[i] = filepath.Join(path, e.Name())
	}
	return parts
}

// recordingSize returns the size in bytes of the file, or of those in the folder, for the progress bar; -1 if it is
// not known, as of a pipe.
func recordingSize(path string) int64 {
	stat := func() (os.FileInfo, error) { return os.Stat(path) }
	if path == "-" {
		stat = os.Stdin.Stat
		// Standard input may be a file, as in -i - <FILE.
	}
	st, err := stat()
	switch {
	case err != nil:
	case st.Mode().IsRegular():
		return st.Size()
	case st.IsDir():
		sum := int64(0)
		for _, p := range recordingParts(path) {
			if st, err := os.Lstat(p); err == nil && st.Mode().IsRegular() {
				sum += st.Size()
			}
		}
		return sum
	}
	return -1
}
