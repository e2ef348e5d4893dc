//go:build linux && amd64

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
)

// options says how a program is followed.
type options struct {
	steps  int           // instructions to compare, of all threads
	limit  time.Duration // wall time; 0: none
	skip   time.Duration // runs freely that long before the first step
	every  time.Duration // runs freely that long between windows; 0: one window
	window int           // steps of a window
	wanted []string      // parts of the paths of objects to compare; none: all
	source source
	output io.Writer // of the program
	env    []string  // added to the environment
}

// thread is a thread of the program.
type thread struct {
	tid     int
	stopped bool     // waits to be resumed
	before  abi.Regs // at its last stop
	kind    kind     // of the instruction there
	known   bool     // before and kind are set
	signal  int      // is being delivered
	running bool     // runs freely to a return address
	shadow  shadow
}

// tracer follows a program. Its methods are called on one thread.
type tracer struct {
	opt     options
	space   *space
	mem     *memory
	threads map[int]*thread
	steps   int // executed
	judged  int // with the frame known, in objects that are compared
	windows int // times that threads were stepped
	began   time.Time
	ended   string // how the program ended
	// breakpoints says that those of the processor work.
	breakpoints bool
}

// errEnded says that the program has ended.
var errEnded = errors.New("the program ended")

// follow runs a program under a tracer until it ends or the steps are done.
// The calling goroutine is locked to its thread.
func follow(command []string, opt options) (*tracer, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = opt.output, opt.output
	cmd.Env = append(os.Environ(), opt.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL} // the program dies with the tracer
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	defer cmd.Process.Kill()
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		return nil, err
	}
	if !ws.Stopped() {
		return nil, fmt.Errorf("%s: ended before its first instruction", command[0])
	}
	if err := unix.PtraceSetOptions(pid,
		unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL); err != nil {
		return nil, err
	}
	t := &tracer{
		opt: opt, mem: &memory{pid: pid}, began: time.Now(), breakpoints: true,
		space:   &space{pid: pid, source: opt.source, wanted: opt.wanted, objects: map[string]*object{}},
		threads: map[int]*thread{pid: {tid: pid, stopped: true}},
	}
	t.space.program, _ = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	err := t.loop()
	if errors.Is(err, errEnded) {
		err = nil
	}
	return t, err
}

// loop alternates between running freely and stepping.
func (t *tracer) loop() error {
	if len(t.opt.wanted) > 0 {
		if err := t.runToEntry(); err != nil {
			return err
		}
	}
	if t.opt.skip > 0 {
		if err := t.free(t.opt.skip); err != nil {
			return err
		}
	}
	for {
		until := math.MaxInt
		if t.opt.every > 0 {
			until = t.steps + t.opt.window
		}
		t.windows++
		if err := t.stepAll(until); err != nil {
			return err
		}
		if t.done() || t.opt.every == 0 {
			return nil
		}
		if err := t.free(t.opt.every); err != nil {
			return err
		}
	}
}

// runToEntry lets the loader do its work: up to the program's first instruction.
func (t *tracer) runToEntry() error {
	aux, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", t.mem.pid))
	if err != nil {
		return err
	}
	const entry = 9 // AT_ENTRY (getauxval(3))
	for ; len(aux) >= 16; aux = aux[16:] {
		if binary.LittleEndian.Uint64(aux) == entry {
			pc := binary.LittleEndian.Uint64(aux[8:])
			th := t.threads[t.mem.pid]
			return t.startAt(th, pc)
		}
	}
	return nil
}

// startAt lets the only thread run freely to pc. Two breakpoints are there: some virtual machines take hardware
// breakpoints, which then do nothing.
func (t *tracer) startAt(th *thread, pc uint64) error {
	const int3 = 0xcc
	var code [1]byte
	if _, err := unix.PtracePeekText(th.tid, uintptr(pc), code[:]); err != nil {
		return err
	}
	if _, err := unix.PtracePokeText(th.tid, uintptr(pc), []byte{int3}); err != nil {
		return err
	}
	t.breakpoints = pokeDebug(th.tid, 0, pc) && pokeDebug(th.tid, 7, 1)
	for {
		if err := t.resume(th, unix.PTRACE_CONT, 0); err != nil {
			return err
		}
		if th, _, err := t.wait(0); err != nil || th == nil {
			return err
		}
		var r unix.PtraceRegs
		if err := unix.PtraceGetRegs(th.tid, &r); err != nil {
			return err
		}
		if r.Rip != pc && r.Rip != pc+1 {
			continue
		}
		t.breakpoints = t.breakpoints && r.Rip == pc
		pokeDebug(th.tid, 7, 0)
		if _, err := unix.PtracePokeText(th.tid, uintptr(pc), code[:]); err != nil {
			return err
		}
		r.Rip = pc
		return unix.PtraceSetRegs(th.tid, &r)
	}
}

