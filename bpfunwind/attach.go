//go:build linux && amd64

package bpfunwind

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// This file attaches programs to events. What a program returns decides whether perf writes samples, at a
// tracepoint also for others: see Attach.

// Kind is the kind of an event.
type Kind uint8

// Kinds of events.
const (
	PerfEvent     Kind = iota // a perf event that samples: clocks, counters, faults, context switches
	Tracepoint                // a perf event of a tracepoint
	Probe                     // a perf event of a kprobe or a uprobe
	RawTracepoint             // a tracepoint without a perf event
)

// OwnFrames is how many frames of the kernel at a RawTracepoint are the program and its caller. Samples of CopyTo have
// them; walks skip them (bpf_get_stack's BPF_F_SKIP_FIELD_MASK).
const OwnFrames = 2

// programType returns the type of programs for a kind.
func (k Kind) programType() ebpf.ProgramType {
	return [...]ebpf.ProgramType{ebpf.PerfEvent, ebpf.TracePoint, ebpf.Kprobe, ebpf.RawTracepoint}[k]
}

// Source says what a program is for.
type Source struct {
	Kind   Kind
	ID     uint32 // of the caller's choice; in samples
	Kernel bool   // with the kernel's frames
	// Output has copies written by other events than that which runs the program, see CopyTo: for a RawTracepoint, and
	// where one event runs it for all CPUs. With Others, also for processes that are not known.
	Output, Others bool
}

// Program walks at events.
type Program struct {
	loaded *ebpf.Program
	kind   Kind
	output *ebpf.Map // events that write copies, by CPU; nil without Source.Output
}

// NewProgram loads a program. It may be attached to any number of events of its kind. The error wraps ErrRights,
// ErrKernel or ErrLockdown where one of these is the reason.
func (u *Unwinder) NewProgram(s Source) (*Program, error) {
	if s.Kind > RawTracepoint {
		return nil, fmt.Errorf("kind %d", s.Kind)
	}
	p := &program{maps: u.maps, maxFrames: u.opt.MaxFrames, maxTime: u.opt.MaxTime.Nanoseconds(), copies: u.opt.Copies,
		source:    s,
		registers: (*program).threadRegisters}
	var err error
	if s.Output {
		// for all possible CPUs: one may have come online since Load
		if p.output, err = ebpf.NewMap(&ebpf.MapSpec{Name: "output", Type: ebpf.PerfEventArray}); err != nil {
			return nil, explain(err)
		}
	}
	loaded, err := p.load()
	if err != nil {
		p.output.Close()
		return nil, err
	}
	return &Program{loaded, s.Kind, p.output}, nil
}

// CopyTo has a perf event of a CPU write samples for processes without regions, and for outcomes in Options.Copies: one
// of PERF_COUNT_SW_BPF_OUTPUT of all threads, which is enabled. It is for programs with Source.Output.
func (p *Program) CopyTo(cpu, event int) error { return p.output.Put(uint32(cpu), uint32(event)) }

// Missed returns how many events the kernel did not run the program for, because another one ran on the CPU.
func (p *Program) Missed() (uint64, error) {
	stats, err := p.loaded.Stats()
	if err != nil {
		return 0, err
	}
	return stats.RecursionMisses, nil
}

// Attach has a perf event run the program: not a RawTracepoint. perf writes its own sample for processes that have no
// regions, and for outcomes in Options.Copies.
//
// A PerfEvent runs the program where it samples. A Tracepoint or a Probe runs it each time, also where the event's
// filter, threads or CPU would leave it out; and what it leaves out of perf's samples is left out for everyone who
// watches the tracepoint. So a Probe is attached to one event, of any CPU, with Source.Output; only its own event is
// affected.
func (p *Program) Attach(event int) error {
	err := unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_SET_BPF, p.loaded.FD())
	return explain(os.NewSyscallError("PERF_EVENT_IOC_SET_BPF", err))
}

// AttachTracepoint runs a program of kind RawTracepoint at a tracepoint, by its name without the system: sched_switch.
func (p *Program) AttachTracepoint(name string) (io.Closer, error) {
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p.loaded})
	if err != nil {
		return nil, fmt.Errorf("tracepoint %s: %w", name, explain(err))
	}
	return l, nil
}

// Close unloads the program once no event has it.
func (p *Program) Close() error { return errors.Join(p.loaded.Close(), p.output.Close()) }
