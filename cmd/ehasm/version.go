package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/compile"

	"github.com/spf13/pflag"
)

const versionHelp = `Show the version of ehasm and of the eh_elf interface it writes.

Usage:
  ehasm version
`

const versionMore = `Examples:
  ehasm version
`

// versionVerb is the verb version, also as --version. The ABI's number says which libehunwind can load the eh_elfs;
// the Go release is there for reports of defects.
func versionVerb() verb {
	v := verb{name: "version", brief: "show the version", help: versionHelp, more: versionMore}
	v.flags = func(*pflag.FlagSet) func(context.Context, []string, *console) int {
		return func(_ context.Context, args []string, c *console) int {
			if len(args) > 0 {
				return v.misuse(c, fmt.Errorf("unexpected argument %q", args[0]))
			}
			fmt.Fprintf(c.out, "ehasm %s\neh_elf ABI version %d\n%s %s/%s\n", compile.Release, abi.Version,
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return exitDone
		}
	}
	return v
}
