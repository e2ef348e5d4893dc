//go:build !unix

package builder

import "errors"

// EnterRoot returns an error: this system has no chroot.
func EnterRoot(string) error { return errors.ErrUnsupported }
