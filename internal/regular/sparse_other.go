//go:build !unix

package regular

import "io/fs"

func isSparse(fs.FileInfo) bool { return false }
