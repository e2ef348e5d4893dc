//go:build linux && amd64

package recorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/internal/builder"
	"github.com/ehasm/ehasm/internal/debuginfo/prototypes"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/record"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/unwind"

	"github.com/gdamore/tcell/v2"
)

// run is a recording. Its fields are set in this order, and do not change while samples are read.
type run struct {
	opt     *Options
	c       Console
	command []string
	maker   *ondemand.Maker
	tables  func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) // see record.Options
	objects *unwind.Objects
	names   *symbolize.Namer
	places  *jit.Places // of names of code made at run time
	signals *writeSignals
	session *record.Session // once it is open
	parts   *parts          // with Every and Flight; else nil
	top     *top            // while it is shown; else nil
}

// Run records what the options say; command is recorded if they name nothing else. It returns the exit status: the
// command's, or 0. An *Error has the name of what failed, a *UsageError is about the options.
func Run(ctx context.Context, command []string, opt *Options, c Console) (status int, err error) {
	if err := opt.writable(); err != nil { // before anything runs
		return failed, &Error{Name: opt.Output.Path, Err: err}
	}
	if opt, err = opt.selected(); err != nil {
		return failed, err
	}
	r := &run{opt: opt, c: c, command: command}
	if opt.Inside.Alloc != "" {
		return r.recordInside(ctx)
	}
	var screen tcell.Screen
	if opt.Run.Top {
		if screen, err = openTop(); err != nil {
			return failed, &Error{Name: "top", Err: err}
		}
	}
	compiling, stopCompiling := context.WithCancel(ctx)
	defer stopCompiling()
	r.prepare(compiling)
	r.signals = catchWriteSignals(c)
	p, err := r.plan()
	if err == nil {
		status, err = r.record(ctx, p, screen)
	}
	if err != nil {
		r.signals.stop()
		p.close()
		return max(status, failed), err
	}
	stopCompiling()
	r.maker.End() // unwinding is over
	whole := r.write(p.raw)
	r.signals.stop()
	if whole && ctx.Err() == nil {
		limited, stop := context.WithTimeout(ctx, fillPatience)
		defer stop()
		r.maker.FillCache(limited, runtime.GOMAXPROCS(0), c.Filling(true))
	}
	return status, nil
}

// fillPatience is how long the prompt waits at most for new eh_elfs, once the profile is written. Those not in the
// cache by then are made again the next time.
const fillPatience = 2 * time.Second

// prepare makes the objects that unwind and name stacks. compiling ends when no more eh_elfs are of use. Maps of code
// that programs make are looked for in /tmp, by perf's convention (tools/perf/Documentation/jit-interface.txt).
func (r *run) prepare(compiling context.Context) {
	r.maker = ondemand.New(ondemand.Options{Keep: r.opt.Run.Cache, Options: rows.Options{
		Source: r.opt.Sampling.Source, TablesOnly: r.opt.Sampling.TablesOnly, Background: true, Wait: r.patience,
	}})
	r.objects = unwind.NewObjects(unwind.Options{
		DebugDirs: unwind.DefaultDebugDirs(),
		VDSO:      func() ([]byte, error) { return procfs.VDSO("/proc/self") },
		Prepare:   r.maker.Prepare,
		Compile: func(name string, file io.ReaderAt, size int64) ([]byte, error) {
			return r.maker.EhElf(compiling, name, file, size)
		},
	})
	r.tables = func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error) {
		return r.maker.Tables(compiling, o, wanted)
	}
	r.places = jit.NewPlaces(true, "/tmp")
	names := r.nameOptions()
	names.OpenFiles = symbols.NewOpenFiles(record.MostFiles())
	r.names = symbolize.New(names)
}

// patience returns how long the reader may wait for rows made from code: no ring fills in four times as long. Until
// the session is open, nothing is known of rings.
func (r *run) patience() time.Duration {
	const most = 250 * time.Millisecond // enough for files of 1 MB
	if r.session == nil {
		return 0
	}
	return min(r.session.FillTime()/4, most)
}

// nameOptions says where names come from.
func (r *run) nameOptions() symbolize.Options {
	names := r.opt.Output.Names
	names.Prototypes = prototypes.NewKernel(prototypes.KernelDir)
	names.Kallsyms, names.HostKernel, names.Places, names.DebugDirs = "/proc/kallsyms", true, r.places,
		unwind.DefaultDebugDirs()
	if r.opt.Run.Cache {
		names.KernelCopy = builder.KernelCopy(os.Getenv)
	}
	return names
}

// record opens the events, starts the command and reads samples until the recording ends. It returns the exit status.
func (r *run) record(ctx context.Context, p *plan, screen tcell.Screen) (int, error) {
	defer r.tuneRuntime()()
	// Events are inherited by the children of the thread that opens them, so it must be the one that starts the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := r.open(p); err != nil {
		return failed, err
	}
	r.tellLimits()
	signals := r.signals.recording
	signal.Notify(signals, syscall.SIGQUIT)
	defer signal.Stop(signals)
	if r.opt.Run.inParts() {
		r.parts = newParts(r, p.sender)
		defer r.parts.listen()()
	}
	s, err := r.start(p.program, screen != nil)
	if err != nil {
		return failed, err
	}
	r.tellBegun()
	each := r.parts.each()
	if screen != nil {
		if err := r.showTop(screen, signals); err != nil {
			return failed, &Error{Name: "top", Err: err}
		}
		each = r.top.each
	}
	return r.read(ctx, s, each, signals), nil
}

