//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"
)

// ofProcesses says that processes cannot be looked at.
func (r *stackRun) ofProcesses(context.Context) bool {
	r.c.fail("processes", errors.New("needs Linux on x86-64; cores can be read here"))
	return false
}

// handleCrash says that crashes are not handled.
func handleCrash(_ context.Context, _ *stackOptions, c *console) int {
	c.fail("--core-pattern", errors.New("needs Linux on x86-64"))
	return exitFailed
}
