//go:build unix

package host

import (
	"fmt"
	"syscall"
)

// RaiseDescriptors returns an error unless the process may open two files for the Go
// run-time, which opens them on demand and without them ends with a page of registers, and
// one each to read and to write. It does not itself use the run-time's.
func RaiseDescriptors() error {
	const needed = 4 // two for the run-time, one to read, one to write
	var open []int
	defer func() {
		for _, fd := range open {
			syscall.Close(fd)
		}
	}()
	for range needed {
		fd, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err == syscall.EMFILE || err == syscall.ENFILE {
			return fmt.Errorf("the limit on open files (ulimit -n, RLIMIT_NOFILE) is too low: %d more files than are open now are needed", needed)
		}
		if err != nil {
			return nil // no /dev here
		}
		open = append(open, fd)
	}
	return nil
}
