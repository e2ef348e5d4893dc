//go:build linux && amd64

package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ehasm/ehasm/internal/files/output"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"

	"golang.org/x/sys/unix"
)

// Event is an event at which samples are taken.
type Event struct {
	Name   string
	typ    uint32
	config uint64
	bits   uint64 // of perf_event_attr, for modifiers
	probe  *probe // nil: it is none
	wide   bool   // it is a probe: it stops all processes, those too that are not recorded
	raw    string // the name of a tracepoint where the kernel can unwind; "": it is none
	hooked bool   // the kernel unwinds without samples of perf: see programs.load
	filter string // of a tracepoint: which samples are taken; "": all
	every  uint64 // fixed period; 0: Options.Frequency
	kernel bool   // it happens in the kernel alone
	kind   string // what periods count: see stackfmt.Event
	unit   string
	// objects is what the number of samples counts, in pprof: it is the number of objects.
	objects string
	// blocked says that samples are taken when threads leave the processor, and count the
	// time until they are back.
	blocked bool
}

// DefaultEvent returns cycles if the processor counts them, otherwise
// cpu-clock.
func DefaultEvent() *Event {
	name := "cpu-clock"
	if perfevent.HasPMU() {
		name = "cycles"
	}
	return named(name)
}

// SetPeriod makes the kernel take a sample every n events, instead of at Options.Frequency.
func (e *Event) SetPeriod(n uint64) { e.every = n }

// SetFilter makes the kernel take samples of a tracepoint only where its fields fulfil a condition:
// Documentation/trace/events.rst, "Filter syntax".
func (e *Event) SetFilter(condition string) error {
	if e.typ != unix.PERF_TYPE_TRACEPOINT {
		return fmt.Errorf("--filter goes with tracepoints, not with %s", e.Name)
	}
	e.filter = condition
	return nil
}

// Events lists the events that have a name of perf list, but for tracepoints.
func Events() []*Event {
	list := softwareEvents()
	for config, names := range [...]string{unix.PERF_COUNT_HW_CPU_CYCLES: "cycles cpu-cycles",
		unix.PERF_COUNT_HW_INSTRUCTIONS:     "instructions",
		unix.PERF_COUNT_HW_CACHE_REFERENCES: "cache-references", unix.PERF_COUNT_HW_CACHE_MISSES: "cache-misses",
		unix.PERF_COUNT_HW_BRANCH_INSTRUCTIONS:     "branches branch-instructions",
		unix.PERF_COUNT_HW_BRANCH_MISSES:           "branch-misses",
		unix.PERF_COUNT_HW_BUS_CYCLES:              "bus-cycles",
		unix.PERF_COUNT_HW_STALLED_CYCLES_FRONTEND: "stalled-cycles-frontend idle-cycles-frontend",
		unix.PERF_COUNT_HW_STALLED_CYCLES_BACKEND:  "stalled-cycles-backend idle-cycles-backend",
		unix.PERF_COUNT_HW_REF_CPU_CYCLES:          "ref-cycles"} {
		for name := range strings.FieldsSeq(names) {
			list = append(list, &Event{Name: name, typ: unix.PERF_TYPE_HARDWARE, config: uint64(config)})
		}
	}
	return append(list, cacheEvents()...)
}

// softwareEvents are those that the kernel counts.
func softwareEvents() (list []*Event) {
	const cgroupSwitches = 11 // PERF_COUNT_SW_CGROUP_SWITCHES, since Linux 5.13
	for _, e := range []struct {
		names  string
		config uint64
		Event
	}{
		{"cpu-clock", unix.PERF_COUNT_SW_CPU_CLOCK, Event{kind: "cpu", unit: "nanoseconds"}},
		{"task-clock", unix.PERF_COUNT_SW_TASK_CLOCK, Event{kind: "cpu", unit: "nanoseconds"}},
		{"page-faults faults", unix.PERF_COUNT_SW_PAGE_FAULTS, Event{every: 1}},
		{"minor-faults", unix.PERF_COUNT_SW_PAGE_FAULTS_MIN, Event{every: 1}},
		{"major-faults", unix.PERF_COUNT_SW_PAGE_FAULTS_MAJ, Event{every: 1}},
		{"alignment-faults", unix.PERF_COUNT_SW_ALIGNMENT_FAULTS, Event{every: 1}},
		{"emulation-faults", unix.PERF_COUNT_SW_EMULATION_FAULTS, Event{every: 1}},
		{"context-switches cs", unix.PERF_COUNT_SW_CONTEXT_SWITCHES, Event{every: 1, kernel: true}},
		{"cpu-migrations migrations", unix.PERF_COUNT_SW_CPU_MIGRATIONS, Event{every: 1, kernel: true}},
		{"cgroup-switches", cgroupSwitches, Event{every: 1, kernel: true}},
		{"off-cpu", unix.PERF_COUNT_SW_CONTEXT_SWITCHES, Event{every: 1, blocked: true, kernel: true, kind: "blocked",
			unit: "nanoseconds"}},
	} {
		for name := range strings.FieldsSeq(e.names) {
			one := e.Event
			one.Name, one.typ, one.config = name, unix.PERF_TYPE_SOFTWARE, e.config
			list = append(list, &one)
		}
	}
	return list
}

