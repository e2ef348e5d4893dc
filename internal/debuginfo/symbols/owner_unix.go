//go:build unix

package symbols

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownerOf returns the user whose file it is.
func ownerOf(info fs.FileInfo) (uint32, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}

// isOf reports whether a file that is said to come from a process may be believed. To root it
// may also belong to the user whose process it is, while that runs.
func isOf(info fs.FileInfo, pid int32) bool {
	uid, ok := ownerOf(info)
	return ok && believed(uid, uint32(os.Geteuid()), func() (uint32, bool) {
		process, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		if err != nil {
			return 0, false
		}
		return ownerOf(process)
	})
}

// believed reports whether self believes the files of owner. process returns whose the process is.
func believed(owner, self uint32, process func() (uint32, bool)) bool {
	if owner == 0 || owner == self {
		return true
	}
	if self != 0 {
		return false
	}
	uid, ok := process()
	return ok && uid == owner
}
