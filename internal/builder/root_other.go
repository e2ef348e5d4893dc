//go:build !unix

package builder

import "errors"

// EnterRoot returns an error: this system has no chroot.
func EnterRoot(string, *Remote) error { return errors.ErrUnsupported }
