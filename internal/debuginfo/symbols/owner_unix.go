//go:build unix

package symbols

import (
	"cmp"
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

// UserOf returns whose a process is; 0: root's, or not known.
func UserOf(pid int32) uint32 {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return 0
	}
	uid, _ := ownerOf(info)
	return uid
}

// isOf reports whether a file that is said to come from a process may be believed. To root it
// may also belong to the user whose process it is, or was when that was noted.
func isOf(info fs.FileInfo, w *Written) bool {
	uid, ok := ownerOf(info)
	return ok && believed(uid, uint32(os.Geteuid()), func() uint32 { return cmp.Or(w.User, UserOf(w.PID)) })
}

// believed reports whether self believes the files of owner. process returns whose the process is: asked only for
// root, who looks at processes of others.
func believed(owner, self uint32, process func() uint32) bool {
	return owner == 0 || owner == self || self == 0 && process() == owner
}
