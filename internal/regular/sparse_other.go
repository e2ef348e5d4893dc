//go:build !unix

package regular

import "io/fs"

// IsSparse reports whether a file is mostly holes, which cannot be told here.
func IsSparse(fs.FileInfo) bool { return false }
