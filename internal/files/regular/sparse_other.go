//go:build !unix

package regular

import "io/fs"

// IsSparse returns false: whether a file is mostly holes is not known on this
// host.
func IsSparse(fs.FileInfo) bool { return false }
