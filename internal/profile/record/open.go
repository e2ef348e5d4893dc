//go:build linux && amd64

package record

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"

	"golang.org/x/sys/unix"
)

// stream holds the rings of one kind, one per CPU, and the event of their records.
type stream struct {
	attr   *perfevent.Attr
	source *Event // of samples; nil: there are none
	event  *perfdata.Event
	first  []*perfevent.Event // by CPU, those that the rings belong to
	all    []*perfevent.Event
	rings  []*perfevent.Ring

	refused int    // threads of children that this user may not record
	told    uint64 // see newlyLost
}

// opened holds all that a Session reads from.
type opened struct {
	samples, side stream
	long          stream   // samples with longer copies, into the rings of samples; not enabled yet
	more          []stream // samples at Options.More, into the same rings
	user          bool     // the kernel must not be sampled
	cpus          []int    // that events were opened on
	rings         int      // bytes of a CPU's, as the kernel gave them
	eager         bool     // each sample wakes the reader
}

// newlyLost returns how many samples of each of Options.events were lost since the last call.
func (op *opened) newlyLost() []uint64 {
	samples := []uint64{op.samples.newlyLost() + op.long.newlyLost()}
	for i := range op.more {
		samples = append(samples, op.more[i].newlyLost())
	}
	return samples
}

// KernelNeeds says who may look at the kernel.
const KernelNeeds = "that needs root, CAP_PERFMON or kernel.perf_event_paranoid of at most 1"

// errSwitches says why an event that occurs only in the kernel cannot be sampled.
var errSwitches = errors.New("occurs in the kernel, which this user may not sample: " + KernelNeeds)

// attrBytes returns the attributes as the kernel has them.
func attrBytes(a *perfevent.Attr) []byte {
	a.Size = uint32(unsafe.Sizeof(*a))
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(a)), unsafe.Sizeof(*a))...)
}

// open opens the events of the target; user is set if the kernel must not be sampled, inKernel if stacks are unwound
// there. Nothing is counted until the events are enabled, or the command is executed.
func (o *Options) open(user, inKernel bool) (op *opened, err error) {
	raiseFileLimit()
	const tries = 3 // a CPU may go offline meanwhile
	for range tries {
		if op, err = o.openOnce(user, inKernel); !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	return op, err
}

func (o *Options) openOnce(user, inKernel bool) (*opened, error) {
	cpus, err := onlineCPUs()
	if err != nil {
		return nil, err
	}
	op := &opened{user: user, cpus: cpus}
	for _, e := range o.events() {
		switch {
		case op.user && e.probe != nil:
			return nil, e.explain(unix.EACCES)
		case op.user && e.kernel:
			return nil, fmt.Errorf("%s: %w", e.Name, errSwitches)
		}
	}
	op.samples.source, op.samples.attr = o.Event, o.sampleAttr(o.Event, op.user, o.Settings.Ring)
	if inKernel && !slices.ContainsFunc(o.events(), func(e *Event) bool { return !e.exclusive() }) {
		op.eager, op.samples.attr.Wakeup = true, 1 // copies are rare, and tell of processes
	}
	op.side.attr = o.sideAttr(op.user)
	if err = op.side.open(o, cpus, sideRing); err == nil {
		err = op.samples.open(o, cpus, o.Settings.Ring)
	}
	if err == nil {
		err = op.openMore(o)
	}
	if err != nil {
		op.close()
		return nil, err
	}
	// Each event costs something at each switch, and what is hooked writes its copies with the first.
	if o.Settings.Grow > o.Settings.Copy && !o.Event.blocked && !o.Event.hooked && len(o.More) == 0 {
		op.long.source, op.long.attr = o.Event, o.longAttr(op.samples.attr)
		if op.long.open(o, cpus, 0, op.samples.first...) != nil {
			op.long.close() // it goes without
			op.long = stream{}
		}
	}
	op.rings = o.Settings.Ring
	for _, r := range op.samples.rings {
		op.rings = min(op.rings, r.Size())
	}
	for _, s := range []*stream{&op.samples, &op.side} {
		s.event = perfdata.NewEvent(attrBytes(s.attr))
	}
	return op, nil
}

// openMore opens the further events.
func (op *opened) openMore(o *Options) error {
	for _, e := range o.More {
		op.more = append(op.more, stream{source: e, attr: o.sampleAttr(e, op.user, o.Settings.Ring)})
		if err := op.more[len(op.more)-1].open(o, op.cpus, 0, op.samples.first...); err != nil {
			return err
		}
	}
	return nil
}

// streams returns all streams; those with rings come last.
func (op *opened) streams() (list []*stream) {
	for i := range op.more {
		list = append(list, &op.more[i])
	}
	return append(list, &op.long, &op.samples, &op.side)
}

// eventNumbers returns the places in Options.events of what the kernel numbers.
func (op *opened) eventNumbers() (map[uint64]uint8, error) {
	numbers := make(map[uint64]uint8)
	for i := range op.more {
		for _, e := range op.more[i].all {
			id, err := e.ID()
			if err != nil {
				return nil, err
			}
			numbers[id] = uint8(i + 1)
		}
	}
	return numbers, nil
}

// kernelForbidden reports whether this user may record user code alone. It is tried with the event
// itself, as the rules are the kernel's.
func (o *Options) kernelForbidden() bool {
	a := o.sampleAttr(o.Event, false, o.Settings.Ring)
	a.Bits &^= unix.PerfBitEnableOnExec | unix.PerfBitExcludeKernel // which an event with the modifier u has
	e, err := perfevent.Open(a, perfevent.ThisThread, perfevent.AnyCPU)
	if err != nil {
		return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
	}
	e.Close()
	return false
}

// open opens the events of a kind: one per CPU, and where there are threads already, one
// for each of them and CPU. They get rings of their own, or where others are given, by CPU, use theirs.
func (s *stream) open(o *Options, cpus []int, ring int, others ...*perfevent.Event) error {
	tasks := []task{{id: perfevent.ThisThread}}
	if o.Target.All || s.source != nil && (s.source.wide || s.source.hooked) {
		tasks = []task{{id: perfevent.AllThreads}}
	} else if len(o.Target.PIDs) > 0 {
		var err error
		if tasks, err = o.Target.tasks(); err != nil {
			return err
		}
	}
	for i, cpu := range cpus {
		var first *perfevent.Event
		if len(others) > 0 {
			first = others[i]
		}
		for _, t := range tasks {
			e, err := s.openOne(o, t.id, cpu)
			if errors.Is(err, unix.ESRCH) && len(tasks) > 1 {
				continue // the thread has ended meanwhile
			}
			if t.child && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
				if i == 0 {
					s.refused++
				}
				continue
			}
			if err != nil {
				return s.source.explain(err)
			}
			s.all = append(s.all, e)
			if s.source != nil && s.source.filter != "" {
				if err := e.SetFilter(s.source.filter); err != nil {
					return s.source.explain(err)
				}
			}
			if first != nil {
				if err := e.Redirect(first); err != nil {
					return err
				}
				continue
			}
			first = e
			const least = 1 << 16
			r, err := e.MapUpTo(ring, least)
			if err != nil {
				return err
			}
			ring = r.Size() // what is left for one CPU is left for the next
			s.first, s.rings = append(s.first, e), append(s.rings, r)
		}
		if first == nil {
			return unix.ESRCH
		}
	}
	return nil
}

