package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/files/output"

	"github.com/spf13/pflag"
)

// This file explains unknown flags in the words of other profilers, and has flag values that pflag
// does not: seconds, frequencies, sizes, and --help in groups.

// habit is what to type for a flag of a verb that other profilers have, or, without a verb, for their
// verbs.
type habit struct{ verb, flag, answer string }

// habits lists the verbs and flags of perf and similar tools that ehasm does not have.
func habits() []habit {
	const (
		whole  = "stacks are always recorded, and unwound by tables: leave it out"
		thread = "record the thread's process: -p PID"
		asPerf = "'ehasm-perf script' takes the flags of perf script"

		agent = "'ehasm agent' has it, and records the whole system unless told otherwise"

		noTimers = "gone: time is recorded through perf_event_open, which needs kernel.perf_event_paranoid=2 or CAP_PERFMON; " +
			"without it, 'ehasm heap' records allocations, 'stack --watch 100ms PID' takes stacks"
	)
	return []habit{
		{"", "report evlist", "go tool pprof -top profile.pb.gz; perf report -i direct.perf.data, after record -o direct.perf.data"},
		{"", "diff", "go tool pprof -top -diff_base before.pb.gz after.pb.gz; ehasm script -i after.data --before before.data -o diff.svg"},
		{"", "annotate list disasm", "go tool pprof -list FUNCTION profile.pb.gz, recorded with --lines; perf annotate -i direct.perf.data"},
		{"", "stat", "perf stat counts events; ehasm record -e EVENT shows where they happen"},
		{"", "trace strace", "ehasm record -e syscalls:sys_enter_openat shows who calls; ehasm record --off-cpu who waits"},
		{"", "lock sched offcpu", "ehasm record --off-cpu -o blocked.svg -p PID shows where threads wait"},
		{"", "mem leak memleak", "ehasm heap -o heap.pb.gz -- COMMAND shows what is allocated, and what stays"},
		{"", "attach bt pstack dump-stacks", "ehasm stack PID"},
		{"", "profile run flamegraph", "ehasm record -o flame.svg -- COMMAND"},
		{"", "install setup", "ehasm build --cache --deps PROGRAM compiles its tables ahead; record needs no such step"},

		{"record", "g", whole}, {"record", "call-graph", whole}, {"record", "t", thread}, {"record", "tid", thread},
		{"record", "all-cpus", "want -a"}, {"record", "G", "want -a --cgroup FOLDER"}, {"record", "m", "want --ring SIZE"},
		{"record", "mmap-pages", "want --ring SIZE"}, {"record", "r", "want -F N"}, {"record", "rate", "want -F N"},
		{"record", "freq", "want -F N"}, {"record", "z", "profiles are compressed: leave it out"},
		{"record", "symfs", "record reads the files that run: leave it out"},
		{"record", "no-inline", "inlined functions are not shown without --inline: leave it out"},
		{"record", "b", "branches are not recorded"}, {"record", "preload", noTimers},
		{"record", "u", "want -p PID, several: 12,34"},
		{"record", "top", "a verb now: 'ehasm top', with -p PID, -a or a command"},
		{"record", "alloc", "a verb now: 'ehasm heap COMMAND', with --total for --alloc=total"},
		{"record", "alloc-period", "want 'ehasm heap --period SIZE COMMAND'"},
		{"record", "with", "want 'ehasm heap --with PATH COMMAND'"},
		{"record", "every", agent}, {"record", "flight", agent}, {"record", "dump", agent}, {"record", "push", agent},
		{"record", "push-as", agent}, {"record", "push-name", agent}, {"record", "push-label", agent},
		{"record", "push-header", agent},
		{"record", "refill", "stacks longer than a copy are completed where that is possible: leave it out"},
		{"record", "faults", "want -e page-faults"}, {"record", "realtime", agent},
		{"record", "source", "script has it: record unwinds by .eh_frame, else .debug_frame, .sframe or the code"},
		{"script", "F", asPerf}, {"script", "fields", asPerf}, {"script", "G", asPerf}, {"script", "header", asPerf},
		{"script", "comms", "want --comm NAME"},
		{"script", "f", "there is nothing to force: leave it out"},
		{"script", "force", "there is nothing to force: leave it out"},
		{"script", "no-inline", "inlined functions are not shown without --inline: leave it out"},
		{"script", "g", "the recording says how its stacks were taken: leave it out"},
		{"script", "call-graph", "the recording says how its stacks were taken: leave it out"},
	}
}

// unknown explains a flag that the verb does not have: what it is called here, or which is near.
func (v verb) unknown(err error, fs *pflag.FlagSet) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return err
	}
	name, shown := missing.GetSpecifiedName(), "--"+missing.GetSpecifiedName()
	if missing.GetSpecifiedShortnames() != "" {
		shown = "-" + name
	}
	for _, h := range habits() {
		if h.verb == v.name && h.flag == name {
			return fmt.Errorf("%s: %s", shown, h.answer)
		}
	}
	if near := nearestFlag(fs, name); len(name) > 1 && near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	// ehasm's own flag, which other programs have on each verb; -v is perf's --verbose.
	if name == "V" || len(name) > 1 && output.Nearest([]string{"version"}, name) != "" {
		return fmt.Errorf("%w; did you mean 'ehasm --version'?", err)
	}
	return err
}

