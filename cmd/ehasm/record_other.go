//go:build !linux

package main

import (
	"context"
	"errors"
)

// runRecord says that there is nothing to record with.
func runRecord(_ context.Context, _ []string, _ *recordOptions, c *console) int {
	c.fail("record", errors.New("needs Linux: samples come from perf_event_open(2)"))
	return exitFailed
}