// cacheEvents are those of PERF_TYPE_HW_CACHE: perf_event_open(2).
func cacheEvents() (list []*Event) {
	const operationAt, resultAt = 8, 16 // bits of config
	operations := [...]struct{ hits, misses string }{{"loads", "load-misses"}, {"stores", "store-misses"},
		{"prefetches", "prefetch-misses"}}
	for cache, c := range [...]struct {
		name       string
		operations []int
	}{{"L1-dcache", []int{0, 1, 2}}, {"L1-icache", []int{0, 2}}, {"LLC", []int{0, 1, 2}}, {"dTLB", []int{0, 1, 2}},
		{"iTLB", []int{0}}, {"branch", []int{0}}, {"node", []int{0, 1, 2}}} {
		for _, op := range c.operations {
			config := uint64(cache | op<<operationAt)
			list = append(list, &Event{Name: c.name + "-" + operations[op].hits, typ: unix.PERF_TYPE_HW_CACHE, config: config},
				&Event{Name: c.name + "-" + operations[op].misses, typ: unix.PERF_TYPE_HW_CACHE, config: config | 1<<resultAt})
		}
	}
	return list
}

// EventByName returns the event of this name: one of Events or rNNN, with modifiers, a tracepoint or a probe.
func EventByName(name string) (*Event, error) { return eventByName(perfevent.KernelSources(), name) }

func eventByName(from *perfevent.Sources, name string) (*Event, error) {
	base, rest, qualified := strings.Cut(name, ":")
	// Groups, patterns, PMUs, and what has no stack or no samples.
	if strings.ContainsAny(name, "{}*?") || strings.Contains(base, "/") ||
		slices.Contains([]string{"mem", "dummy", "bpf-output"}, base) {
		return nil, fmt.Errorf("record does not take event %q: use 'perf record --call-graph dwarf -e %s', and then 'ehasm script'", name, name)
	}
	e := cmp.Or(named(base), raw(base))
	var err error
	switch {
	case e != nil && qualified:
		err = e.modify(rest)
	case e != nil:
	case !qualified:
		return nil, unknown(name)
	default:
		if e, err = probeEvent(from, base, rest); e == nil && err == nil {
			e = &Event{typ: unix.PERF_TYPE_TRACEPOINT, every: 1, kernel: true}
			e.config, e.wide, err = from.Tracepoint(base, rest)
			if !e.wide && base != "syscalls" { // those are not the kernel's, and parts of raw_syscalls
				e.raw = rest
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e.Name = name
	return e, nil
}

// named returns one of Events; nil: there is no such name.
func named(name string) *Event {
	for _, e := range Events() {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// raw returns the event rNNN, a number of the processor's manual; nil if the name is not of this form.
func raw(name string) *Event {
	digits, found := strings.CutPrefix(name, "r")
	config, err := strconv.ParseUint(digits, 16, 64)
	if !found || err != nil {
		return nil
	}
	return &Event{typ: unix.PERF_TYPE_RAW, config: config}
}

// unknown explains a name that is no event.
func unknown(name string) error {
	var names []string
	for _, e := range Events() {
		names = append(names, e.Name)
	}
	if near := output.Nearest(names, name); near != "" {
		return fmt.Errorf("unknown event %q; did you mean %s?", name, near)
	}
	return fmt.Errorf("unknown event %q: want cycles, instructions, cpu-clock, page-faults, rNNN, SYSTEM:TRACEPOINT, uprobe:FILE:FUNCTION, kprobe:FUNCTION or another of 'perf list'", name)
}

// modify sets modifiers: u and k count user or kernel code only, each p asks for a more precise address.
func (e *Event) modify(letters string) error {
	const most = 3
	p := strings.Count(letters, "p")
	user, kernel := strings.Contains(letters, "u"), strings.Contains(letters, "k")
	if letters == "" || strings.Trim(letters, "ukp") != "" || p > most || e.blocked {
		return errors.New("want the modifiers u, k or p to ppp")
	}
	if user && !kernel {
		e.bits |= unix.PerfBitExcludeKernel
	}
	if kernel && !user {
		e.bits |= unix.PerfBitExcludeUser
		e.kernel = true
	}
	e.bits |= uint64(p) * unix.PerfBitPreciseIPBit1
	return nil
}

// counted reports whether the processor counts the event.
func (e *Event) counted() bool {
	return e.typ == unix.PERF_TYPE_HARDWARE || e.typ == unix.PERF_TYPE_HW_CACHE || e.typ == unix.PERF_TYPE_RAW
}

// stackfmt describes the event for formats. A clock that is sampled frequency times a second has the period that the
// kernel makes of the frequency; counters have periods that vary.
func (e *Event) stackfmt(frequency uint64) *stackfmt.Event {
	weight, every := "", e.every
	switch {
	case e.blocked:
		weight, every = "microseconds", 0 // each sample counts how long its thread waited
	case e.objects != "":
		weight = e.unit
	case e.kind == "cpu" && every == 0:
		every = uint64(time.Second) / frequency
	}
	return &stackfmt.Event{Name: e.Name, TID: true, CPU: true, Time: true, Period: true, Callchain: true, Kind: e.kind,
		Unit: e.unit, Samples: e.objects, Weight: weight, Every: every}
}
