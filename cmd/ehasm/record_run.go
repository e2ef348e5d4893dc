//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/files/atomicfile"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/unwind"

	"github.com/gdamore/tcell/v2"
)

// recordRun is a run of the verb.
type recordRun struct {
	opt     *recordOptions
	c       *console
	made    *ondemand.Maker
	objects *unwind.Objects
	names   *symbolize.Namer
	session *record.Session
	command []string
	raw     *record.RawWriter
	rawFile *atomicfile.File
	signals *writeSignals
	parts   *recordParts // with --every and --flight; else nil
	labels  map[string]string
	screen  tcell.Screen // with --top; else nil
	top     *recordTop   // while it is shown
}

// runRecord is the verb: it opens the events, records, and writes the profile.
func runRecord(ctx context.Context, args []string, opt *recordOptions, c *console) int {
	if opt.dump != 0 {
		return dumpFlight(opt.dump, c)
	}
	if opt.format.Binary && opt.output == "-" && isTerminal(c.out.w) {
		c.fail("standard output", errors.New("the profile is binary and this is a terminal: name a file with -o"))
		return exitFailed
	}
	if err := opt.canWrite(c); err != nil { // before anything runs
		c.fail(opt.output, err)
		return exitFailed
	}
	if opt.alloc != "" || opt.preload {
		return runInside(ctx, args, opt, c)
	}
	r := &recordRun{opt: opt, c: c, command: args}
	if opt.top {
		var err error
		if r.screen, err = openTop(); err != nil {
			c.fail("--top", err)
			return exitFailed
		}
	}
	compiling, stopCompiling := context.WithCancel(ctx)
	defer stopCompiling()
	r.prepare(ctx, compiling)
	r.signals = catchWriteSignals(c)
	status, err := r.run(ctx)
	if err != nil {
		r.signals.stop()
		if r.rawFile != nil {
			r.rawFile.Abort()
		}
		var named *commandError
		var usage usageError
		switch {
		case errors.As(err, &usage):
			return verb{name: "record"}.misuse(c, usage)
		case errors.As(err, &named):
			c.fail(named.name, named.err)
		default:
			c.fail("record", err)
		}
		return max(status, exitFailed)
	}
	stopCompiling()
	r.made.End() // unwinding is over
	if r.rawFile != nil {
		defer r.signals.guard(r.rawFile)()
	}
	whole := r.write()
	r.signals.stop()
	if whole && ctx.Err() == nil {
		limited, stop := context.WithTimeout(ctx, fillPatience)
		defer stop()
		r.made.FillCache(limited, runtime.GOMAXPROCS(0), filling(c, true))
	}
	return status
}

// fillPatience is how long the prompt waits at most for new eh_elfs. Those not in the cache by then are
// made again the next time.
const fillPatience = 2 * time.Second

// prepare makes the objects that unwind and name stacks.
func (r *recordRun) prepare(ctx, compiling context.Context) {
	r.made = ondemand.New(ondemand.Options{Source: r.opt.source, Keep: r.opt.cache, Background: true})
	dirs := unwind.DefaultDebugDirs()
	r.objects = unwind.NewObjects(unwind.Options{
		DebugDirs: dirs,
		VDSO:      func() ([]byte, error) { return ondemand.VDSO(ctx) },
		Prepare:   r.made.Prepare,
		Compile: func(name string, file io.ReaderAt, size int64) ([]byte, error) {
			return r.made.EhElf(compiling, name, file, size)
		},
	})
	r.names = symbolize.New(r.nameOptions())
}

// nameOptions says where names come from.
func (r *recordRun) nameOptions() symbolize.Options {
	names, dirs := r.opt.names, unwind.DefaultDebugDirs()
	names.Kallsyms, names.HostKernel, names.MapDirs, names.DebugDirs = "/proc/kallsyms", true, []string{"/tmp"}, dirs
	names.Objects = r.objects.All
	return names
}

