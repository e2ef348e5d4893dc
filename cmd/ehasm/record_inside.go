//go:build linux && amd64

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/preload"
	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/internal/profile/record"

	"golang.org/x/sys/unix"
)

// Where the library is that records inside of programs; see findLibrary.
const (
	insideName     = "libehunwind-record.so"
	insideVariable = "EHASM_RECORD_LIBRARY"
)

// insideRun is a recording by a library that is preloaded.
type insideRun struct {
	recordRun
	in      *record.Inside
	path    string // of the command
	library string
	sampler string // of AddressSanitizer, which goes first
}

// runInside records what a command allocates, or where its time goes by the process's own timers.
func runInside(ctx context.Context, args []string, opt *recordOptions, c *console) int {
	if err := opt.canWrite(c); err != nil {
		c.fail(opt.output, err)
		return exitFailed
	}
	r := &insideRun{recordRun: recordRun{opt: opt, c: c, command: args}}
	if status, err := r.ready(ctx); err != nil {
		c.failed(err)
		return status
	}
	r.prepare(ctx, ctx)
	defer r.objects.Close()
	in, err := record.NewInside(record.InsideOptions{Period: opt.heapPeriod(), Interval: opt.timerInterval(), MaxStack: opt.maxStack, Objects: r.objects})
	if err != nil {
		c.fail("record", err)
		return exitFailed
	}
	defer in.Close()
	r.in = in
	r.signals = catchWriteSignals(c)
	defer r.signals.stop()
	status, err := r.run(ctx)
	if err != nil {
		c.failed(err)
	}
	return status
}

// failed tells an error, with the name that it has.
func (c *console) failed(err error) {
	var named *commandError
	if errors.As(err, &named) {
		c.fail(named.name, named.err)
		return
	}
	c.fail("record", err)
}

// ready finds the program and the library, and builds the eh_elfs that the cache lacks.
func (r *insideRun) ready(ctx context.Context) (int, error) {
	var err error
	if r.path, err = find.Command(r.command[0], find.SearchPath()); err != nil {
		return commandStatus(err), &commandError{r.command[0], err}
	}
	programs, err := find.Programs(r.path, find.SearchPath())
	if err != nil {
		return commandStatus(err), &commandError{r.path, err}
	}
	program := programs[len(programs)-1]
	if err := find.PreloadObstacle(program); err != nil {
		return exitFailed, &commandError{program, err}
	}
	if r.library, err = preload.Library("", insideVariable, insideName); err != nil {
		return exitFailed, &commandError{insideName, err}
	}
	r.sampler = find.AddressSanitizer(program)
	launched, _ := find.Launched(r.path, r.command[1:], find.SearchPath())
	ctx, stop := interruptible(ctx)
	defer stop()
	if !builder.FillForPrograms(ctx, slices.Concat(programs, launched, r.opt.with), []string{r.library}, true,
		builder.Options{Workers: runtime.GOMAXPROCS(0)}, filling(r.c, r.opt.quiet)) {
		return exitInterrupted(ctx), &commandError{"record", errors.New("interrupted")}
	}
	return exitDone, nil
}

// run runs the command and writes the profile.
func (r *insideRun) run(ctx context.Context) (int, error) {
	signals, asked := r.signals.recording, make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT)
	defer signal.Stop(signals)
	signal.Notify(asked, syscall.SIGUSR2)
	defer signal.Stop(asked)
	cmd := exec.Command(r.path, r.command[1:]...)
	cmd.Args[0] = r.command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(preload.Environ(os.Environ(), r.library, r.sampler), r.in.Environ())
	if err := startCommand(cmd); err != nil {
		return exitNotExecutable, &commandError{r.path, err}
	}
	status, ended := 0, make(chan struct{})
	go func() {
		status = exitStatus(cmd)
		close(ended)
	}()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r.poll(stop, asked)
	}()
	recording := r.wait(ctx, signals, ended, cmd.Process)
	r.signals.writing(true)
	close(stop)
	<-stopped
	used := time.Duration(0)
	if recording { // else it is not known yet
		var u unix.Rusage
		if unix.Getrusage(unix.RUSAGE_CHILDREN, &u) == nil {
			used = time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	} else if err := r.in.Stop(); err != nil {
		r.c.fail("record", err)
	}
	whole := r.write(used)
	if !recording {
		r.signals.writing(false)
		r.forward(signals, ended, cmd.Process)
	}
	if whole != nil && r.opt.cache {
		r.fillMissing(ctx, whole)
	}
	return status, nil
}

