//go:build !(linux && amd64)

package stacks

import (
	"context"
	"errors"
)

// ofProcesses says that processes cannot be looked at.
func (r *run) ofProcesses(context.Context) bool {
	r.c.Fail("processes", errors.New("needs Linux on x86-64; cores can be read here"))
	return false
}
