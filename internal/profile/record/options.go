//go:build linux && amd64

package record

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// Target says what is recorded.
type Target struct {
	PIDs   []int    // processes, with their children
	Some   bool     // it is no error if some of PIDs have ended, or are another user's
	All    bool     // the whole system
	Cgroup *os.File // with All: only this control group
	// Otherwise the programs that the calling thread executes after Open, with
	// their children.

	children []int // of PIDs, when Open is called
}

// Options are what a Session needs.
type Options struct {
	Settings Settings
	Target   Target
	Event    *Event
	More     []*Event   // further events, whose samples are in the same profile
	Samples  bool       // keep each sample, not only the counts
	Labels   labels.Set // of samples, for formats that have them
	Objects  *unwind.Objects
	Places   *jit.Places          // which learns where names of code made at run time are; may be nil
	OnObject func(*unwind.Object) // see unwind.Walker; may be nil
	Raw      *RawWriter           // gets all records; may be nil
	// Tables returns what the kernel unwinds an object by: what is at hand or, if wanted, made now. nil: nothing is
	// unwound there.
	Tables func(o *unwind.Object, wanted bool) (*bpfunwind.Tables, error)
	// Left is called for an object that is released, with the link-time addresses at which it was met: names for those
	// may still be asked for, as it was with all that is known of it. Its file may be used until done is called. May be
	// nil.
	Left func(o *unwind.Object, met []uint64, done func())
}

// maxEvents is how many events a recording may have: eventNumbers has 8 bits for each.
const maxEvents = 1 << 8

// events returns all events at which samples are taken.
func (o *Options) events() []*Event { return append([]*Event{o.Event}, o.More...) }

// event returns the event at a place of events.
func (o *Options) event(n uint8) *Event {
	if n == 0 {
		return o.Event
	}
	return o.More[n-1]
}

// ErrOptions is wrapped by the errors of Open that are about the options.
var ErrOptions = errors.New("not possible")

// check returns an error if the options are not valid.
func (o *Options) check() error {
	const minRing = 1 << 16
	switch {
	case o.Settings.Copy < 0 || o.Settings.Copy > perfevent.MaxStackUser || o.Settings.Copy%8 != 0:
		return fmt.Errorf("copy of %d bytes: %w: want a multiple of 8 up to %d", o.Settings.Copy, ErrOptions, perfevent.MaxStackUser)
	case o.Settings.Grow < 0 || o.Settings.Grow > perfevent.MaxStackUser || o.Settings.Grow%8 != 0:
		return fmt.Errorf("copy of %d bytes: %w: want a multiple of 8 up to %d", o.Settings.Grow, ErrOptions, perfevent.MaxStackUser)
	case o.Settings.Ring < minRing || o.Settings.Ring&(o.Settings.Ring-1) != 0:
		return fmt.Errorf("ring of %d bytes: %w: want a power of two of at least 64 KB", o.Settings.Ring, ErrOptions)
	case len(o.events()) > maxEvents:
		return fmt.Errorf("%d events: %w: want at most %d", len(o.events()), ErrOptions, maxEvents)
	case o.Settings.MaxStack < 1:
		return fmt.Errorf("at most %d frames: %w: want at least 1", o.Settings.MaxStack, ErrOptions)
	}
	return nil
}

// sampleType is the fields of samples.
const sampleType = perfdata.SampleIdentifier | perfdata.SampleIP | perfdata.SampleTID | perfdata.SampleTime | perfdata.SampleCPU | perfdata.SamplePeriod

