//go:build linux && amd64

package stack

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// This file reads from /proc what a thread does before it is stopped, as the stop itself changes it, and explains why
// one may not be stopped.

// ended is the state of a thread that its parent has not waited for yet.
const ended = "has ended"

// runnable reports whether a thread would run if it got a CPU: state R of proc_pid_stat(5), after the name, which may
// have any characters.
func runnable(tid int32) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid)) // no file, no thread
	return bytes.Contains(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(") R "))
}

// kernelStack returns the functions of the kernel that a thread is in, innermost first, as far as that may be read:
// proc_pid_stack(5).
func kernelStack(pid, tid int32) (list []string) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stack", pid, tid)) // it takes CAP_SYS_ADMIN
	for line := range strings.Lines(string(b)) {
		if _, symbol, ok := strings.Cut(strings.TrimSpace(line), "] "); ok {
			symbol, _, _ = strings.Cut(symbol, "/") // the function's size
			list = append(list, symbol)
		}
	}
	return list
}

// describe returns the name of a thread and what it does, before it is stopped. Both are "" if the thread has gone.
func describe(pid, tid int32) (comm, state string) {
	task := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	b, err := os.ReadFile(task + "stat")
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if err != nil || open < 0 || end < open || end+2 >= len(b) {
		return "", ""
	}
	comm = string(b[open+1 : end])
	switch letter := b[end+2]; letter {
	case 'R':
		return comm, "running"
	case 'S', 'D', 'I':
		state = "blocked"
		if letter == 'D' {
			state = "blocked, cannot be interrupted,"
		}
		return comm, state + blockedIn(pid, task)
	case 'T':
		return comm, "stopped by a signal"
	case 't':
		return comm, "stopped by a debugger"
	case 'Z', 'X':
		return comm, ended
	default:
		return comm, "state " + string(letter)
	}
}

// blockedIn returns the system call of a blocked thread, or where it waits in the kernel, as far as that may be
// read.
func blockedIn(pid int32, task string) string {
	const number, first = 0, 1 // fields of the file: the number, then the arguments
	b, err := os.ReadFile(task + "syscall")
	fields := strings.Fields(string(b))
	if err != nil || len(fields) <= first || fields[number] == "-1" { // -1: blocked in no system call
		if w, err := os.ReadFile(task + "wchan"); err == nil && len(w) > 0 && string(w) != "0" {
			return " in the kernel's " + output.Text(string(w))
		}
		return ""
	}
	n, err := strconv.Atoi(fields[number])
	if err != nil {
		return ""
	}
	call := syscalls[n]
	if call.name == "" {
		return fmt.Sprintf(" in system call %d", n)
	}
	switch call.argument {
	// What an argument is shown as: an address as such, a descriptor with its file.
	case address:
		return fmt.Sprintf(" in %s(%s)", call.name, fields[first])
	case descriptor:
		fd, err := strconv.ParseUint(fields[first], 0, 64)
		if err != nil {
			break
		}
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, uint32(fd))) // it may have been closed
		return fmt.Sprintf(" in %s(%s)", call.name, strings.TrimSpace(fmt.Sprintf("%d %s", uint32(fd), output.Text(target))))
	}
	return " in " + call.name
}

// argument says what is shown of a system call's arguments: the first, or none.
type argument uint8

const (
	none argument = iota
	address
	descriptor
)

// call is a system call that blocks.
type call struct {
	name     string
	argument argument
}

