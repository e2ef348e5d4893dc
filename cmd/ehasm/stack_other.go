//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"
)

// ofProcess says that processes cannot be looked at.
func (r *stackRun) ofProcess(context.Context, int32) error {
	return errors.New("needs Linux on x86-64; cores can be read here")
}

// handleCrash says that crashes are not handled.
func handleCrash(_ context.Context, _ *stackOptions, c *console) int {
	c.fail("--core-pattern", errors.New("needs Linux on x86-64"))
	return exitFailed
}
