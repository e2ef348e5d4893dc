package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ehasm/ehasm/internal/profile/recorder"

	"github.com/spf13/pflag"
)

// This file is agent: recordings that go on for days. Its flags say where profiles go meanwhile; all others are
// record's.

const agentHelp = `Record all the time: the whole system, unless processes or a command are named.
agent writes a profile each --every, sends them to a server, or keeps the last
minutes in memory until they are asked for.

Usage:
  ehasm agent [flags] --push URL [-p PID | --name PATTERN | COMMAND]
  ehasm agent [flags] --every TIME -o FOLDER [-p PID | --name PATTERN | COMMAND]
  ehasm agent [flags] --flight TIME [-p PID | --name PATTERN | COMMAND]
  ehasm agent --dump PID
`

const agentMore = `With --every, agent writes a profile into a folder each time, until it ends.
With --flight it keeps only the last minutes, in memory. It writes them at the
end, on SIGUSR2, and on 'ehasm agent --dump PID' from elsewhere, with the time
in the name.

--push sends profiles to Grafana Pyroscope, to an OpenTelemetry Collector (otlp)
or to any server that takes pprof files by POST. If the server is unreachable,
agent tries each profile again, for about a minute. It counts those that it
could not send, and writes them to the folder of -o, if there is one. Other
users can read the command line: keep secret headers in a file, --push-header
@FILE, or in the environment variable EHASM_PUSH_HEADER, a line each.

` + eventsText + `
` + labelsText + `
` + rightsText + `
Examples:
  ehasm agent --push http://pyroscope:4040 --push-name shop
  ehasm agent --every 60s -o profiles
  ehasm agent --flight 10m -o server.pb.gz -- ./server
`

// defaultPush is the time of a profile that is sent, if --every names none. Agents of Pyroscope send as often, so its
// views have the resolution that they expect.
const defaultPush = 15 * time.Second

// agentVerb is the verb agent. It has record's flags but those for what ends by itself, such as --off-cpu and --raw.
func agentVerb() verb {
	v := verb{name: "agent", brief: "record all the time, and write or send profiles", help: agentHelp, more: agentMore,
		command: true,
		groups: []flagGroup{
			{"Flags", []string{"push", "every", "flight", "output", "dump", "frequency"}},
			{"The server", []string{"push-as", "push-name", "push-label", "push-header"}},
			{"Which processes", []string{"pid", "all", "name", "unit", "container", "cgroup", "duration"}},
			{"What is counted", []string{"event", "count", "filter"}},
			{"What is written", []string{"format", "labels", "inline", "lines", "signatures", "no-demangle", "stats", "quiet"}},
			walkGroup("realtime"), copyGroup(),
		}}
	v.flags = func(fs *pflag.FlagSet) func(context.Context, []string, *console) int {
		opt := newRecordOptions(v, fs)
		fs.StringVar(&opt.Push.URL, "push", "", "send a profile each --every (15s) to the server at `URL`")
		fs.DurationVar(&opt.Run.Every, "every", 0, "write a profile each `TIME` into the folder -o")
		fs.DurationVar(&opt.Run.Flight, "flight", 0, "keep the last `TIME` in memory, and write it on request")
		dump := fs.Int("dump", 0, "make process `PID`, an agent with --flight, write what it keeps")
		fs.StringVar(&opt.Push.Protocol, "push-as", "pyroscope", "send as `PROTOCOL`: pyroscope, otlp, pprof")
		fs.StringVar(&opt.Push.Name, "push-name", "", "`NAME` of the service there; default: the command's, or ehasm")
		fs.StringArrayVar(&opt.Push.Labels, "push-label", nil, "further label: `PAIR` is NAME=VALUE; may be repeated")
		fs.StringArrayVar(&opt.Push.Headers, "push-header", nil,
			"header of each request: `LINE` is 'NAME: VALUE', or @FILE of such")
		opt.outputFlags()
		fs.Lookup("output").Usage = "with --every, the folder; else a `FILE`, whose name chooses the format"
		opt.targetFlags("record")
		opt.eventFlags()
		opt.nameFlags()
		opt.given.labels = declareLabels(fs)
		opt.walkFlags()
		fs.BoolVar(&opt.Sampling.Realtime, "realtime", false,
			"read samples at real-time priority (root): none are lost when it is busy")
		return func(ctx context.Context, args []string, c *console) int {
			if fs.Changed("dump") {
				return dumpAgent(*dump, len(args) > 0, c)
			}
			opt.Output.Named = fs.Changed("output")
			if err := opt.parseContinuous(len(args) > 0); err != nil {
				return v.misuse(c, err)
			}
			return opt.run(ctx, args, c)
		}
	}
	return v
}

// dumpAgent makes another agent write what it keeps: it sends SIGUSR2, after it has made sure that the process is one
// that takes it. command says that one was given, which --dump would ignore.
func dumpAgent(pid int, command bool, c *console) int {
	switch {
	case command:
		return agentVerb().misuse(c, errors.New("--dump and a command exclude each other"))
	case pid < 1:
		return agentVerb().misuse(c, fmt.Errorf("--dump %d: not a process", pid))
	}
	if err := recorder.Dump(pid); err != nil {
		c.fail(fmt.Sprintf("process %d", pid), err)
	}
	return exitDone // or failed, if c has a failure
}

// parseContinuous checks what becomes of profiles: they are sent, written each time, or kept until asked for, and just
// one of these, but for a folder that takes what could not be sent. Without a target, the whole system is recorded.
func (opt *recordOptions) parseContinuous(command bool) error {
	// at 999 Hz, a shorter part has too few samples for the names and the file that it costs
	const least = time.Second
	if !command && len(opt.Target.PIDs) == 0 && !opt.Target.Selection.Given() {
		opt.Target.All = true
	}
	if opt.Push.URL != "" && opt.Run.Every == 0 && opt.Run.Flight == 0 {
		opt.Run.Every = defaultPush
	}
	switch {
	case opt.Run.Every != 0 && opt.Run.Flight != 0 || opt.Run.Flight != 0 && opt.Push.URL != "":
		return errors.New("--every or --push, and --flight exclude each other")
	case opt.Run.Every == 0 && opt.Run.Flight == 0:
		return errors.New("what becomes of profiles? give --push URL, --every TIME -o FOLDER, or --flight TIME")
	case opt.Run.Every < 0 || opt.Run.Every > 0 && opt.Run.Every < least:
		return fmt.Errorf("--every %v: want at least %v", opt.Run.Every, least)
	case opt.Run.Flight < 0 || opt.Run.Flight > 0 && opt.Run.Flight < least:
		return fmt.Errorf("--flight %v: want at least %v", opt.Run.Flight, least)
	case slices.Contains(opt.Sampling.Events.Names(), "off-cpu"):
		return errors.New("off-cpu is for record: what is blocked goes on from one profile to the next")
	case opt.Output.Path == "-":
		return errors.New("-o -: agent writes files")
	case opt.Push.URL == "" && len(opt.Push.Labels)+len(opt.Push.Headers)+len(opt.Push.Name) > 0:
		return errors.New("--push-name, --push-label and --push-header go with --push")
	case opt.Run.Every > 0 && !opt.Output.Named && opt.Push.URL == "":
		return errors.New("--every: name a folder with -o")
	}
	return nil
}
