// Command ehasm compiles the unwind tables of x86-64 ELF objects into native code: for libfoo.so it writes
// libfoo.so.eh_elf.so. With these and other tables it profiles programs and shows stacks.
//
// There is a file per verb, with its flags, help and exit statuses; packages below internal do the work. A verb has
// the process for itself: it may change limits and signals, and become another program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/perfcall"

	"github.com/spf13/pflag"
)

// This file starts the process, lists the verbs and runs one: arguments come in, an exit status
// goes out. Help texts, flags and exit statuses of a verb are in the verb's file.

// Exit statuses.
// They are the same for all verbs; preload adds env(1)'s. An interrupted verb returns 128 plus the
// number of the signal.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// main sets the limits of the process, chooses between ehasm and ehasm-perf by argv[0], and runs
// it.
func main() {
	if err := host.RaiseDescriptors(); err != nil {
		fmt.Fprintf(os.Stderr, "ehasm: %v\n", err)
		os.Exit(exitFailed)
	}
	// before the heap grows: the Go run-time that meets a limit (ulimit -v) ends with a page of registers
	host.BoundMemory()
	log.SetOutput(io.Discard) // net/http writes there what some servers send
	ctx, stop := context.Background(), func() {}
	if slices.Contains(os.Args[1:min(2, len(os.Args))], "build") { // the one verb that has something to clean up
		ctx, stop = host.InterruptContext(ctx)
	}
	var stdout io.Writer = os.Stdout
	if outputClosed { // writes to what the Go run-time has opened in its place succeed
		stdout = closedOutput{}
	}
	do := run
	if perfcall.StandsIn(os.Args[0]) {
		do = runPerf
	}
	// os.Exit comes last and alone: deferred calls of this function would not run.
	code := do(ctx, os.Args[1:], stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// The parts of ehasm's help around the list of verbs. The manual pages show the same text.
const (
	brief      = "compile the unwind tables of x86-64 ELF files into native code"
	usageBegin = `ehasm profiles programs and shows the stacks of processes and cores, with whole
stacks. For that it compiles the unwind tables of x86-64 ELF files into native
code: for libfoo.so into libfoo.so.eh_elf.so, an eh_elf.

Usage:
  ehasm VERB [flags] [arguments]

Verbs:
`
	usageEnd = `
Examples:
  ehasm record -o flame.svg -- ./program    a flame graph of its time
  ehasm stack 1234                          the stacks of a process's threads
  ehasm build ./bin                         NAME.eh_elf.so beside each ELF file
  ehasm build --deps -o eh_elfs /bin/ls     ls and the libraries that it loads
  ehasm dump --stage=rows /bin/ls           the rows, as readelf -wF prints them
  ehasm info eh_elfs/ls.eh_elf.so           what the file covers
  ehasm preload -- heaptrack ls             heaptrack with a faster unwinder

'ehasm VERB --help' shows the flags of a verb. Exit status: 0 done, 1 something
failed, 2 wrong usage.
`
)

// usage returns the help of the whole command.
func usage() string {
	var text strings.Builder
	text.WriteString(usageBegin)
	for _, v := range verbs() {
		fmt.Fprintf(&text, "  %-10s  %s\n", v.name, v.brief)
	}
	fmt.Fprintf(&text, "  %-10s  %s\n", "help", "show help for a verb")
	text.WriteString(usageEnd)
	return text.String()
}

// verb is one of ehasm's commands.
type verb struct {
	name    string
	brief   string      // one line, for lists of verbs
	help    string      // up to the flags
	more    string      // after the flags
	command bool        // the arguments are a command with its own flags
	groups  []flagGroup // of --help; nil: one
	// flags declares the flags and returns the function to run once they are
	// parsed.
	flags func(*pflag.FlagSet) func(ctx context.Context, args []string, c *console) int
}

// verbs returns all verbs in the order of the help, those that most people want first. It builds them anew, so that no
// flag keeps a value between two calls: tests call run many times in a process.
func verbs() []verb {
	return []verb{recordVerb(), topVerb(), heapVerb(), agentVerb(), scriptVerb(), stackVerb(), preloadVerb(), buildVerb(),
		cacheVerb(), proveVerb(), checkVerb(),
		synthVerb(), convertVerb(), dumpVerb(), infoVerb(), completionVerb(), manVerb(), versionVerb()}
}

// run is the command without the process, for main and for tests. It returns the exit status. It writes results to
// stdout, which it buffers, and everything else to stderr at once.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := newConsole(stdout, stderr)
	code := dispatch(ctx, args, c)
	// A reader that has seen enough, such as head(1), closes the pipe: that is no failure.
	if err := c.out.Flush(); err != nil && !errors.Is(err, syscall.EPIPE) {
		c.fail("standard output", err)
	}
	// A failure that the verb has only reported to the console decides the exit status here.
	if failed := c.close(); failed || c.out.err != nil {
		code = max(code, exitFailed)
	}
	return code
}

// dispatch finds the verb and runs it, or shows the help of all verbs. Usage errors go to stderr with a hint. Without
// arguments the help goes to stderr, too, and the status is exitUsage: a script whose variable is empty must not pass.
func dispatch(ctx context.Context, args []string, c *console) int {
	if len(args) == 0 {
		fmt.Fprint(c.stderr, usage())
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "--help":
		// "help help" and "--help --help" mean the same as "help"
		if len(args) == 0 || strings.HasSuffix(args[0], "help") {
			fmt.Fprint(c.out, usage())
			return exitDone
		}
		// "help VERB" and "VERB --help" are one way.
		name, args = args[0], []string{"--help"}
	case "-v", "-V", "--version":
		name = "version"
	}
	for _, v := range verbs() {
		if v.name == name {
			return v.run(ctx, args, c)
		}
	}
	what := "verb"
	if strings.HasPrefix(name, "-") {
		what = "flag"
	}
	fmt.Fprintf(c.stderr, "ehasm: unknown %s %q%s\nRun 'ehasm help' for usage.\n", what, name, meant(name))
	return exitUsage
}

// meant says what is typed here for a word that is no verb: the command that does what another
// profiler's verb does, or the verb or flag that is near. "": that is not clear.
func meant(name string) string {
	for _, h := range habits() {
		if h.verb == "" && slices.Contains(strings.Fields(h.flag), name) {
			return ": " + h.answer
		}
	}
	names := []string{"help", "--help", "--version"}
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	if near := output.Nearest(names, name); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// declare returns the flags of the verb, and the function to run once they are parsed. Help, man pages and completion
// read the flags of verbs that they do not run, so declaring must have no effects.
func (v verb) declare() (*pflag.FlagSet, func(context.Context, []string, *console) int) {
	fs := pflag.NewFlagSet("ehasm "+v.name, pflag.ContinueOnError)
	fs.SetOutput(io.Discard) // run reports errors
	fs.SortFlags = false
	fs.Usage = func() {} // pflag would print its own in case of --help
	// After a command's name, flags belong to the command: preload ls -l.
	fs.SetInterspersed(!v.command)
	do := v.flags(fs)
	fs.BoolP("help", "h", false, "show this help")
	return fs, do
}

// run parses the arguments and runs the verb. Help goes to stdout and counts as success.
func (v verb) run(ctx context.Context, args []string, c *console) int {
	fs, do := v.declare()
	err := plainly(fs.Parse(args))
	switch {
	case err != nil:
		return v.misuse(c, v.unknown(err, fs))
	case fs.Lookup("help").Changed:
		fmt.Fprintf(c.out, "%s\n%s", v.help, usages(fs, v.groups))
		if v.more != "" {
			fmt.Fprintf(c.out, "\n%s", v.more)
		}
		return exitDone
	}
	return do(ctx, fs.Args(), c)
}

// plainly rewrites an error about a flag's value in a user's words; it returns other errors as they are. It goes by
// the type that pflag.Value.Type names.
func plainly(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f := bad.GetFlag()
	if f.Value.Type() == "func" { // of sizeFlag, which has these words already
		return fmt.Errorf("--%s: %w", f.Name, bad.Unwrap())
	}
	what := "is not a valid " + f.Value.Type()
	// pflag's text shows Go's parser: strconv.ParseInt: parsing "x": invalid syntax.
	switch f.Value.Type() {
	case "int", "int64", "uint", "uint64", "intSlice", "uint32", "int32":
		what = "is not a number"
		if errors.Is(bad, strconv.ErrRange) {
			what = "is out of range"
		}
	case "float64":
		what = "is not a number"
	case "duration":
		what = "is not a duration such as 30s or 5m"
	case "condition":
		what = "must follow the -e SYSTEM:TRACEPOINT that it is for"
	case "bool":
		what = "is neither true nor false"
	}
	return fmt.Errorf("--%s: %q %s", f.Name, bad.GetValue(), what)
}

// misuse reports an error in the arguments and returns the exit status.
func (v verb) misuse(c *console, err error) int {
	fmt.Fprintf(c.stderr, "ehasm %s: %s\nRun 'ehasm %s --help' for usage.\n", v.name, output.Text(err.Error()), v.name)
	return exitUsage
}
