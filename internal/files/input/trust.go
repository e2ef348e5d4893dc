// Package input opens files whose names other users may have chosen.
//
// Open opens regular files and nothing else, whatever the name refers to by then: opening a FIFO waits for a writer,
// opening some devices has effects, and some files of /proc block their readers.
//
// OpenTrusted opens files whose code will be run. A file is trusted if no user but
// root and the effective user can have written it or put it there:
//
//   - it is a regular file that root or the effective user owns, and neither its group nor others may write to it;
//   - the same holds for every folder above it, except that others may write to a sticky folder, such as /tmp: only the
//     owner of an entry can replace it there;
//   - root or the effective user owns every symbolic link on the path.
//
// OpenTrusted walks the path folder by folder, opens each below the one before, and returns
// the descriptor that it checked. So it accepts neither a cache in another user's home, to
// which HOME leads after sudo -E, nor one that others may write to.
//
// runtime/src/trust.c implements the same rule in C. On systems other than Unix nothing is
// checked: no code is run there.
package input

import "errors"

// ErrUntrusted is wrapped by errors about files that others may have written. The
// error names the file, folder or link and the reason.
var ErrUntrusted = errors.New("not trusted")

// maxLinks is how many symbolic links a path may lead through; Linux follows as many.
const maxLinks = 40

// CheckTrusted returns the error of OpenTrusted: why the file at path is not trusted.
func CheckTrusted(path string) error {
	f, err := OpenTrusted(path)
	if err == nil {
		f.Close()
	}
	return err
}
