// Package perfcall reads the command lines of perf, for the program that stands in for perf: it
// does perf script itself and starts perf for all other commands.
//
//	perf's arguments --Parse--> Script --Suits--> the samples are written by package script
//	                    else ErrPerf, or Suits is false: --Become--> perf itself
package perfcall

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/ehasm/ehasm/internal/files/host"
	"github.com/ehasm/ehasm/internal/profile/script"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"

	"github.com/spf13/pflag"
)

// StandsIn reports whether the program was called by the name of perf, or as ehasm-perf: it then
// does perf script, and leaves the rest to perf.
func StandsIn(name string) bool {
	base := filepath.Base(name)
	return base == "perf" || base == "ehasm-perf"
}

// Script is a call of perf script.
type Script struct {
	Input   string              // the recording
	Header  bool                // before the samples
	Fields  stackfmt.PerfFields // to print for each sample
	Options script.Options      // filters, depth of stacks, inlined functions

	asked stackfmt.PerfFields // by name: perf refuses those that an event does not have
}

// ErrPerf says that the arguments are for perf itself.
var ErrPerf = errors.New("for perf itself")

// perfStackDepth is the default of perf script --max-stack: PERF_MAX_STACK_DEPTH.
const perfStackDepth = 127

// Parse reads the arguments of perf. The error is ErrPerf unless they are of perf script with flags
// whose effect is known here.
func Parse(args []string) (*Script, error) {
	if len(args) == 0 || args[0] != "script" {
		return nil, ErrPerf
	}
	// Every flag that is not defined here makes fs.Parse fail, so perf itself takes such calls.
	// Usage texts are empty since they are never printed.
	p := &Script{Fields: stackfmt.DefaultPerfFields()}
	fs := pflag.NewFlagSet("perf script", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	fs.StringVarP(&p.Input, "input", "i", "perf.data", "")
	var fields []string
	fs.StringArrayVarP(&fields, "fields", "F", nil, "")
	fs.BoolP("force", "f", false, "")
	fs.BoolVarP(&p.Options.NoChains, "hide-call-graph", "G", false, "")
	fs.BoolVar(&p.Header, "header", false, "")
	fs.BoolVar(&p.Options.Names.Inline, "inline", true, "")
	noInline := fs.Bool("no-inline", false, "")
	fs.IntVar(&p.Options.MaxStack, "max-stack", perfStackDepth, "")
	fs.StringSliceVarP(&p.Options.Filter.Comms, "comms", "c", nil, "")
	fs.StringSliceVar(&p.Options.Filter.Comms, "comm", nil, "")
	fs.IntSliceVar(&p.Options.Filter.PIDs, "pid", nil, "")
	fs.IntSliceVar(&p.Options.Filter.TIDs, "tid", nil, "")
	cpus := fs.StringP("cpu", "C", "", "")
	span := fs.String("time", "", "")
	// A recording from standard input is in pipe mode, which perf itself reads.
	if fs.Parse(args[1:]) != nil || fs.NArg() > 0 || p.Options.MaxStack < 1 || p.Input == "-" {
		return nil, ErrPerf
	}
	if *noInline {
		p.Options.Names.Inline = false
	}
	for _, list := range fields {
		if p.takeFields(list) != nil {
			return nil, ErrPerf
		}
	}
	if *span != "" && p.Options.Filter.ParseTime(*span) != nil {
		return nil, ErrPerf
	}
	if *cpus != "" && p.takeCPUs(*cpus) != nil {
		return nil, ErrPerf
	}
	return p, nil
}

// takeFields reads the argument of -F: a list, or changes with + and -.
func (p *Script) takeFields(list string) error {
	if list == "" || strings.Contains(list, ":") { // a type of events
		return ErrPerf
	}
	changes := strings.ContainsAny(list[:1], "+-")
	// A plain list replaces the default; +name and -name change it.
	if !changes {
		p.Fields = stackfmt.PerfFields{}
	}
	for _, name := range strings.Split(list, ",") {
		on := true
		if changes {
			if name == "" || !strings.ContainsAny(name[:1], "+-") {
				return ErrPerf
			}
			on, name = name[0] == '+', name[1:]
		}
		if name == "trace" { // only tracepoints have it
			continue
		}
		field, asked := fieldOf(&p.Fields, name), fieldOf(&p.asked, name)
		if field == nil {
			return ErrPerf
		}
		*field, *asked = on, on
	}
	// As in perf: names of code need addresses, offsets need names.
	if f := &p.Fields; !f.IP && (f.Sym || f.SymOff || f.DSO) || f.SymOff && !f.Sym {
		return ErrPerf
	}
	return nil
}

// fieldOf returns the switch of the field that perf calls name, or nil if it is not known here.
func fieldOf(f *stackfmt.PerfFields, name string) *bool {
	return map[string]*bool{"comm": &f.Comm, "pid": &f.PID, "tid": &f.TID, "cpu": &f.CPU, "time": &f.Time,
		"period": &f.Period,
		"event":  &f.Event, "ip": &f.IP, "sym": &f.Sym, "symoff": &f.SymOff, "dso": &f.DSO}[name]
}

// takeCPUs reads a list of numbers and ranges, such as 0,2-5, into the filter.
func (p *Script) takeCPUs(list string) error {
	const most = 1 << 14 // CPUs; bounds the memory that a range can ask for
	for _, part := range strings.Split(list, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || first < 0 || first > last || last > most {
			return ErrPerf
		}
		for cpu := first; cpu <= last; cpu++ {
			p.Options.Filter.CPUs = append(p.Options.Filter.CPUs, cpu)
		}
	}
	return nil
}

// Suits reports whether the recording has only events whose samples are written here as perf writes
// them: counters of hardware and software, each with the fields that were asked for. perf fails if
// an event lacks the field, and its message is the one to see.
func (p *Script) Suits(r *perfdata.Reader) bool {
	const hardware, software = 0, 1 // enum perf_type_id
	for _, e := range r.Events() {
		t := e.SampleType
		has := func(asked bool, bits perfdata.SampleType) bool { return !asked || t&bits != 0 }
		if t&perfdata.SampleRead != 0 { // perf makes samples of a group's other events from what was read: {a,b}:S
			return false
		}
		if e.Type != hardware && e.Type != software || !has(p.asked.PID || p.asked.TID, perfdata.SampleTID) ||
			!has(p.asked.CPU || len(p.Options.Filter.CPUs) > 0, perfdata.SampleCPU) || !has(p.asked.Time, perfdata.SampleTime) ||
			!has(p.Fields.IP, perfdata.SampleIP) {
			return false
		}
	}
	return len(r.Events()) > 0 // a recording in pipe mode says later what it has
}

// callsVariable is the environment variable that counts how often this program has become perf on the way here. perf
// may start programs that call perf, but a perf in PATH that leads back here, as a copy or a script, would do so for
// ever.
const (
	callsVariable = "EHASM_PERF_CALLS"
	mostCalls     = 8
)

// Become starts perf in place of this process. It returns only if it cannot.
func Become(args []string) error {
	perf, err := Perf()
	calls, _ := strconv.Atoi(os.Getenv(callsVariable)) // 0: the first
	if err == nil && calls >= mostCalls {
		err = fmt.Errorf("%s in PATH leads back to ehasm's stand-in for perf: take it out of PATH", perf)
	}
	if err == nil {
		err = os.Setenv(callsVariable, strconv.Itoa(calls+1))
	}
	if err == nil {
		host.StopTimer()
		// perf chooses its command by argv[0], too, so it gets its own name.
		err = syscall.Exec(perf, append([]string{"perf"}, args...), os.Environ())
	}
	return err
}

// Perf returns the path of the first perf in PATH that is not this program.
func Perf() (string, error) {
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
