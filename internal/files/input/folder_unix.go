//go:build unix && !linux

package input

import (
	"os"

	"golang.org/x/sys/unix"
)

const openFolder = unix.O_RDONLY

// privileged reports whether the process has the rights of another user or group than its
// caller.
func privileged() bool { return os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() }

// shared reports whether a user's number may stand for others, too.
func shared(int) bool { return false }
