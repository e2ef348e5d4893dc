//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// checkDescriptors reports whether the process may open the files that the Go run-time opens
// as it needs them, two of its own, beside one to read and one to write: without its own it
// ends with a page of registers. It uses none of the run-time's.
func checkDescriptors() error {
	const needed = 4
	var open []int
	defer func() {
		for _, fd := range open {
			syscall.Close(fd)
		}
	}()
	for range needed {
		fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err == syscall.EMFILE || err == syscall.ENFILE {
			return fmt.Errorf("the limit on open files (ulimit -n, RLIMIT_NOFILE) is too low: %d more than are open now, please", needed)
		}
		if err != nil {
			return nil // no /dev here
		}
		open = append(open, fd)
	}
	return nil
}