// nearestFlag returns the only flag that begins with name or is closest to it, as meant does for verbs.
func nearestFlag(fs *pflag.FlagSet, name string) string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return output.Nearest(names, name)
}

// seconds is a duration of which "5" means five seconds, as for perf and sleep.
type seconds time.Duration

// String returns the value for --help.
func (s *seconds) String() string {
	if *s == 0 {
		return "0" // which --help does not show as a default
	}
	return time.Duration(*s).String()
}

// Type names the kind of value; plainly turns it into an error's words.
func (s *seconds) Type() string { return "duration" }

// Set takes a number of seconds, or a duration with units as time.ParseDuration reads it.
func (s *seconds) Set(text string) error {
	// The bound keeps the product below the largest Duration, 9.2e9 seconds.
	if n, err := strconv.ParseFloat(text, 64); err == nil && n >= 0 && n < 1e9 {
		*s = seconds(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	*s = seconds(d)
	return err
}

// frequency is a number of samples a second; "max" is what the kernel allows, as in perf record -F max.
type frequency uint64

// String returns the number in decimal.
func (f *frequency) String() string { return strconv.FormatUint(uint64(*f), 10) }

// Type names the kind of value; plainly says "is not a number" for it.
func (f *frequency) Type() string { return "uint64" }

// Set takes a number of samples a second, or max: the bound that the kernel has set.
func (f *frequency) Set(text string) error {
	if text == "max" {
		b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_sample_rate")
		if err != nil {
			return err
		}
		text = strings.TrimSpace(string(b))
	}
	n, err := strconv.ParseUint(text, 10, 64)
	*f = frequency(n)
	return err
}

// sizeFlag declares a flag that takes a number of bytes, at least least, as 4096, 512K or 1M.
func sizeFlag(fs *pflag.FlagSet, name, usage string, least uint64, set func(bytes uint64)) {
	fs.Func(name, usage, func(text string) error {
		digits, shift := text, 0
		if n := len(text); n > 0 {
			shift = strings.IndexByte("KMG", text[n-1]) + 1
			digits = text[:n-min(shift, 1)]
		}
		const most, bits = 1 << 40, 10 // bytes: a TB, far from where the shift would overflow; of K, M and G each
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil || n < least || n > most>>(bits*shift) {
			return fmt.Errorf("%q: want a number of bytes, as 4096, 512K or 1M", text)
		}
		set(n << (bits * shift))
		return nil
	})
}

// synthFlag declares --synth of the verbs that unwind samples.
func synthFlag(fs *pflag.FlagSet, off *bool) {
	fs.Func("synth", "make rows from code, `MODE`: missing, for code without rows; off (default missing)",
		func(text string) error {
			if text != "missing" && text != "off" {
				return fmt.Errorf("%q: want missing or off", text)
			}
			*off = text == "off"
			return nil
		})
}

// flagGroup is a heading of --help with the names of its flags.
type flagGroup struct {
	title string
	names []string
}

// helpWidth is the columns of --help.
const helpWidth = 80

// usages returns the flags under the headings of groups, each in their order; those of no group come last. Every name
// in groups must be a flag: a test looks.
func usages(fs *pflag.FlagSet, groups []flagGroup) string {
	if groups == nil {
		return "Flags:\n" + fs.FlagUsagesWrapped(helpWidth)
	}
	var text strings.Builder
	done := make(map[string]bool)
	// write prints one group through a set of flags, for pflag's layout of columns.
	write := func(title string, list []*pflag.Flag) {
		part := pflag.NewFlagSet("", pflag.ContinueOnError)
		part.SortFlags = false
		for _, f := range list {
			part.AddFlag(f)
			done[f.Name] = true
		}
		fmt.Fprintf(&text, "%s:\n%s\n", title, part.FlagUsagesWrapped(helpWidth))
	}
	for _, g := range groups {
		var list []*pflag.Flag
		for _, name := range g.names {
			list = append(list, fs.Lookup(name))
		}
		write(g.title, list)
	}
	var rest []*pflag.Flag
	fs.VisitAll(func(f *pflag.Flag) {
		if !done[f.Name] {
			rest = append(rest, f)
		}
	})
	write("Other flags", rest)
	return strings.TrimSuffix(text.String(), "\n")
}

// recordGroups are the headings of record's help. Flags in none of them come under "Other flags".
func recordGroups() []flagGroup {
	return []flagGroup{
		{"Flags", []string{"output", "pid", "all", "frequency", "duration", "event"}},
		{"Which processes", []string{"name", "unit", "container", "cgroup"}},
		{"What is counted", []string{"count", "filter", "off-cpu"}},
		{"What is written", []string{"format", "inline", "lines", "signatures", "no-demangle", "labels", "raw", "stats",
			"quiet"}},
		walkGroup(),
		copyGroup(),
	}
}

// walkGroup is the heading of flags of walkFlags and others.
func walkGroup(more ...string) flagGroup {
	return flagGroup{"How stacks are found", append([]string{"unwind", "max-stack", "synth", "ring"}, more...)}
}

// copyGroup is the heading of those that only copies need.
func copyGroup() flagGroup {
	return flagGroup{"How copies of stacks are unwound, where the kernel does not",
		[]string{"stack-copy", "frame-pointers"}}
}