// run records, and returns the command's exit status.
func (r *recordRun) run(ctx context.Context) (int, error) {
	opt := record.Options{
		Frequency: r.opt.frequency, Copy: r.opt.copied, Grow: r.opt.grow, MaxStack: r.opt.maxStack, Ring: r.opt.ring, Refill: r.opt.refill,
		Samples: r.opt.format.Samples, Realtime: r.opt.realtime, Pointers: r.opt.pointers, Objects: r.objects, OnObject: r.names.Foresee,
		Target: record.Target{PIDs: r.opt.pids, All: r.opt.all},
	}
	opt.Event = record.DefaultEvent()
	if names := &r.opt.names; !names.Inline && !names.Lines && !names.Signatures { // those need the files
		opt.Left = r.names.Settle
	}
	if r.opt.event != "" {
		var err error
		if opt.Event, err = record.EventByName(r.opt.event); err != nil {
			return exitFailed, usageError{fmt.Errorf("--event: %w", err)}
		}
	}
	if r.opt.cgroup != "" {
		dir, err := os.Open(r.opt.cgroup)
		if err != nil {
			return exitFailed, &commandError{r.opt.cgroup, err}
		}
		defer dir.Close()
		opt.Target.Cgroup = dir
	}
	path := ""
	if len(r.command) > 0 {
		var err error
		if path, err = find.Command(r.command[0], find.SearchPath()); err != nil {
			return commandStatus(err), &commandError{r.command[0], err}
		}
	}
	if r.opt.raw != "" {
		var err error
		if r.rawFile, err = atomicfile.CreateOutput(r.opt.raw, 0o600); err != nil {
			return exitFailed, &commandError{r.opt.raw, err}
		}
		r.raw = record.NewRawWriter(r.rawFile, r.title())
		opt.Raw = r.raw
	}
	pusher, err := r.newPusher()
	if err != nil {
		return exitFailed, usageError{fmt.Errorf("--push: %w", err)}
	}
	heap, garbage := firstCollection, usualGarbage
	if opt.Realtime {
		heap = firstCollectionRealtime
	} else if r.opt.every+r.opt.flight > 0 {
		garbage = littleGarbage
	}
	defer postponeCollection(heap, garbage)()
	defer spareProcessors()()
	runtime.LockOSThread() // the children of this thread are recorded
	defer runtime.UnlockOSThread()
	session, err := record.Open(opt)
	if errors.Is(err, record.ErrOptions) {
		return exitFailed, usageError{err}
	}
	if err != nil {
		return exitFailed, err
	}
	r.session = session
	r.tellLimits()
	signals := r.signals.recording
	signal.Notify(signals, syscall.SIGQUIT)
	if r.opt.every+r.opt.flight > 0 {
		r.parts = newParts(r, pusher)
		defer r.parts.listen()()
	}
	defer signal.Stop(signals)
	status, ended := 0, make(chan struct{})
	var process *os.Process
	if path != "" {
		cmd := exec.Command(path, r.command[1:]...)
		cmd.Args[0] = r.command[0]
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if r.screen != nil {
			apart(cmd)
		}
		if err := startCommand(cmd); err != nil {
			return exitNotExecutable, &commandError{path, err}
		}
		process = cmd.Process
		go func() {
			status = exitStatus(cmd)
			close(ended)
		}()
	}
	if err := session.Start(); err != nil {
		return exitFailed, err
	}
	if len(r.opt.pids) > 0 {
		if err := waitFor(r.opt.pids, ended); err != nil {
			return exitFailed, err
		}
	}
	each := r.parts.each()
	if r.screen != nil {
		if err := r.showTop(r.screen, signals); err != nil {
			return exitFailed, &commandError{"--top", err}
		}
		each = r.top.each
	}
	done := make(chan struct{})
	var failed error
	var reading sync.WaitGroup
	reading.Go(func() { failed = session.Run(done, each) })
	recording := r.wait(ctx, signals, ended, process)
	r.signals.writing(true)
	close(done)
	reading.Wait()
	r.top.close()
	if failed != nil {
		r.c.fail("record", failed) // the samples before are still written
	}
	if !recording && process != nil { // the command continues without a recording
		r.signals.writing(false)
		r.forward(signals, ended, process)
		r.signals.writing(true)
	}
	if process == nil {
		status = exitDone
	}
	return status, nil
}

// title returns the recorded command line.
func (r *recordRun) title() []string {
	if len(r.command) > 0 {
		return r.command
	}
	return os.Args
}

// tellLimits reports what this user's recording leaves out.
func (r *recordRun) tellLimits() {
	if r.opt.quiet {
		return
	}
	if r.session.UserOnly() {
		r.c.note("record", errors.New("time in the kernel is not recorded: "+record.KernelNeeds))
	}
	if n := r.session.Refused(); n > 0 {
		r.c.note("record", fmt.Errorf("%d threads of child processes are not recorded: they are of another user", n))
	}
	if got := r.session.RingBytes(); got < r.opt.ring {
		r.c.note("record", fmt.Errorf("%d KB of memory for the samples of a CPU instead of %d: no more may be locked (kernel.perf_event_mlock_kb, ulimit -l)", got>>10, r.opt.ring>>10))
	}
}

// wait waits until the recording must end; it returns true if the recorded
// processes have ended.
func (r *recordRun) wait(ctx context.Context, signals <-chan os.Signal, ended <-chan struct{}, process *os.Process) bool {
	var timeout <-chan time.Time
	if r.opt.duration > 0 {
		timeout = time.After(r.opt.duration)
	}
	interrupts := 0
	for {
		select {
		case <-ended:
			return true
		case <-timeout:
			return false
		case <-ctx.Done():
			return false
		case s := <-signals:
			if process == nil {
				return true
			}
			if interrupts++; interrupts > 1 && s == os.Interrupt {
				return true // the signal does not end it
			}
			passOn(s, process)
		}
	}
}