// done reports whether enough is compared, or the time is over.
func (t *tracer) done() bool {
	return t.judged >= t.opt.steps || t.opt.limit > 0 && time.Since(t.began) > t.opt.limit
}

// stepAll executes all threads one instruction at a time until enough steps are done.
func (t *tracer) stepAll(until int) error {
	for _, th := range t.threads {
		if th.stopped {
			if err := t.resume(th, unix.PTRACE_SINGLESTEP, 0); err != nil {
				return err
			}
		}
	}
	for t.steps < until && !t.done() {
		th, ws, err := t.wait(0)
		if err != nil {
			return err
		}
		if th == nil {
			continue
		}
		sig := t.stop(th, ws)
		request := unix.PTRACE_SINGLESTEP // a thread at a breakpoint runs freely to it
		if th.running && t.breakpoints {
			request = unix.PTRACE_CONT
		}
		if err := t.resume(th, request, sig); err != nil {
			return err
		}
	}
	return nil
}

// wait waits for a thread to stop. Without one (none has under WNOHANG, or it ended)
// it returns nil.
func (t *tracer) wait(flags int) (*thread, unix.WaitStatus, error) {
	var ws unix.WaitStatus
	tid, err := unix.Wait4(-1, &ws, unix.WALL|flags, nil)
	switch {
	case err == unix.EINTR || err == nil && tid == 0:
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("wait4: %w", err)
	}
	th := t.threads[tid]
	if ws.Exited() || ws.Signaled() {
		delete(t.threads, tid)
		if tid == t.mem.pid || len(t.threads) == 0 {
			t.ended = fmt.Sprintf("exit status %d", ws.ExitStatus())
			if ws.Signaled() {
				t.ended = ws.Signal().String()
			}
			return nil, ws, errEnded
		}
		return nil, ws, nil
	}
	if th == nil {
		// A new thread may stop before its creator's event arrives.
		th = &thread{tid: tid}
		t.threads[tid] = th
	}
	th.stopped = true
	return th, ws, nil
}

// resume lets a stopped thread continue. It is no error if the thread is gone.
func (t *tracer) resume(th *thread, request int, sig int) error {
	th.stopped = false
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(th.tid), 0, uintptr(sig), 0, 0)
	if errno != 0 && errno != unix.ESRCH {
		return fmt.Errorf("ptrace: %w", errno)
	}
	return nil
}

// free lets all threads run for some time and stops them again.
func (t *tracer) free(d time.Duration) error {
	for _, th := range t.threads {
		th.forget()
		if th.stopped {
			if err := t.resume(th, unix.PTRACE_CONT, 0); err != nil {
				return err
			}
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		th, ws, err := t.wait(unix.WNOHANG)
		if err != nil {
			return err
		}
		if th == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		if err := t.resume(th, unix.PTRACE_CONT, passOn(ws)); err != nil {
			return err
		}
	}
	for tid := range t.threads {
		unix.Tgkill(t.mem.pid, tid, unix.SIGSTOP) // it cannot be handled or blocked
	}
	asked := len(t.threads)
	for limit := time.Now().Add(5 * time.Second); asked > 0 && time.Now().Before(limit); {
		th, ws, err := t.wait(unix.WNOHANG)
		if err != nil {
			return err
		}
		switch {
		case th == nil:
			time.Sleep(time.Millisecond)
		case ws.StopSignal() == unix.SIGSTOP && ws>>16 == 0:
			asked--
		default:
			if err := t.resume(th, unix.PTRACE_CONT, passOn(ws)); err != nil {
				return err
			}
		}
	}
	t.space.stale = true
	return nil
}

// passOn returns the signal of a stop to pass on to the program: none of those that
// tracing itself causes.
func passOn(ws unix.WaitStatus) int {
	if s := ws.StopSignal(); s != unix.SIGTRAP && s != unix.SIGSTOP {
		return int(s)
	}
	return 0
}

// forget drops what is known of a thread that will run freely.
func (th *thread) forget() {
	th.known, th.running, th.signal = false, false, 0
	th.shadow.frames = th.shadow.frames[:0]
}
