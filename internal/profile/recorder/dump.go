//go:build linux && amd64

package recorder

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/procfs"

	"golang.org/x/sys/unix"
)

// Dump makes another recording write what it keeps. It checks the process first: SIGUSR2 ends one that does not catch
// it (signal(7)), and another program may understand it otherwise. The error says why no signal was sent; whether a
// profile was written, the other recording tells.
func Dump(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0) // so that the process checked is the one that gets the signal
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	status := procfs.Status(int32(pid))
	// a mask in hexadecimal, bit 0 for signal 1: proc(5), /proc/PID/status
	caught, _ := strconv.ParseUint(status["SigCgt"], 16, 64)
	// ehasm may be installed under a name with a version; comm has at most 15 bytes
	ours := strings.HasPrefix(status["Name"], "ehasm")
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if !ours || caught>>(syscall.SIGUSR2-1)&1 == 0 || !strings.Contains(string(args), "--flight") {
		return errors.New("not an agent with --flight")
	}
	return unix.PidfdSendSignal(fd, unix.SIGUSR2, nil, 0)
}