// forward waits for the command's end, or a second interrupt.
func (r *recordRun) forward(signals <-chan os.Signal, ended <-chan struct{}, process *os.Process) {
	interrupts := 0
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			if interrupts++; interrupts > 1 && s == os.Interrupt {
				return
			}
			passOn(s, process)
		}
	}
}

// finishRaw completes the file of --raw. After an error the previous file stays.
func (r *recordRun) finishRaw() error {
	if err := r.raw.Finish(); err != nil {
		r.rawFile.Abort()
		return err
	}
	return r.rawFile.Commit()
}

// write writes the profile and the files that go with it, and reports success.
func (r *recordRun) write() bool {
	begin := time.Now()
	c, opt := r.c, r.opt
	if r.raw != nil {
		if err := r.finishRaw(); err != nil {
			c.fail(opt.raw, err)
		}
	}
	defer r.session.Close()
	defer r.objects.Close()
	if opt.every > 0 {
		r.parts.finish()
		if r.parts.samples == 0 {
			r.tellNothing(r.parts.lost)
		}
		return true // errors are reported where they occur
	}
	p := r.session.Take()
	if r.parts != nil {
		p = r.parts.last(p)
		r.session.Rest()
	}
	if r.top != nil {
		p = record.Join(append(r.top.all, p))
	}
	p.Command = r.title()
	shown := r.top != nil && !opt.outputSet
	whole := shown || r.writeProfile(p)
	took := time.Since(begin)
	if !opt.quiet {
		p.Text(c.stderr)
	}
	if p.Counts.Samples == 0 && !shown && (r.parts == nil || r.parts.samples == 0) {
		r.tellNothing(p.Counts.Lost)
	}
	for _, w := range r.names.Close() {
		if !opt.quiet {
			c.note("record", w)
		}
	}
	if opt.stats != "" {
		if err := writeStats(opt.stats, atomicfile.PermText, p.Stats(took), c); err != nil {
			c.fail(opt.stats, err)
		}
	}
	return whole
}

// canWrite reports whether the output can be written, before anything runs.
func (opt *recordOptions) canWrite(c *console) error {
	if (opt.every > 0 || opt.top) && !opt.outputSet {
		return nil // profiles are sent, or shown
	}
	if opt.every > 0 {
		return ondemand.WritableFolder(opt.output)
	}
	return canWrite(opt.output, c)
}

// canWrite returns an error if no file can be made or written at a path.
func canWrite(path string, c *console) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil // opening a pipe may wait for its reader
	}
	out, err := newVerbOutput(path, atomicfile.PermText, c)
	if err == nil && out.file != nil {
		out.file.Abort()
	}
	return err
}

// writeProfile writes the profile to the output, or if that fails, to the folder for
// temporary files, so that it is not lost.
func (r *recordRun) writeProfile(p *record.Profile) bool {
	c, path := r.c, r.opt.output
	err := r.writeTo(p, path)
	if err == nil {
		if !r.opt.quiet && path != "-" {
			c.note(path, errors.New(r.opt.format.HowToLook(shown.Name(path))))
		}
		return true
	}
	c.fail(path, err)
	if path == "-" {
		return false
	}
	// In a new folder: others could have put a link at a predictable name.
	dir, err := os.MkdirTemp("", "ehasm-")
	if err != nil {
		c.fail(os.TempDir(), err)
		return false
	}
	spare := filepath.Join(dir, filepath.Base(path))
	if err := r.writeTo(p, spare); err != nil {
		c.fail(spare, err)
		os.Remove(dir)
	} else {
		c.note(spare, errors.New("the profile is here instead"))
	}
	return false
}

func (r *recordRun) writeTo(p *record.Profile, path string) error {
	return r.writeNamed(p, path, r.names)
}

func (r *recordRun) writeNamed(p *record.Profile, path string, namer *symbolize.Namer) error {
	out, err := newVerbOutput(path, atomicfile.PermText, r.c)
	if err != nil {
		return err
	}
	if out.file != nil {
		defer r.signals.guard(out.file)()
	}
	names := &r.opt.names
	format := r.opt.format.New(stackfmt.Options{Inline: names.Inline, Lines: names.Lines, FullSourcePath: r.opt.fullPath})
	if err := p.Write(out, format, r.opt.format.Samples, namer); err != nil {
		if out.file != nil {
			out.file.Abort()
		}
		return err
	}
	return out.finish()
}
