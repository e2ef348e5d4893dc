package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/internal/profile/ondemand"
	"github.com/ehasm/ehasm/internal/profile/script"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"

	"github.com/spf13/pflag"
)

// standsForPerf reports whether the program was called by the name of perf, or as ehasm-perf: it then
// does perf script, and leaves the rest to perf.
func standsForPerf(name string) bool {
	base := filepath.Base(name)
	return base == "perf" || base == "ehasm-perf"
}

// perfScript is a call of perf script.
type perfScript struct {
	script.Options
	input  string
	header bool
	fields stackfmt.PerfFields
	asked  stackfmt.PerfFields // by name: perf refuses those that an event does not have
}

// errPerf says that the arguments are for perf itself.
var errPerf = errors.New("for perf itself")

// perfStackDepth is the default of perf script --max-stack: PERF_MAX_STACK_DEPTH.
const perfStackDepth = 127

// parsePerf reads the arguments of perf. The error is errPerf unless they are of perf script with flags
// whose effect is known here.
func parsePerf(args []string) (*perfScript, error) {
	if len(args) == 0 || args[0] != "script" {
		return nil, errPerf
	}
	p := &perfScript{fields: stackfmt.DefaultPerfFields()}
	fs := pflag.NewFlagSet("perf script", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.StringVarP(&p.input, "input", "i", "perf.data", "")
	var fields []string
	fs.StringArrayVarP(&fields, "fields", "F", nil, "")
	fs.BoolP("force", "f", false, "")
	fs.BoolVarP(&p.NoChains, "hide-call-graph", "G", false, "")
	fs.BoolVar(&p.header, "header", false, "")
	fs.BoolVar(&p.Names.Inline, "inline", true, "")
	noInline := fs.Bool("no-inline", false, "")
	fs.IntVar(&p.MaxStack, "max-stack", perfStackDepth, "")
	fs.StringSliceVarP(&p.Filter.Comms, "comms", "c", nil, "")
	fs.StringSliceVar(&p.Filter.Comms, "comm", nil, "")
	fs.IntSliceVar(&p.Filter.PIDs, "pid", nil, "")
	fs.IntSliceVar(&p.Filter.TIDs, "tid", nil, "")
	cpus := fs.StringP("cpu", "C", "", "")
	span := fs.String("time", "", "")
	if fs.Parse(args[1:]) != nil || fs.NArg() > 0 || p.MaxStack < 1 || p.input == "-" {
		return nil, errPerf
	}
	if *noInline {
		p.Names.Inline = false
	}
	for _, list := range fields {
		if p.takeFields(list) != nil {
			return nil, errPerf
		}
	}
	if *span != "" && p.Filter.ParseTime(*span) != nil {
		return nil, errPerf
	}
	if *cpus != "" && p.takeCPUs(*cpus) != nil {
		return nil, errPerf
	}
	return p, nil
}

// takeFields reads the argument of -F: a list, or changes with + and -.
func (p *perfScript) takeFields(list string) error {
	if list == "" || strings.Contains(list, ":") { // a type of events
		return errPerf
	}
	changes := strings.ContainsAny(list[:1], "+-")
	if !changes {
		p.fields = stackfmt.PerfFields{}
	}
	for _, name := range strings.Split(list, ",") {
		on := true
		if changes {
			if name == "" || !strings.ContainsAny(name[:1], "+-") {
				return errPerf
			}
			on, name = name[0] == '+', name[1:]
		}
		if name == "trace" { // only tracepoints have it
			continue
		}
		field, asked := fieldOf(&p.fields, name), fieldOf(&p.asked, name)
		if field == nil {
			return errPerf
		}
		*field, *asked = on, on
	}
	if f := &p.fields; !f.IP && (f.Sym || f.SymOff || f.DSO) || f.SymOff && !f.Sym {
		return errPerf
	}
	return nil
}

func fieldOf(f *stackfmt.PerfFields, name string) *bool {
	return map[string]*bool{"comm": &f.Comm, "pid": &f.PID, "tid": &f.TID, "cpu": &f.CPU, "time": &f.Time, "period": &f.Period,
		"event": &f.Event, "ip": &f.IP, "sym": &f.Sym, "symoff": &f.SymOff, "dso": &f.DSO}[name]
}

// takeCPUs reads a list of numbers and ranges.
func (p *perfScript) takeCPUs(list string) error {
	const most = 1 << 14
	for _, part := range strings.Split(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || first < 0 || first > last || last > most {
			return errPerf
		}
		for cpu := first; cpu <= last; cpu++ {
			p.Filter.CPUs = append(p.Filter.CPUs, cpu)
		}
	}
	return nil
}

// suits reports whether the recording has only events whose samples are written here as perf writes them.
func (p *perfScript) suits(r *perfdata.Reader) bool {
	const hardware, software = 0, 1 // enum perf_type_id
	for _, e := range r.Events() {
		t := e.SampleType
		has := func(asked bool, bits perfdata.SampleType) bool { return !asked || t&bits != 0 }
		if e.Type != hardware && e.Type != software || !has(p.asked.PID || p.asked.TID, perfdata.SampleTID) ||
			!has(p.asked.CPU || len(p.Filter.CPUs) > 0, perfdata.SampleCPU) || !has(p.asked.Time, perfdata.SampleTime) ||
			!has(p.asked.Period, perfdata.SamplePeriod) || !has(p.fields.IP, perfdata.SampleIP) {
			return false
		}
	}
	return len(r.Events()) > 0 // a recording in pipe mode says later what it has
}

// runPerf is the program under the name of perf. It returns the exit status, unless the process becomes
// perf.
func runPerf(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := newConsole(stdout, stderr)
	p, err := parsePerf(args)
	if err != nil {
		return becomePerf(args, c)
	}
	r, err := openRecording(p.input, false)
	if err != nil {
		return becomePerf(args, c)
	}
	defer r.Close()
	if !p.suits(r) {
		return becomePerf(args, c)
	}
	if p.header {
		if err := perfHeader(p.input, c); err != nil {
			return becomePerf(args, c)
		}
	}
	p.run(ctx, r, c)
	if err := c.out.Flush(); err != nil && !errors.Is(err, syscall.EPIPE) {
		c.fail("standard output", err)
	}
	if c.close() {
		return exitFailed
	}
	return exitDone
}

// run writes the samples.
func (p *perfScript) run(ctx context.Context, r *perfdata.Reader, c *console) {
	opt := &scriptOptions{Options: p.Options, input: p.input, cache: true, quiet: true}
	opt.MaxChain = opt.MaxStack
	opt.Names.HostKernel, opt.Names.Kallsyms = true, "/proc/kallsyms"
	opt.Workers = runtime.GOMAXPROCS(0)
	opt.Format = stackfmt.NewPerf(stackfmt.Options{Inline: opt.Names.Inline}, p.fields)
	made := ondemand.New(ondemand.Options{Keep: true})
	compiling, stop := context.WithCancel(ctx)
	opt.prepare(ctx, compiling, made, c)
	_, err := script.Run(ctx, r, c.out, opt.Options)
	stop()
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		c.fail(p.input, err)
		return
	}
	made.FillCache(ctx, opt.Workers, filling(c, true))
}

