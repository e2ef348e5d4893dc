//go:build unix && !linux

package trust

import "golang.org/x/sys/unix"

const openFolder = unix.O_RDONLY
