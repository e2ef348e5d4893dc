//go:build linux && amd64

package recorder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// This file starts the recorded command, hands signals on to it, and tells when it, or the processes of -p, have ended.
// Other verbs execute the command in their place; a recorder lives beside it, and should not be noticed.

// passOn sends the command a signal, unless it has received it itself: the terminal's driver sends a signal that is
// typed (^C, ^\) to all processes of its foreground group (termios(3), ISIG). One that comes while this group is there
// is taken for typed; without a terminal, or in the background, none was.
func passOn(s os.Signal, process *os.Process) {
	if s == os.Interrupt || s == syscall.SIGQUIT {
		if tty, err := os.Open("/dev/tty"); err == nil {
			defer tty.Close()
			if group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP); err == nil && group == unix.Getpgrp() {
				return
			}
		}
	}
	process.Signal(s)
}

// startCommand starts a command; the shell runs a script without an interpreter line, as with execvp(3). It must be
// called on the thread whose children are recorded. After an error, nothing runs.
func startCommand(cmd *exec.Cmd) error {
	err := cmd.Start()
	if !errors.Is(err, syscall.ENOEXEC) {
		return err
	}
	// ELF, which a shell would take for text
	if programs, failed := find.Programs(cmd.Path, ""); failed == nil && programs[0] == cmd.Path {
		return fmt.Errorf("for another machine, or damaged: %w", find.ErrNotExecutable)
	}
	args := append([]string{find.Shell, cmd.Path}, cmd.Args[1:]...)
	// an exec.Cmd that has failed to start cannot be started again
	stdin, stdout, stderr := cmd.Stdin, cmd.Stdout, cmd.Stderr
	*cmd = *exec.Command(find.Shell, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	return cmd.Start()
}

// exitStatus waits for a command and returns its exit status; after a signal, 128 plus its
// number, as in shells.
func exitStatus(cmd *exec.Cmd) int {
	cmd.Wait()
	state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok:
		return failed
	case state.Signaled():
		return host.BySignal + int(state.Signal())
	}
	return state.ExitStatus()
}

// waitFor closes ended when all of the processes have ended. It returns at once: an error if a number is no process's.
// A goroutine a process waits for its pidfd, which poll(2) reports as readable when the process ends, also to others
// than its parent.
func waitFor(pids []int, ended chan<- struct{}) error {
	var running sync.WaitGroup
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) { // it was there when its events were opened
			continue
		}
		// pidfd_open(2) without flags refuses threads that lead no process, by an error that does not say so.
		if of := processOf(pid); err != nil && of != pid {
			err = fmt.Errorf("a thread of process %d: name that", of)
		}
		if err != nil {
			return &Error{Name: fmt.Sprintf("process %d", pid), Err: err}
		}
		running.Go(func() {
			defer unix.Close(fd)
			for {
				_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
				if !errors.Is(err, unix.EINTR) {
					return
				}
			}
		})
	}
	go func() {
		running.Wait()
		close(ended)
	}()
	return nil
}

// processOf returns the process of a thread. If there is none, that is id itself.
func processOf(id int) int {
	fmt.Sscan(procfs.Status(int32(id))["Tgid"], &id)
	return id
}
