package ehcache

import (
	"io/fs"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// used returns when a file was last read or written. With relatime, the kernel's default, a read within a day of the
// last recorded one is not recorded (mount(8)).
func used(info fs.FileInfo) time.Time {
	written := info.ModTime()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		if read := time.Unix(st.Atim.Unix()); read.After(written) {
			return read
		}
	}
	return written
}

// noTimes reports whether the file system of a folder does not record reads: mounted with noatime or read-only.
func noTimes(folder string) bool {
	var st unix.Statfs_t
	return unix.Statfs(folder, &st) == nil && st.Flags&(unix.MS_NOATIME|unix.MS_RDONLY) != 0
}
