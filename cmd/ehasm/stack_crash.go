//go:build linux && amd64

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/crash"
)

// kernelLog takes a line with each write: Documentation/ABI/testing/dev-kmsg.
const kernelLog = "/dev/kmsg"

// handleCrash is a handler of kernel.core_pattern, or with crash.UserVariable its reporter: the handler starts this
// program again with the same arguments, as a process with bounds on time and memory. The kernel ignores the exit
// status.
func handleCrash(ctx context.Context, opt *stackOptions, c *console) int {
	pids := opt.Processes.PIDs
	how := crash.Options{PID: int32(pids[0]), TID: int32(pids[1]), Folder: opt.output, JSON: opt.Format != nil,
		Handler: opt.handler, Pointers: opt.Pointers}
	if os.Getenv(crash.UserVariable) != "" {
		if err := crash.Report(ctx, how, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(c.stderr, err)
			return exitFailed
		}
		return exitDone
	}
	how.Reporter = append([]string{"/proc/self/exe"}, os.Args[1:]...)
	_, err := crash.Handle(how, os.Stdin)
	if err == nil {
		return exitDone
	}
	name := fmt.Sprintf("crash of process %d", pids[0])
	c.fail(name, err)
	if outputClosed { // as the kernel starts handlers: its log is the one place that is read
		if log, logErr := os.OpenFile(kernelLog, os.O_WRONLY, 0); logErr == nil {
			defer log.Close()
			fmt.Fprintf(log, "ehasm: %s: %s\n", name, output.ErrorText(name, err))
		}
	}
	return exitFailed
}
