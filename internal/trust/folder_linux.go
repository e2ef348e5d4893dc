package trust

import "golang.org/x/sys/unix"

// openFolder: a folder that may be searched need not be readable.
const openFolder = unix.O_PATH

// privileged reports whether the process has rights that who started it has not: those of
// another user or group, also put aside for later, or of file capabilities.
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
