//go:build unix

package builder

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// EnterRoot makes folder the root of this process for good: paths, links and the cache of all users are the ones of the
// system that lies there, such as an unpacked image. From nil or a server, which is
// found by the names and certificates of this system. It needs CAP_SYS_CHROOT.
func EnterRoot(folder string, from *Remote) error {
	from.keep()
	if err := unix.Chroot(folder); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}
