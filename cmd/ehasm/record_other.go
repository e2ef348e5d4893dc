//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"
)

// runRecord says that there is nothing to record with.
func runRecord(_ context.Context, _ []string, _ *recordOptions, c *console) int {
	c.fail("record", errors.New("needs Linux on x86-64: samples come from perf_event_open(2)"))
	return exitFailed
}
