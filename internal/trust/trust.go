// Package trust opens files whose code is going to be run. A file counts if nobody but
// root and the effective user can have written it or put it there:
//
//   - it is a regular file of root's or the effective user's, and neither its group nor
//     others may write it;
//   - so is every folder above it, but that a folder which others may write counts if it is
//     sticky, as /tmp is: what is in it can be replaced by its owner only;
//   - every symbolic link on the way is root's or the effective user's.
//
// The way is walked folder by folder, each opened below the one before, and what is returned
// is the very file that was looked at. So neither a cache in another user's home, which is
// where HOME leads after sudo -E, nor one that others may write is used.
//
// This is the one such rule of the Go side; runtime/src/trust.c is that of the C side. On systems
// that are not Unix nothing is checked: no code is run there.
package trust

import "errors"

// ErrUntrusted is wrapped by the errors about files that others may have written. The
// error names the file, folder or link and says what is wrong with it.
var ErrUntrusted = errors.New("not trusted")

// maxLinks is how many symbolic links a path may lead through; Linux follows as many.
const maxLinks = 40
