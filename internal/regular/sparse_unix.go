//go:build unix

package regular

import (
	"io/fs"
	"syscall"
)

// IsSparse reports whether the disk has far less of a file than its size. Some file systems
// do not say how much they have; then it is 0.
func IsSparse(info fs.FileInfo) bool {
	const block = 512 // bytes of st_blocks: stat(3type)
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Size() > plainSize && st.Blocks > 0 && int64(st.Blocks)*block < info.Size()/sparsest
}
