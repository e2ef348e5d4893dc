//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"
)

// handleCrash says that crashes are not handled.
func handleCrash(_ context.Context, _ *stackOptions, c *console) int {
	c.fail("--core-pattern", errors.New("needs Linux on x86-64"))
	return exitFailed
}
