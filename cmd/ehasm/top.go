package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/pflag"
)

// This file is top: record with a view in place of a profile.

const topHelp = `Show on the terminal, each second, where the time of the last five seconds went:
functions, or after tab the tree of stacks. Enter on a function shows its
callers, / searches names and libraries, space pauses. q ends it, and COMMAND.

Usage:
  ehasm top [flags] -p PID[,PID...]
  ehasm top [flags] --name PATTERN | --unit UNIT | --container ID
  ehasm top [flags] -a
  ehasm top [flags] [--] COMMAND [ARGUMENT...]
`

const topMore = `A profile is written only with -o; its name chooses the format, as with record.
COMMAND's terminal output goes to /dev/null unless it is redirected.

` + eventsText + `
` + rightsText + `
Examples:
  ehasm top -p 1234
  ehasm top -a
  ehasm top -e page-faults -- ./server
`

// topVerb is the verb top. off-cpu is refused since it counts a wait when it ends: a view of five seconds would miss
// what waits now.
func topVerb() verb {
	v := verb{name: "top", brief: "show where a program, or the system, spends its time", help: topHelp, more: topMore,
		command: true,
		groups: []flagGroup{
			{"Flags", []string{"pid", "all", "frequency", "event", "duration", "output"}},
			{"Which processes", []string{"name", "unit", "container", "cgroup"}},
			{"What is shown", []string{"inline", "lines", "signatures", "no-demangle"}},
			walkGroup(), copyGroup(),
		}}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := newRecordOptions(v, fs)
		opt.Run.Top = true
		opt.outputFlags()
		fs.Lookup("output").DefValue = "" // none is written
		opt.targetFlags("show")
		opt.eventFlags()
		opt.nameFlags()
		opt.walkFlags()
		return func(ctx context.Context, args []string, c *console) int {
			switch {
			case slices.Contains(opt.Sampling.Events.Names(), "off-cpu"):
				return v.misuse(c, errors.New("off-cpu is for record"))
			case opt.Output.Path == "-":
				return v.misuse(c, errors.New("-o -: top has the terminal"))
			}
			return opt.run(ctx, args, c)
		}
	}
	return v
}