func (s *stream) openOne(o *Options, tid, cpu int) (*perfevent.Event, error) {
	if o.Target.Cgroup != nil && s.source != nil { // what all processes map is followed
		e, err := perfevent.OpenCgroup(s.attr, o.Target.Cgroup, cpu)
		// ENOENT and EBADF are about the folder: perf_cgroup_connect in kernel/events/core.c.
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBADF) {
			return nil, fmt.Errorf("--cgroup %s: the folder is no control group that events can be counted in: "+
				"want one of version 2, below /sys/fs/cgroup, or of version 1's perf_event", o.Target.Cgroup.Name())
		}
		return e, err
	}
	return perfevent.Open(s.attr, tid, cpu)
}

// noProcess translates the error for the missing folder of a process in /proc.
func noProcess(pid int32, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return cmp.Or(procfs.NotShown(pid), error(unix.ESRCH))
	}
	return err
}

// each calls f for all events and returns the first error.
func (op *opened) each(f func(*perfevent.Event) error) error {
	var first error
	for _, s := range slices.Backward(op.streams()) {
		for _, e := range s.all {
			if err := f(e); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

// newlyLost returns how many records the kernel had no room for since the last call.
func (s *stream) newlyLost() uint64 {
	lost, before := uint64(0), s.told
	for _, e := range s.all {
		if c, err := e.Read(); err == nil {
			lost += c.Lost
		}
	}
	s.told = lost
	return lost - before
}

func (op *opened) close() {
	for _, s := range op.streams() {
		s.close()
	}
}

func (s *stream) close() {
	for _, e := range s.all {
		e.Close()
	}
	for _, r := range s.rings {
		r.Close()
	}
}

// replace enables the events of stream by and disables those of old.
func replace(old, by *stream) error {
	for _, e := range by.all {
		if err := e.Enable(); err != nil {
			return err
		}
	}
	for _, e := range old.all {
		if err := e.Disable(); err != nil {
			return err
		}
	}
	return nil
}

// mute makes sure that programs which are executed from now on are not sampled by the events of a stream that is
// disabled: what they inherit is enabled by their execution again. The kernel's settings may not reach all, so samples
// of these events are also known by their numbers.
func (s *stream) mute(e *Event) (ids map[uint64]bool) {
	never := uint64(1) << 62
	if e.counted() {
		never = 1 // a second
	}
	ids = make(map[uint64]bool)
	for _, e := range s.all {
		e.SetPeriod(never)
		if id, err := e.ID(); err == nil {
			ids[id] = true
		}
	}
	return ids
}

// unmute undoes mute.
func (s *stream) unmute(e *Event, frequency uint64) {
	period := e.every
	switch {
	case period > 0:
	case e.counted():
		period = frequency
	default:
		period = uint64(time.Second) / frequency // the kernel has made it of the frequency
	}
	for _, e := range s.all {
		e.SetPeriod(period)
	}
}

// raiseFileLimit raises the limit on open files to the hard limit: there are two events
// for each CPU and thread.
func raiseFileLimit() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil && l.Cur < l.Max {
		l.Cur = l.Max
		unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
	}
}
