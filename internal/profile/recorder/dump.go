//go:build linux && amd64

package recorder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dump makes another recording write what it keeps. It checks the process first:
// the signal ends one that does not expect it.
func Dump(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0) // so that the process checked is the one that gets the signal
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return err
	}
	caught := uint64(0)
	ours := false
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
		if v, ok := strings.CutPrefix(line, "Name:"); ok {
			ours = strings.HasPrefix(strings.TrimSpace(v), "ehasm")
		}
	}
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if !ours || caught>>(syscall.SIGUSR2-1)&1 == 0 || !strings.Contains(string(args), "--flight") {
		return errors.New("not an agent with --flight")
	}
	return unix.PidfdSendSignal(fd, unix.SIGUSR2, nil, 0)
}
