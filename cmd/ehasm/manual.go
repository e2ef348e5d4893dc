package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ehasm/ehasm/cmd/ehasm/manual"
	"github.com/ehasm/ehasm/compile"
	"github.com/ehasm/ehasm/internal/inspect"
	"github.com/ehasm/ehasm/internal/profile/labels"

	"github.com/spf13/pflag"
)

// This file is man and completion: package manual gets the texts and flags of all verbs and lays them out, so that no
// text is written twice.

const manHelp = `Print a man page, in man(7) macros, for ehasm, for a verb, or for ehasm-perf
(perf). The pages are made from the same texts and flags as --help.

Usage:
  ehasm man [VERB]
`

const manMore = `Examples:
  ehasm man build | man -l -
  ehasm man >/usr/local/share/man/man1/ehasm.1
`

// manVerb is the verb man: the page of ehasm, or of one verb, made from the texts and flags of
// --help.
func manVerb() verb {
	v := verb{name: "man", brief: "print a man page", help: manHelp, more: manMore}
	v.flags = func(*pflag.FlagSet) func(context.Context, []string, *console) int {
		return func(_ context.Context, args []string, c *console) int {
			command := describeCommand()
			command.Verbs = append(command.Verbs, manual.Verb{Name: "perf", Brief: perfBrief, Help: perfHelp,
				Flags: pflag.NewFlagSet("", pflag.ContinueOnError)})
			switch len(args) {
			case 0:
				fmt.Fprint(c.out, command.Page())
				return exitDone
			case 1:
				for _, verb := range command.Verbs {
					if verb.Name == args[0] {
						fmt.Fprint(c.out, command.VerbPage(verb))
						return exitDone
					}
				}
				return v.misuse(c, fmt.Errorf("no verb %q", args[0]))
			}
			return v.misuse(c, fmt.Errorf("unexpected argument %q", args[1]))
		}
	}
	return v
}

const completionHelp = `Print the script that completes verbs, flags and their values in a shell: bash,
zsh or fish.

Usage:
  ehasm completion SHELL
`

const completionMore = `Examples:
  ehasm completion bash >~/.local/share/bash-completion/completions/ehasm
  ehasm completion zsh >/usr/local/share/zsh/site-functions/_ehasm
  ehasm completion fish >~/.config/fish/completions/ehasm.fish
`

// completionVerb is the verb completion: a script for one of the shells that package manual knows.
func completionVerb() verb {
	v := verb{name: "completion", brief: "print a shell's completion script", help: completionHelp, more: completionMore}
	v.flags = func(*pflag.FlagSet) func(context.Context, []string, *console) int {
		return func(_ context.Context, args []string, c *console) int {
			if len(args) != 1 {
				return v.misuse(c, fmt.Errorf("want one shell: %s", strings.Join(manual.Shells(), ", ")))
			}
			script, ok := describeCommand().Completion(args[0])
			if !ok {
				return v.misuse(c, fmt.Errorf("no completion for %q: want %s", args[0], strings.Join(manual.Shells(), ", ")))
			}
			fmt.Fprint(c.out, script)
			return exitDone
		}
	}
	return v
}

// describeCommand describes ehasm as its help does. ehasm-perf is not in it: its flags are perf's, which completes
// them itself.
func describeCommand() manual.Command {
	command := manual.Command{Name: "ehasm", Version: compile.Release, Brief: brief, Help: usage()}
	// A verb's flags exist only once they are declared.
	for _, v := range verbs() {
		fs, _ := v.declare()
		described := manual.Verb{
			Name: v.name, Brief: v.brief, Help: v.help, More: v.more, Flags: fs, Command: v.command,
			Values: map[string][]string{}, PIDs: v.name == "stack",
		}
		fs.VisitAll(func(f *pflag.Flag) {
			if words := flagValues(v.name, f.Name); words != nil {
				described.Values[f.Name] = words
			}
		})
		command.Verbs = append(command.Verbs, described)
	}
	return command
}

// flagValues returns the words that a flag of a verb takes, or nil if these cannot be listed.
func flagValues(verb, flag string) []string {
	switch flag {
	case "dispatch":
		return []string{"tree", "packed"}
	case "event":
		if verb != "script" { // script's are the recording's
			return []string{"cycles", "cpu-clock", "page-faults"}
		}
	case "fail-on":
		return []string{"error", "warning", "note"}
	case "format":
		if verb == "stack" {
			return strings.Split("text, "+formatNames(), ", ")
		}
		return strings.Split(formatNames(recordFormats()...), ", ")
	case "frame-pointers":
		return []string{"always", "gaps", "never"}
	case "labels":
		return strings.Split(labels.Names(), ", ")
	case "push-as":
		return []string{"pyroscope", "otlp", "pprof"}
	case "unwind":
		return []string{"auto", "kernel", "copy"}
	case "source":
		return []string{"auto", "eh_frame", "debug_frame", "sframe"}
	case "synth":
		if slices.Contains([]string{"record", "top", "agent", "script"}, verb) {
			return []string{"missing", "off"}
		}
		return []string{"off", "missing", "wrong", "all"}
	case "stage":
		return inspect.Stages()
	case "to":
		return []string{"sframe"}
	}
	return nil
}
