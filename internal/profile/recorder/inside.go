//go:build linux && amd64

package recorder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/files/preload"
	"github.com/ehasm/ehasm/internal/profile/record"

	"golang.org/x/sys/unix"
)

// The library that records inside of programs, and the variable that overrides its path; see preload.Library.
const (
	insideName     = "libehunwind-record.so"
	insideVariable = "EHASM_RECORD_LIBRARY"
)

// inside is a recording by a library that is preloaded into the command: it unwinds at allocations and counts stacks
// in memory that it shares with this process. There is no perf event, so it needs no rights, and no session.
type inside struct {
	*run
	in *record.Inside
}

// recordInside records what a command allocates. It returns the exit status. The eh_elfs are built first, since the
// library unwinds with nothing else.
func (r *run) recordInside(ctx context.Context) (int, error) {
	host, err := r.findHost()
	if err != nil {
		return failed, err
	}
	if status, err := r.fillFor(ctx, host); err != nil {
		return status, err
	}
	r.prepare(ctx)
	defer r.objects.Close()
	in, err := record.NewInside(record.InsideOptions{Period: r.opt.Inside.Period, MaxStack: r.opt.Sampling.MaxStack,
		Objects: r.objects})
	if err != nil {
		return failed, err
	}
	defer in.Close()
	r.signals = catchWriteSignals(r.c)
	defer r.signals.stop()
	return (&inside{run: r, in: in}).record(ctx, host)
}

// hostProgram is the program that takes the library.
type hostProgram struct {
	path     string   // of the command
	programs []string // that the command executes, interpreters included
	library  string
	first    string // AddressSanitizer's runtime, which must be preloaded before; "": none
}

// findHost finds the program and the library, and refuses programs that ignore LD_PRELOAD.
func (r *run) findHost() (h *hostProgram, err error) {
	h = &hostProgram{}
	if h.path, err = find.Command(r.command[0], find.SearchPath()); err != nil {
		return nil, &Error{Name: r.command[0], Err: err, NotRun: true}
	}
	if h.programs, err = find.Programs(h.path, find.SearchPath()); err != nil {
		return nil, &Error{Name: h.path, Err: err, NotRun: true}
	}
	// an interpreter, if the command is a script: the last that is executed
	program := h.programs[len(h.programs)-1]
	if err := find.PreloadObstacle(program); err != nil {
		return nil, &Error{Name: program, Err: err}
	}
	if h.library, err = preload.Library("", insideVariable, insideName); err != nil {
		return nil, &Error{Name: insideName, Err: err}
	}
	h.first = find.AddressSanitizer(program)
	return h, nil
}

// usableCache returns an error if eh_elfs can neither be put into the user's cache nor be in the system's: stacks would
// have one frame.
func usableCache() error {
	folder, err := builder.CacheFolder(os.Getenv)
	if err == nil {
		err = builder.MakeCache(folder)
	}
	if err == nil {
		err = unix.Access(folder, unix.W_OK)
	}
	if _, missing := os.Stat(builder.SystemCache); err == nil || missing == nil {
		return nil
	}
	return fmt.Errorf("stacks need eh_elfs, and there is no place for them: %w: name a folder of your own with XDG_CACHE_HOME", err)
}

// fillFor builds the eh_elfs that the cache lacks. A signal ends it, and the status then names the signal.
func (r *run) fillFor(ctx context.Context, h *hostProgram) (status int, err error) {
	if err := usableCache(); err != nil {
		return failed, err
	}
	launched, _ := find.Launched(h.path, r.command[1:], find.SearchPath())
	ctx, stop := host.InterruptContext(ctx)
	defer stop()
	if !builder.FillForPrograms(ctx, slices.Concat(h.programs, launched, r.opt.Inside.With), []string{h.library}, true,
		builder.Options{Workers: runtime.GOMAXPROCS(0)}, r.c.Filling(r.opt.Run.Quiet)) {
		return host.InterruptStatus(ctx), errors.New("interrupted")
	}
	return 0, nil
}

