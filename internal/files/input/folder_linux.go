package input

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// openFolder needs only search permission, not read permission.
const openFolder = unix.O_PATH

// privileged reports whether the process has rights that its caller does not have: those
// of another user or group, including saved ids, or file capabilities.
func privileged() bool {
	const atSecure = 23 // AT_SECURE of linux/auxvec.h
	if real, effective, saved := unix.Getresuid(); real != effective || saved != effective {
		return true
	}
	if real, effective, saved := unix.Getresgid(); real != effective || saved != effective {
		return true
	}
	auxv, err := unix.Auxv()
	for _, entry := range auxv {
		if entry[0] == atSecure && entry[1] != 0 {
			return true
		}
	}
	return err != nil
}

// shared reports whether a user's number may stand for others, too: in a user namespace, files of all
// users that it does not know seem to be of one (user_namespaces(7)).
func shared(user int) bool {
	const overflow = 65534 // unless /proc/sys/kernel/overflowuid says otherwise
	if user != overflow {
		return false
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || !slices.Equal(strings.Fields(string(b)), []string{"0", "0", "4294967295"})
}
