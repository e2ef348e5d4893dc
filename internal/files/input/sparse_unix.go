//go:build unix

package input

import (
	"io/fs"
	"syscall"
)

// IsSparse reports whether the disk has far less of a file of more than 64 MB than its size. A file system that does
// not say how much it has says 0, as for holes alone.
func IsSparse(info fs.FileInfo) bool {
	const block = 512 // bytes of st_blocks: stat(3type)
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Size() > plainSize && int64(st.Blocks)*block < info.Size()/sparsest
}

// OwnedAlike reports whether two files have one owner.
func OwnedAlike(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, also := b.Sys().(*syscall.Stat_t)
	return ok && also && x.Uid == y.Uid
}