// sampleAttr returns the attributes of an event that samples are taken at. user is set where
// the kernel may not be looked at.
func (o *Options) sampleAttr(e *Event, user bool, ring int) *perfevent.Attr {
	a := o.baseAttr(user)
	a.Type, a.Config, a.Sample = e.typ, e.config, o.Settings.Frequency
	a.Bits |= unix.PerfBitFreq
	if e.every > 0 {
		a.Sample = e.every
		a.Bits &^= unix.PerfBitFreq
	}
	// A user who may not see the kernel gets empty call chains: without any, perf script and
	// ehasm script take a recording for one of addresses, not of stacks.
	a.Sample_type |= uint64(perfdata.SampleCallchain)
	if o.Raw != nil || o.Settings.Pointers == unwind.Never { // in a raw file, perf script would show the frames twice
		a.Bits |= unix.PerfBitExcludeCallchainUser
	}
	if user {
		a.Bits |= unix.PerfBitExcludeCallchainKernel
	}
	a.Bits |= e.bits
	if e.probe != nil {
		e.probe.set(a)
	}
	if e.hooked {
		a.Type, a.Config, a.Ext1, a.Ext2 = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_BPF_OUTPUT, 0, 0
	}
	if e.wide || e.hooked {
		widen(a)
	}
	a.Sample_type |= uint64(perfdata.SampleRegsUser)
	a.Sample_regs_user = perfevent.RegsUser
	if o.Settings.Copy > 0 {
		a.Sample_type |= uint64(perfdata.SampleStackUser)
		a.Sample_stack_user = uint32(o.Settings.Copy)
	}
	// with a period in samples, the kernel takes one each time that a software event occurs: perf_swevent_event
	if e.every > 1 {
		a.Sample_type &^= uint64(perfdata.SamplePeriod)
	}
	const parts = 4
	a.Wakeup = uint32(ring / parts)
	return a
}

// widen makes an event one of all processes that counts from the start; see Session.foreign. Probes cannot be
// inherited: for each child the kernel would read the file's name again, from the memory of the program that forks.
// Where 'perf probe' has made one, Linux 6.1 removes it from a program when a child of it ends.
func widen(a *perfevent.Attr) {
	if a.Bits&unix.PerfBitEnableOnExec != 0 {
		a.Bits &^= unix.PerfBitDisabled
	}
	a.Bits &^= unix.PerfBitInherit | unix.PerfBitEnableOnExec
}

// longAttr returns those of samples with longer copies. They are enabled when they are needed.
func (o *Options) longAttr(samples *perfevent.Attr) *perfevent.Attr {
	a := *samples
	a.Bits = a.Bits&^unix.PerfBitEnableOnExec | unix.PerfBitDisabled
	a.Sample_stack_user = uint32(o.Settings.Grow)
	return &a
}

// sideAttr returns the attributes of the event that tells what processes do. It does not ask for build-ids: the kernel
// would mark the records of other profilers, too, as if they had build-ids, and perf aborts at these. The files have
// them.
func (o *Options) sideAttr(user bool) *perfevent.Attr {
	a := o.baseAttr(user)
	a.Type, a.Config = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_DUMMY
	a.Bits |= unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask | perfevent.BitKSymbol
	if o.Raw != nil {
		a.Bits |= unix.PerfBitMmapData // perf script reads unwind tables through the mappings that hold them
	}
	if o.Event.blocked {
		a.Bits |= unix.PerfBitContextSwitch
	}
	a.Wakeup = sideRing / 2
	return a
}

// sideRing is the bytes of a ring for what processes do.
const sideRing = 1 << 20

func (o *Options) baseAttr(user bool) *perfevent.Attr {
	a := &perfevent.Attr{Sample_type: uint64(sampleType), Read_format: perfevent.ReadLost, Clockid: unix.CLOCK_MONOTONIC,
		Bits: unix.PerfBitDisabled | unix.PerfBitWatermark | unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitExcludeHv}
	if user {
		a.Bits |= unix.PerfBitExcludeKernel
	}
	if !o.Target.All {
		a.Bits |= unix.PerfBitInherit
	}
	if !o.Target.All && len(o.Target.PIDs) == 0 {
		a.Bits |= unix.PerfBitEnableOnExec
	}
	return a
}

// onlineCPUs returns the numbers of the CPUs: Documentation/admin-guide/cputopology.rst.
func onlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

func parseCPUs(list string) (cpus []int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && isRange {
			last, err = strconv.Atoi(to)
		}
		const most = 1 << 16
		if err != nil || first < 0 || last < first || last > most {
			return nil, fmt.Errorf("list of CPUs %q", list)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
