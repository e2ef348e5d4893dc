//go:build unix

package symbols

import (
	"io/fs"
	"os"
	"syscall"
)

// isOwn reports whether a file belongs to root or to the user; to root, all do.
func isOwn(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || st.Uid == uint32(os.Geteuid()) || os.Geteuid() == 0)
}
