//go:build linux && amd64

package stack

import (
	"errors"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// The functions of this file must be called on one OS thread, the tracer: see onThread. When it ends, the
// kernel detaches all that it holds, and they go on: PTRACE_O_EXITKILL is not set.

// Errors of stop.
var (
	errGone   = errors.New("the thread has ended")
	errLate   = errors.New("it did not stop in time")
	errCompat = errors.New("it runs 32-bit code")
)

const (
	eventShift  = 16                    // of the event in a wait status, in bits: ptrace(2)
	compatCode  = 0x23                  // the selector __USER32_CS: arch/x86/include/asm/segment.h
	shortestNap = 20 * time.Microsecond // between two looks at a thread, from microseconds on
	longestNap  = time.Millisecond
)

// held is a thread that was stopped. It stays so until release.
type held struct {
	tid    int
	signal int // to deliver when it goes on: it was stopped on the way to its handler
	since  time.Time
}

// interrupt asks a thread to stop. It need not have stopped on return. PTRACE_SEIZE, unlike PTRACE_ATTACH, sends no
// SIGSTOP, which a program could see; errors are ptrace(2)'s, or errGone.
func interrupt(tid int) error {
	if err := ignoreEINTR(func() error { return unix.PtraceSeize(tid) }); err != nil {
		return err
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return errGone
	}
	return nil
}

// await waits until a thread that was interrupted has stopped, at most until a time.
//
// It stops for one of three reasons: the interruption; a group-stop, as by SIGSTOP, which the kernel reinstates at
// detach; a signal that arrived first, which release delivers.
func await(tid int, until time.Time) (held, error) {
	for nap := shortestNap; ; nap = min(2*nap, longestNap) {
		var status unix.WaitStatus
		n, err := unix.Wait4(tid, &status, unix.WALL|unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return held{}, errGone
		case n == tid && status.Stopped():
			h := held{tid: tid, since: time.Now()}
			if uint32(status)>>eventShift != unix.PTRACE_EVENT_STOP {
				h.signal = int(status.StopSignal())
			}
			return h, nil
		case n == tid:
			return held{}, errGone
		case time.Now().After(until):
			return held{}, errLate
		}
		t := unix.NsecToTimespec(int64(nap))
		_ = unix.Nanosleep(&t, nil) // shorter naps do no harm
	}
}

// release lets a thread go on and returns for how long it was stopped. It hands on the signal that had stopped it, for
// which unix.PtraceDetach has no argument.
func (h *held) release() time.Duration {
	// An error means that it was killed meanwhile.
	unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(h.tid), 0, uintptr(h.signal), 0, 0)
	return time.Since(h.since)
}

// registers returns the registers of a stopped thread; errCompat if it runs 32-bit code, which has other unwind rules.
func (h *held) registers() (regs abi.Regs, err error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(h.tid, &r); err != nil {
		return regs, errGone
	}
	if r.Cs == compatCode {
		return regs, errCompat
	}
	return fromPtrace(&r), nil
}

// fromPtrace puts registers into the order of DWARF numbers (psABI figure 3.36).
func fromPtrace(r *unix.PtraceRegs) abi.Regs {
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	regs.Reg = [abi.NumRegs]uint64{r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12,
		r.R13, r.R14, r.R15, r.Rip}
	return regs
}

// ignoreEINTR repeats a system call that a signal has interrupted.
func ignoreEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// readProcess returns a memory that reads from a process.
func readProcess(pid int32) memory {
	return func(p []byte, addr uint64) int {
		if len(p) == 0 || addr+uint64(len(p)) < addr {
			return 0
		}
		return procfs.ReadMemory(pid, addr, p)
	}
}
