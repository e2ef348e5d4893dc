//go:build unix

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHabits: what users of other profilers type is answered in one line with what to type here.
func TestHabits(t *testing.T) {
	for args, want := range map[string]string{
		"record -g -- ls":                "-g: stacks are always recorded, and unwound by tables: leave it out",
		"record --call-graph dwarf ls":   "--call-graph: stacks are always recorded",
		"record -t 5":                    "-t: record the thread's process: -p PID",
		"record -qg ls":                  "-g: stacks are always recorded",
		"record -a -- sleep 1":           "-a records everything, without a command: say how long with -d SECONDS",
		"record --symfs / ls":            "--symfs: record reads the files that run",
		"record --durration 5 ls":        "unknown flag: --durration; did you mean --duration?",
		"record --stack 5 ls":            "unknown flag: --stack; did you mean --stack-copy?",
		"record -d x ls":                 `"x" is not a duration such as 30s or 5m`,
		"record -d -5 ls":                `"-5" is not a duration`,
		"record -F maximum ls":           `--frequency: "maximum" is not a number`,
		"record --bogus ls":              "unknown flag: --bogus\n",
		"record -e bogus ls":             `"bogus"`,
		"record -e dummy ls":             `record does not take event "dummy"`,
		"record --preload ls":            "--preload: gone: time is recorded through perf_event_open, which needs kernel.perf_event_paranoid=2 or CAP_PERFMON",
		"record -m 64K ls":               "-m: want --ring SIZE",
		"record --ring 64k ls":           `--ring: "64k": want a number of bytes, as 4096, 512K or 1M`,
		"record --ring 0 ls":             `--ring: "0": want`,
		"record --ring 64T ls":           `--ring: "64T": want`,
		"record --ring= ls":              `--ring: "": want`,
		"record --ring 1025G ls":         `--ring: "1025G": want`,
		"record --ring 65537 ls":         "want a power of two",
		"heap --period 0M ls":            `--period: "0M": want`,
		"record --alloc=total ls":        "--alloc: a verb now: 'ehasm heap COMMAND'",
		"record --top -p 1":              "--top: a verb now: 'ehasm top'",
		"record -a --every 1m -o x":      "--every: 'ehasm agent' has it",
		"record --push http://h -a":      "--push: 'ehasm agent' has it",
		"record --faults ls":             "--faults: want -e page-faults",
		"record --stack-copy 1.5K ls":    `--stack-copy: "1.5K": want`,
		"cache --prune --max-size 1X":    `--max-size: "1X": want`,
		"script -F ip,sym":               "-F: 'ehasm-perf script' takes the flags of perf script",
		"script --no-inline":             "--no-inline: inlined functions are not shown without --inline",
		"script --inlin":                 "did you mean --inline?",
		"script -i a b":                  `argument "b": -i names the recording already`,
		"script a b":                     `argument "b": want one recording`,
		"build --depps /bin/ls":          "did you mean --deps?",
		"record --verson ls":             "unknown flag: --verson; did you mean 'ehasm --version'?",
		"stack --version":                "did you mean 'ehasm --version'?",
		"build -V x":                     "did you mean 'ehasm --version'?",
		"record -v ls":                   "unknown shorthand flag: 'v' in -v\n",
		"script --tome 1,2":              "did you mean --time?",
		"stack --frobnicate":             "unknown flag: --frobnicate\n",
		"script --no-demangel perf.dat":  "did you mean --no-demangle?",
		"report":                         `unknown verb "report": go tool pprof -top profile.pb.gz;`,
		"diff a b":                       "go tool pprof -top -diff_base before.pb.gz after.pb.gz;",
		"annotate main":                  "go tool pprof -list FUNCTION profile.pb.gz, recorded with --lines;",
		"evlist":                         "perf report -i direct.perf.data",
		"--verson":                       `unknown flag "--verson"; did you mean "--version"?`,
		"--hlp":                          `did you mean "--help"?`,
		"record --lines -o x.folded ls":  "--lines has no effect in the format folded",
		"record --lines -o x.svg ls":     "--lines has no effect in the format svg",
		"heap --lines -o x.svg ls":       "--lines has no effect in the format svg",
		"record --labels pid -o x.svg l": "--labels has no effect in the format svg",
		"record --inline -o perf.data l": "--inline has no effect in the format perf.data",
		"record --lines -o perf.data l":  "--lines has no effect in the format perf.data",
		"script --lines -o x.folded":     "--lines has no effect in the format folded",
	} {
		r := ehasm(t, strings.Fields(args)...)
		assert.Equal(t, exitUsage, r.code, args)
		assert.Contains(t, r.stderr, want, args)
		assert.Equal(t, 2, strings.Count(r.stderr, "\n"), "%s: %s", args, r.stderr)
	}
	perf, symfs := smallRecording(t)
	want := ehasm(t, "script", "-q", "--symfs", symfs, "-i", perf)
	assert.Contains(t, want.stdout, "_start")
	assert.Equal(t, want, ehasm(t, "script", perf, "-q", "--symfs", symfs))
}

// TestHabitsAnswered: an answer is for a flag that the verb does not have.
func TestHabitsAnswered(t *testing.T) {
	for _, h := range habits() {
		for _, v := range verbs() {
			assert.False(t, h.verb == "" && slices.Contains(strings.Fields(h.flag), v.name), v.name)
			if v.name == h.verb {
				fs, _ := v.declare()
				known := fs.Lookup(h.flag) != nil
				if len(h.flag) == 1 {
					known = fs.ShorthandLookup(h.flag) != nil
				}
				assert.False(t, known, "%s: %s", h.verb, h.flag)
			}
		}
	}
}

// TestRecordGroups: --help has each flag of record once, the common ones first.
func TestRecordGroups(t *testing.T) {
	help := ehasm(t, "record", "--help").stdout
	fs, _ := recordVerb().declare()
	_, flags, ok := strings.Cut(fs.FlagUsages(), "")
	require.True(t, ok)
	for _, group := range recordGroups() {
		for _, name := range group.names {
			require.NotNil(t, fs.Lookup(name), name)
		}
	}
	for line := range strings.Lines(flags) {
		name := strings.Fields(line[strings.Index(line, "--"):])[0]
		name, _, _ = strings.Cut(name, "[")
		found := 0
		for shown := range strings.Lines(help) {
			if i := strings.Index(shown, "--"); i >= 0 && i <= 6 && strings.HasPrefix(shown, " ") {
				word, _, _ := strings.Cut(strings.Fields(shown[i:])[0], "[")
				if word == name {
					found++
				}
			}
		}
		assert.Equal(t, 1, found, name)
	}
	assert.Less(t, strings.Index(help, "--event"), strings.Index(help, "--off-cpu"))
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "0.5": time.Second / 2, "2m": 2 * time.Minute,
		"30s": 30 * time.Second} {
		var s seconds
		require.NoError(t, s.Set(text))
		assert.Equal(t, want, time.Duration(s))
	}
	var f frequency
	require.NoError(t, f.Set("99"))
	assert.Equal(t, frequency(99), f)
	if _, err := filepath.Glob("/proc/sys/kernel/perf_event_max_sample_rate"); err == nil && f.Set("max") == nil {
		assert.Greater(t, f, frequency(0))
	}
}
