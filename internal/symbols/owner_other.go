//go:build !unix

package symbols

import "io/fs"

// isOwn returns false: owners are not known on this host, and no run-time
// compiler writes files for perf.
func isOwn(fs.FileInfo) bool { return false }