// syscalls are the system calls that block for long, by number: asm/unistd_64.h. 455 has no name in package unix yet.
// Of the others, a number is enough: they are seldom met.
var syscalls = map[int]call{
	unix.SYS_FUTEX: {"futex", address}, unix.SYS_FUTEX_WAITV: {"futex_waitv", address}, 455: {"futex_wait", address},
	unix.SYS_READ: {"read", descriptor}, unix.SYS_WRITE: {"write", descriptor}, unix.SYS_READV: {"readv", descriptor},
	unix.SYS_WRITEV:  {"writev", descriptor},
	unix.SYS_PREAD64: {"pread64", descriptor}, unix.SYS_PWRITE64: {"pwrite64", descriptor},
	unix.SYS_FSYNC: {"fsync", descriptor}, unix.SYS_FDATASYNC: {"fdatasync", descriptor},
	unix.SYS_RECVFROM: {"recvfrom", descriptor}, unix.SYS_RECVMSG: {"recvmsg", descriptor},
	unix.SYS_RECVMMSG: {"recvmmsg", descriptor},
	unix.SYS_SENDTO:   {"sendto", descriptor}, unix.SYS_SENDMSG: {"sendmsg", descriptor},
	unix.SYS_CONNECT: {"connect", descriptor},
	unix.SYS_ACCEPT:  {"accept", descriptor}, unix.SYS_ACCEPT4: {"accept4", descriptor},
	unix.SYS_IOCTL: {"ioctl", descriptor}, unix.SYS_FLOCK: {"flock", descriptor},
	unix.SYS_FCNTL: {"fcntl", descriptor}, unix.SYS_EPOLL_WAIT: {"epoll_wait", descriptor},
	unix.SYS_EPOLL_PWAIT: {"epoll_pwait", descriptor}, unix.SYS_EPOLL_PWAIT2: {"epoll_pwait2", descriptor},
	unix.SYS_IO_URING_ENTER: {"io_uring_enter", descriptor}, unix.SYS_POLL: {"poll", none},
	unix.SYS_PPOLL: {"ppoll", none}, unix.SYS_SELECT: {"select", none}, unix.SYS_PSELECT6: {"pselect6", none},
	unix.SYS_NANOSLEEP: {"nanosleep", none}, unix.SYS_CLOCK_NANOSLEEP: {"clock_nanosleep", none},
	unix.SYS_PAUSE: {"pause", none}, unix.SYS_WAIT4: {"wait4", none}, unix.SYS_WAITID: {"waitid", none},
	unix.SYS_RT_SIGSUSPEND: {"rt_sigsuspend", none}, unix.SYS_RT_SIGTIMEDWAIT: {"rt_sigtimedwait", none},
	unix.SYS_RESTART_SYSCALL: {"restart_syscall", none}, unix.SYS_VFORK: {"vfork", none}, unix.SYS_CLONE: {"clone", none},
	unix.SYS_CLONE3: {"clone3", none},
	unix.SYS_MSGRCV: {"msgrcv", none}, unix.SYS_MSGSND: {"msgsnd", none}, unix.SYS_SEMOP: {"semop", none},
	unix.SYS_SEMTIMEDOP: {"semtimedop", none}, unix.SYS_MQ_TIMEDRECEIVE: {"mq_timedreceive", descriptor},
	unix.SYS_OPENAT: {"openat", none},
}

// refused explains why a thread may not be looked at, and what helps. The kernel says EPERM for all reasons: which one
// it is follows from /proc, and the first that holds is named.
func refused(tid int32, err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("ptrace of thread %d: %w", tid, err)
	}
	s := procfs.Status(tid)
	var reason, remedy string
	scope := "0"
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil {
		scope = strings.TrimSpace(string(b))
	}
	owner, _, _ := strings.Cut(s["Uid"], "\t")
	switch tracer := s["TracerPid"]; {
	case tracer != "" && tracer != "0":
		n, _ := strconv.Atoi(tracer) // the thread that traces
		by := procfs.Status(int32(n))
		reason = fmt.Sprintf("process %s (%s) traces it", cmp.Or(by["Tgid"], tracer), output.Text(by["Name"]))
		remedy = "end that debugger or strace first"
	case scope == "3":
		reason, remedy = "kernel.yama.ptrace_scope=3 forbids ptrace until the next boot",
			"a core (ehasm stack CORE) needs no ptrace"
	case owner != strconv.Itoa(os.Getuid()):
		reason, remedy = fmt.Sprintf("the process belongs to user %s", owner), "be root, have CAP_SYS_PTRACE, or be that user"
	case scope == "2" || scope == "1":
		reason = fmt.Sprintf("kernel.yama.ptrace_scope=%s forbids it without CAP_SYS_PTRACE", scope)
		remedy = "be root, or as root sysctl kernel.yama.ptrace_scope=0"
	case os.Getuid() == 0:
		reason = "this process has no CAP_SYS_PTRACE in the user namespace of that one, or a security module forbids it"
		remedy = "run the container with --cap-add=SYS_PTRACE, or ehasm outside"
	default:
		reason = "the process has more rights than this one, or is not dumpable: prctl(2), PR_SET_DUMPABLE"
		remedy = "be root or have CAP_SYS_PTRACE"
	}
	return fmt.Errorf("ptrace: %w: %s; %s", err, reason, remedy)
}

// noMemory explains why a process has nothing mapped.
func noMemory(pid int32) error {
	switch _, state := describe(pid, pid); {
	case state == ended:
		return fmt.Errorf("%w, and its parent has not waited for it yet", ErrEnded)
	case state == "":
		return noProcess(pid)
	}
	return errors.New("a kernel thread: it has no stack in user space")
}

// noProcess is ErrNoProcess, unless /proc shows no process at all, or not this one to this user.
func noProcess(pid int32) error { return cmp.Or(procfs.NotShown(pid), ErrNoProcess) }