// perfHeader writes the header of a recording, as perf does.
func perfHeader(input string, c *console) error {
	perf, err := realPerf()
	if err != nil {
		return err
	}
	text, err := exec.Command(perf, "script", "--force", "--header-only", "-i", input).Output()
	if err == nil {
		c.out.Write(text)
	}
	return err
}

// perfCalls is the environment variable that counts how often this program has become perf on the way here. perf may
// start programs that call perf, but a perf in PATH that leads back here, as a copy or a script, would do so for ever.
const (
	perfCalls     = "EHASM_PERF_CALLS"
	mostPerfCalls = 8
)

// becomePerf starts perf in place of this process.
func becomePerf(args []string, c *console) int {
	perf, err := realPerf()
	calls, _ := strconv.Atoi(os.Getenv(perfCalls)) // 0: the first
	if err == nil && calls >= mostPerfCalls {
		err = fmt.Errorf("%s in PATH leads back to ehasm's stand-in for perf: take it out of PATH", perf)
	}
	if err == nil {
		err = os.Setenv(perfCalls, strconv.Itoa(calls+1))
	}
	if err == nil {
		err = syscall.Exec(perf, append([]string{"perf"}, args...), os.Environ())
	}
	c.fail("perf", err)
	c.close()
	return exitFailed
}

// realPerf returns the path of the first perf in PATH that is not this program.
func realPerf() (string, error) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path, err := exec.LookPath(filepath.Join(dir, "perf"))
		if err != nil || !filepath.IsAbs(path) {
			continue
		}
		if st, err := os.Stat(path); err == nil && !os.SameFile(st, self) {
			return path, nil
		}
	}
	return "", errors.New("not found in PATH, apart from ehasm's stand-in: install perf")
}