// tuneRuntime sets the Go run-time for a recording, until the returned function is called: see memory.go. A real-time
// recording must not stop for a collection; one that goes on for days should stay small.
func (r *run) tuneRuntime() (end func()) {
	heap, garbage := firstCollection, usualGarbage
	if r.opt.Sampling.Realtime {
		heap = firstCollectionRealtime
	} else if r.opt.Run.inParts() || r.opt.Target.All { // it goes on for long
		garbage = littleGarbage
	}
	collect, fewer := postponeCollection(heap, garbage), spareProcessors()
	return func() {
		fewer()
		collect()
	}
}

// open opens the events. The folder of a control group was needed only for that. Options that go with no kernel of any
// kind are the user's error.
func (r *run) open(p *plan) error {
	session, err := record.Open(p.session)
	if p.session.Target.Cgroup != nil {
		p.session.Target.Cgroup.Close()
	}
	if errors.Is(err, record.ErrOptions) {
		return &UsageError{err}
	}
	r.session = session
	return err
}

// subject is what is recorded and can end. It never does if the system is recorded: ended is then never closed.
type subject struct {
	process *os.Process   // of the command; nil: there is none
	ended   chan struct{} // closed when the command, or all processes, have ended
	status  int           // of the command that has ended
}

// start starts the command, if there is one, and the recording. detached takes the terminal from the command: top has
// it. Processes of -p are waited for after their events are open, so one that ends in between is noticed.
func (r *run) start(program string, detached bool) (*subject, error) {
	s := &subject{ended: make(chan struct{})}
	if program != "" {
		cmd := r.newCommand(program)
		if detached {
			apart(cmd)
		}
		if err := startCommand(cmd); err != nil {
			return nil, &Error{Name: program, Err: err, NotRun: true}
		}
		s.follow(cmd)
	}
	if err := r.session.Start(); err != nil {
		return nil, err
	}
	if len(r.opt.Target.PIDs) > 0 {
		if err := waitFor(r.opt.Target.PIDs, s.ended); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// follow notes the status of a command that was started, when it ends: status may be read once ended is closed.
func (s *subject) follow(cmd *exec.Cmd) {
	s.process = cmd.Process
	go func() {
		s.status = exitStatus(cmd)
		close(s.ended)
	}()
}

// newCommand returns the command, which has the terminal.
func (r *run) newCommand(program string) *exec.Cmd {
	cmd := exec.Command(program, r.command[1:]...)
	cmd.Args[0] = r.command[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// read reads samples, and calls each after each round, until the recording ends. It returns the exit status. A command
// that the recording does not last as long as keeps running, and this process with it, so that a shell waits for the
// command and not for its profile.
func (r *run) read(ctx context.Context, s *subject, each func(), signals <-chan os.Signal) int {
	done, result := make(chan struct{}), make(chan error, 1)
	go func() { result <- r.session.Run(done, each) }()
	// meanwhile the other goroutine owns the session
	over := r.wait(ctx, r.opt.Run.Limit, signals, s)
	r.signals.writing(true)
	close(done)
	err := <-result
	r.top.close()
	if err != nil {
		r.c.Fail("", err) // the samples before are still written
	}
	if !over && s.process != nil { // the command continues without a recording
		r.signals.writing(false)
		r.wait(context.Background(), 0, signals, s)
		r.signals.writing(true)
	}
	return s.exitStatus()
}

// exitStatus returns the status of the command. It is 0 if there is none, and of one that a second interrupt leaves
// behind.
func (s *subject) exitStatus() int {
	select {
	case <-s.ended:
		return s.status
	default:
		return 0
	}
}

// title returns the recorded command line, or ours if there is none: it says what was recorded.
func (r *run) title() []string {
	if len(r.command) > 0 {
		return r.command
	}
	return os.Args
}

// tellLimits reports what this user's recording leaves out.
func (r *run) tellLimits() {
	if r.opt.Run.Quiet {
		return
	}
	if r.session.UserOnly() {
		r.c.Note("", errors.New("time in the kernel is not recorded: "+record.KernelNeeds))
	}
	if err := r.session.NotInKernel(); errors.Is(err, bpfunwind.ErrKernel) || errors.Is(err, bpfunwind.ErrLockdown) {
		r.c.Note("", fmt.Errorf("stacks are copied: %w", err))
	}
	if n := r.session.Refused(); n > 0 {
		r.c.Note("", fmt.Errorf("not recorded, as another user's: %s of child processes", stackfmt.Number(uint64(n), "thread")))
	}
}

// tellLost reports that samples were lost for want of memory that this user may not lock.
func (r *run) tellLost(lost uint64) {
	if got := r.session.RingBytes(); lost > 0 && got < r.opt.Sampling.Ring && !r.opt.Run.Quiet {
		r.c.Note("", fmt.Errorf(
			"%s lost: %d KB of memory for those of a CPU instead of %d, as no more may be locked (kernel.perf_event_mlock_kb, ulimit -l)", stackfmt.Number(lost, "sample"), got>>10, r.opt.Sampling.Ring>>10))
	}
}

// wait waits until the recording must end, at most for a time; 0: without a limit. It returns true if the recorded
// processes have ended, or are left to themselves. The first signal is the command's: it may end for it, or do
// something else. A second ^C ends the recording, as the command seems to ignore it.
func (r *run) wait(ctx context.Context, most time.Duration, signals <-chan os.Signal, s *subject) bool {
	var timeout <-chan time.Time
	if most > 0 {
		timeout = time.After(most)
	}
	interrupts := 0
	for {
		select {
		case <-s.ended:
			return true
		case <-timeout:
			return false
		case <-ctx.Done():
			return false
		case got := <-signals:
			if s.process == nil {
				return true
			}
			if interrupts++; interrupts > 1 && got == os.Interrupt {
				return true // the signal does not end it
			}
			passOn(got, s.process)
		}
	}
}