// record runs the command and writes the profile. It returns the command's exit status.
func (r *inside) record(ctx context.Context, h *hostProgram) (int, error) {
	signals, asked := r.signals.recording, make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT)
	defer signal.Stop(signals)
	signal.Notify(asked, syscall.SIGUSR2)
	defer signal.Stop(asked)
	cmd := r.newCommand(h.path)
	cmd.Env = append(preload.Environ(os.Environ(), h.library, h.first), r.in.Environ())
	if err := startCommand(cmd); err != nil {
		return failed, &Error{Name: h.path, Err: err, NotRun: true}
	}
	s := &subject{ended: make(chan struct{})}
	s.follow(cmd)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r.poll(stop, asked)
	}()
	over := r.wait(ctx, r.opt.Run.Limit, signals, s)
	r.signals.writing(true)
	close(stop)
	<-stopped
	if !over {
		if err := r.in.Stop(); err != nil {
			r.c.Fail("", err)
		}
	}
	whole := r.write(h)
	if !over {
		r.signals.writing(false)
		r.wait(context.Background(), 0, signals, s)
	}
	if whole != nil && r.opt.Run.Cache {
		r.fillMissing(ctx, whole)
	}
	return s.exitStatus(), nil
}

// poll follows what the programs map, and writes a profile when it is asked to, until stop is closed. It is the only
// goroutine that uses r.in meanwhile.
func (r *inside) poll(stop <-chan struct{}, asked <-chan os.Signal) {
	const often = 20 * time.Millisecond // a library that is unloaded sooner has no names
	tick := time.NewTicker(often)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if err := r.in.Poll(); err != nil {
				r.c.Fail("", err)
			}
		case <-asked:
			p, err := r.profile()
			if err != nil {
				r.c.Fail("", err)
				continue
			}
			path := r.opt.partPath(time.Now())
			if err := r.writeTo(p, path); err != nil {
				r.c.Fail(path, err)
			} else if !r.opt.Run.Quiet {
				r.c.Note(path, errors.New(r.opt.Output.Format.HowToLook(output.Name(path))))
			}
		}
	}
}

// profile returns what there is to write: by what the format can hold, or else by --total.
func (r *inside) profile() (*record.Profile, error) {
	view := record.HeapLive
	switch {
	case r.opt.Output.Format.Values:
		view = record.HeapBoth
	case r.opt.Inside.Alloc == HeapTotal:
		view = record.HeapTotal
	}
	p, err := r.in.Heap(view)
	if err != nil {
		return nil, err
	}
	p.Command = r.title()
	return p, nil
}

// write writes the profile and says why it may be empty; nil: not all is well, and no eh_elf is to be made for the
// next time.
func (r *inside) write(h *hostProgram) *record.Profile {
	begin, c := time.Now(), r.c
	p, err := r.profile()
	if err != nil {
		c.Fail("", err)
		return nil
	}
	whole := r.writeProfile(p)
	took := time.Since(begin)
	switch in := p.Inside; {
	case in.Processes == 0:
		c.Note(h.path, errNothingTaken)
	case in.Taken == 0 && in.OwnMalloc > 0:
		c.Note(h.path, errOwnMalloc)
	case in.Taken == 0 && !r.opt.Run.Quiet:
		c.Note(h.path, errFewAllocated)
	}
	const many = 10 // processes named: a build may have thousands
	for i, other := range p.Inside.NotRecorded[:min(len(p.Inside.NotRecorded), many)] {
		c.Note(other.Comm, other)
		if more := len(p.Inside.NotRecorded) - many; i == many-1 && more > 0 {
			c.Note("", fmt.Errorf("not recorded, too: %d more", more))
		}
	}
	if !r.opt.Run.Quiet {
		p.Text(c.Stderr())
	}
	r.tellRest(p.Stats(took))
	if !whole {
		return nil
	}
	return p
}

// Why there are no samples.
var (
	errNothingTaken = errors.New("nothing was taken: no process took " + insideName +
		" (set-user-id, of another user, or without LD_PRELOAD)")
	errFewAllocated = errors.New("no samples: little was allocated; a lower --period takes more")
	errOwnMalloc    = errors.New("nothing was taken: the program has its own malloc, or a sanitizer's, which is called in place of the C library's")
)

// fillMissing builds eh_elfs for the objects in which stacks have ended, for the next time.
func (r *inside) fillMissing(ctx context.Context, p *record.Profile) {
	paths := p.EndedIn()
	if len(paths) == 0 {
		return
	}
	if !r.opt.Run.Quiet {
		r.c.Note("", fmt.Errorf("making eh_elfs for the next time: %s", strings.Join(paths, ", ")))
	}
	builder.FillForPrograms(ctx, paths, nil, false, builder.Options{Workers: runtime.GOMAXPROCS(0)}, r.c.Filling(true))
}
