//go:build linux && amd64

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ehasm/ehasm/internal/files/shown"
	"github.com/ehasm/ehasm/internal/profile/crash"
)

// kernelLog takes a line with each write: Documentation/ABI/testing/dev-kmsg.
const kernelLog = "/dev/kmsg"

// handleCrash is a handler of kernel.core_pattern.
func handleCrash(ctx context.Context, opt *stackOptions, c *console) int {
	_, err := crash.Handle(ctx, crash.Options{PID: int32(opt.Processes.PIDs[0]), TID: int32(opt.Processes.PIDs[1]), Folder: opt.output, JSON: opt.Format != nil,
		Handler: opt.handler, Pointers: opt.Pointers}, os.Stdin)
	if err == nil {
		return exitDone
	}
	name := fmt.Sprintf("crash of process %d", opt.Processes.PIDs[0])
	c.fail(name, err)
	if outputClosed { // as the kernel starts handlers: its log is the one place that is read
		if log, logErr := os.OpenFile(kernelLog, os.O_WRONLY, 0); logErr == nil {
			defer log.Close()
			fmt.Fprintf(log, "ehasm: %s: %s\n", name, shown.Error(name, err))
		}
	}
	return exitFailed
}
