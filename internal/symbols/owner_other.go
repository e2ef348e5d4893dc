//go:build !unix

package symbols

import "io/fs"

// isOwn reports false: who owns a file is not asked here, and no run-time
// compiler of this host writes files for perf.
func isOwn(fs.FileInfo) bool { return false }