// poll follows what the programs map, and writes a profile when it is asked to.
func (r *insideRun) poll(stop <-chan struct{}, asked <-chan os.Signal) {
	const often = 20 * time.Millisecond
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if err := r.in.Poll(); err != nil {
				r.c.fail("record", err)
			}
		case <-asked:
			p, err := r.profile()
			if err != nil {
				r.c.fail("record", err)
				continue
			}
			parts := recordParts{r: &r.recordRun}
			path := parts.path(time.Now())
			if err := r.writeTo(p, path); err != nil {
				r.c.fail(path, err)
			} else if !r.opt.quiet {
				r.c.note(path, errors.New(r.opt.format.HowToLook(shown.Name(path))))
			}
		}
	}
}

// profile returns what there is to write.
func (r *insideRun) profile() (*record.Profile, error) {
	var p *record.Profile
	var err error
	switch {
	case r.opt.alloc == "":
		p, err = r.in.Time()
	case r.opt.format.Values:
		p, err = r.in.Heap(record.HeapBoth)
	case r.opt.alloc == heapTotal:
		p, err = r.in.Heap(record.HeapTotal)
	default:
		p, err = r.in.Heap(record.HeapLive)
	}
	if err != nil {
		return nil, err
	}
	p.Command = r.title()
	return p, nil
}

// write writes the profile; nil: not all is well.
func (r *insideRun) write(used time.Duration) *record.Profile {
	begin, c := time.Now(), r.c
	p, err := r.profile()
	if err != nil {
		c.fail("record", err)
		return nil
	}
	if r.opt.alloc == "" {
		p.Inside.Used = used.Seconds()
	}
	whole := r.writeProfile(p)
	took := time.Since(begin)
	switch in := p.Inside; {
	case in.Processes == 0:
		c.note(r.path, errNothingTaken)
	case in.Taken == 0 && in.OwnMalloc > 0 && r.opt.alloc != "":
		c.note(r.path, errOwnMalloc)
	case in.Taken == 0 && !r.opt.quiet && r.opt.alloc != "":
		c.note(r.path, errFewAllocated)
	case in.Taken == 0 && !r.opt.quiet:
		c.note(r.path, errShort)
	}
	if !r.opt.quiet {
		p.Text(c.stderr)
	}
	for _, w := range r.names.Close() {
		if !r.opt.quiet {
			c.note("record", w)
		}
	}
	if r.opt.stats != "" {
		if err := writeStats(r.opt.stats, 0o644, p.Stats(took), c); err != nil {
			c.fail(r.opt.stats, err)
		}
	}
	if !whole {
		return nil
	}
	return p
}

// Why there are no samples.
var (
	errNothingTaken = errors.New("nothing was taken: no process took " + insideName + " (set-user-id, of another user, or without LD_PRELOAD)")
	errFewAllocated = errors.New("no samples: little was allocated; a lower --alloc-period takes more")
	errShort        = errors.New("no samples: it used less processor time than passes between two ticks of the kernel")
	errOwnMalloc    = errors.New("nothing was taken: the program has its own malloc, which is called in place of the C library's")
)

// fillMissing builds eh_elfs for the objects in which stacks have ended, for the next time.
func (r *insideRun) fillMissing(ctx context.Context, p *record.Profile) {
	paths := p.EndedIn()
	if len(paths) == 0 {
		return
	}
	if !r.opt.quiet {
		r.c.note("record", fmt.Errorf("making eh_elfs for the next time: %s", strings.Join(paths, ", ")))
	}
	builder.FillForPrograms(ctx, paths, nil, false, builder.Options{Workers: runtime.GOMAXPROCS(0)}, filling(r.c, true))
}

// heapPeriod is 0 if no allocations are wanted.
func (opt *recordOptions) heapPeriod() uint64 {
	if opt.alloc == "" {
		return 0
	}
	return opt.allocPeriod
}

// timerInterval is 0 if timers are not wanted.
func (opt *recordOptions) timerInterval() time.Duration {
	if opt.alloc != "" {
		return 0
	}
	return time.Second / time.Duration(opt.frequency)
}
