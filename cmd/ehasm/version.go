package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/ehasm/ehasm/abi"

	"github.com/spf13/pflag"
)

// release is the version of the sources. It goes into every eh_elf; raise it with
// any change to the generated code, so that older files count as out of date.
const release = "0.6.9"

const versionHelp = `Show the version of ehasm and of the eh_elf interface it writes.

Usage:
  ehasm version
`

const versionMore = `Examples:
  ehasm version
`

func versionVerb() verb {
	v := verb{name: "version", brief: "show the version", help: versionHelp, more: versionMore}
	v.flags = func(*pflag.FlagSet) func(context.Context, []string, *console) int {
		return func(_ context.Context, args []string, c *console) int {
			if len(args) > 0 {
				return v.misuse(c, fmt.Errorf("unexpected argument %q", args[0]))
			}
			fmt.Fprintf(c.out, "ehasm %s\neh_elf ABI version %d\n%s %s/%s\n", toolVersion(), abi.Version,
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return exitDone
		}
	}
	return v
}

// toolVersion returns the version that the Go command stamped into the program (a
// release, or a commit if it was built in a checkout), otherwise that of the
// sources.
func toolVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return release
}
