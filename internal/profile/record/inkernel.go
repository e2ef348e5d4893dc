//go:build linux && amd64

package record

import (
	"cmp"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// inKernel unwinds user stacks in the kernel, at the sample. Processes that are sampled get regions there, with those
// objects that have tables in the cache, or that walks of copies have met. A sample for which the kernel has no answer
// comes with a copy of the stack, as all do without it.
type inKernel struct {
	copies   *copies
	tracker  *tracker
	unwound  func(*sampled, *thread, *process) // is called for each walk
	kernel   *bpfunwind.Unwinder
	walks    *bpfunwind.Queue
	programs programs
	tables   tables
	views    views
	byCopy   map[int32]lastTold // processes whose samples came with copies
	came     bool               // samples have come with copies in this round
	fresh    bool               // the kernel was told of a process since

	lost, bytes uint64 // as of the last call of beside
}

// programs run at the events of a recording.
type programs struct {
	bySource map[uint32]*bpfunwind.Program // by Source.ID
	hooks    []io.Closer                   // that run programs of events that are hooked
	follows  bool                          // the kernel follows which processes are recorded
}

// loadPrograms loads the programs of a recording's events.
func loadPrograms(kernel *bpfunwind.Unwinder, o *Options) (p programs, err error) {
	p.bySource = make(map[uint32]*bpfunwind.Program)
	for i, e := range o.events() {
		err = cmp.Or(err, p.load(kernel, o, e, uint32(i)))
	}
	if err == nil && !o.Event.hooked {
		err = p.load(kernel, o, o.Event, longSource)
	}
	if p.follows && err == nil {
		thread := uint32(0) // none: processes that are recorded are named
		if len(o.Target.PIDs) == 0 {
			thread = uint32(unix.Gettid())
		}
		err = kernel.Follow(thread)
	}
	return p, err
}

// missed returns how often a program was to run and could not.
func (p *programs) missed() (n uint64, err error) {
	for _, program := range p.bySource {
		missed, err := program.Missed()
		if err != nil {
			return 0, err
		}
		n += missed
	}
	return n, nil
}

func (p *programs) close() {
	for _, h := range p.hooks {
		h.Close()
	}
	for _, program := range p.bySource {
		program.Close()
	}
}

// views are what the kernel was told of processes.
type views struct {
	list   map[uint32]*kernelView
	old    []uint32 // that no process has; their samples may still be in the rings
	oldest int      // of old, those whose samples this round has
}

// kernelView is what processes had mapped when the kernel was told.
type kernelView struct {
	maps    *unwind.Maps
	regions int
	users   int
}

// of returns the view of a process; nil: it has none.
func (v *views) of(p *process) *kernelView { return v.list[p.view] }

// give gives a process a view.
func (v *views) give(p *process, view uint32) {
	p.view = view
	v.list[view].users++
}

// leave takes its view from a process.
func (v *views) leave(p *process) {
	if view := v.of(p); view != nil {
		if view.users--; view.users == 0 {
			v.old = append(v.old, p.view)
		}
	}
	p.view = 0
}

// forget drops the oldest.
func (v *views) forget() {
	for _, view := range v.old[:v.oldest] {
		delete(v.list, view)
	}
	v.old = v.old[v.oldest:]
}

// lastTold says when the kernel was last told of a process, and how many files it had mapped.
type lastTold struct {
	told  time.Time
	texts int
}

// withCopy are the outcomes for which a sample comes with a copy of its stack, too. A walk that has as many frames as
// are wanted needs none; memory that is not there can be read later.
const withCopy = bpfunwind.NeedsCopy&^(1<<bpfunwind.FrameLimit) | 1<<bpfunwind.Unreadable

// errNamespace says why numbers of processes in the kernel are not those in records.
var errNamespace = errors.New("unwinding in the kernel needs the first PID namespace")

// newInKernel loads what unwinds in the kernel at the events of a recording.
func newInKernel(o *Options) (k *inKernel, err error) {
	if !firstNamespace() {
		return nil, errNamespace
	}
	k = &inKernel{views: views{list: make(map[uint32]*kernelView)}, byCopy: make(map[int32]lastTold)}
	const part = 4 // of a ring for copies; the kernel takes the memory of both at once
	k.kernel, err = bpfunwind.Load(bpfunwind.Options{MaxFrames: o.Settings.MaxStack, RingSize: o.Settings.Ring / part, Copies: withCopy})
	if err != nil {
		return nil, err
	}
	k.walks, k.tables = k.kernel.NewQueue(withCopy), newTables(k.kernel, o.Tables)
	if k.programs, err = loadPrograms(k.kernel, o); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// attach gives the programs to the events of a session, whose copies are base.
func (k *inKernel) attach(s *Session, base *copies) (err error) {
	k.copies, k.tracker, k.unwound = base, s.tracker, s.unwound
	if s.opt.Target.All {
		base.few = 20 // of deep programs, the first samples alone are copies: no reason for longer ones
	}
	streams := map[uint32]*stream{0: &s.open.samples, longSource: &s.open.long}
	for i := range s.open.more {
		streams[uint32(i+1)] = &s.open.more[i]
	}
	for number, program := range k.programs.bySource {
		st := streams[number]
		for i, event := range st.all {
			if st.source.hooked { // one for each CPU
				err = program.CopyTo(s.open.cpus[i], event.FD())
			} else {
				err = program.Attach(event.FD())
			}
			if err != nil {
				return err
			}
		}
		if st.source != nil && st.source.hooked && st.source.probe != nil {
			if err := k.programs.hookProbe(program, st.source, s.open.cpus[0]); err != nil {
				return err
			}
		}
	}
	s.stacks, s.tracker.stacks = k, k
	s.rings.polled = append(s.rings.polled, unix.PollFd{Fd: int32(k.kernel.FD()), Events: unix.POLLIN})
	return nil
}

// hookProbe runs a program at a probe, once each time, on all CPUs.
func (p *programs) hookProbe(program *bpfunwind.Program, e *Event, cpu int) error {
	a := &perfevent.Attr{Type: e.typ, Config: e.config, Sample: 1, Bits: unix.PerfBitDisabled}
	e.probe.set(a)
	event, err := perfevent.Open(a, perfevent.AllThreads, cpu)
	if err != nil {
		return e.explain(err)
	}
	p.hooks = append(p.hooks, event)
	return program.Attach(event.FD())
}

// longSource is the source of samples that would have longer copies, see growth.
const longSource = 1 << 8

// firstNamespace reports whether this process is in the first PID namespace (PROC_PID_INIT_INO in
// include/linux/proc_ns.h).
func firstNamespace() bool {
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name == "pid:[4026531836]"
}

// load loads the program of an event, if it has one. Where perf samples the event, the program runs at samples, and
// what it returns says whether perf writes the sample. Tracepoints and probes are hooked: what a program returns at a
// perf event of a tracepoint holds for all who watch it, and one at a probe of each CPU's event runs at the hits of all
// CPUs.
func (p *programs) load(kernel *bpfunwind.Unwinder, o *Options, e *Event, number uint32) error {
	source := bpfunwind.Source{ID: number, Kernel: e.bits&unix.PerfBitExcludeKernel == 0}
	if !e.exclusive() {
		if e.raw == "" && e.probe == nil || e.filter != "" || e.every != 1 || o.Target.Cgroup != nil {
			return nil
		}
		source.Kind, source.Output, source.Others = bpfunwind.RawTracepoint, true, o.Target.All
		if e.probe != nil {
			source.Kind = bpfunwind.Probe
		}
	}
	program, err := kernel.NewProgram(source)
	if err != nil {
		return err
	}
	if e.raw != "" {
		l, err := program.AttachTracepoint(e.raw)
		if err != nil { // it is not the kernel's own
			return program.Close()
		}
		p.hooks = append(p.hooks, l)
	}
	p.bySource[number] = program
	e.hooked = source.Output
	p.follows = p.follows || e.hooked && !o.Target.All
	return nil
}

// exclusive reports whether perf samples the event by itself, whoever else watches it.
func (e *Event) exclusive() bool { return e.typ != unix.PERF_TYPE_TRACEPOINT && e.probe == nil }

func (k *inKernel) close() {
	k.tables.close()
	k.programs.close()
	k.kernel.Close()
}

// begin takes the walks that the kernel has made.
func (k *inKernel) begin() (waiting bool, err error) {
	k.views.oldest = len(k.views.old)
	return k.walks.Fill()
}

// arrive counts the walks that were made before.
func (k *inKernel) arrive(when uint64) { k.walks.Before(when, k.countWalk) }

func (k *inKernel) replaced(raw []byte, when uint64) bool { return k.copies.replaced(raw, when) }
func (k *inKernel) crowd()                                { k.copies.crowd() }
func (k *inKernel) size() int                             { return k.copies.size() }

// end counts the walks before limit, and tells the kernel of processes.
func (k *inKernel) end(limit uint64) error {
	k.walks.Before(limit, k.countWalk)
	k.views.forget()
	k.update(time.Now())
	return k.copies.end(limit)
}

// countWalk counts a walk of the kernel.
func (k *inKernel) countWalk(w *bpfunwind.Sample) {
	view := k.views.list[w.View]
	if w.Source == 0 && k.copies.grew(w.Time) {
		return
	}
	th, p := k.tracker.sampledThread(int32(w.PID), int32(w.TID))
	one := sampled{Sample: Sample{Time: w.Time, Period: w.Period, TID: int32(w.TID), CPU: w.CPU}, pid: int32(w.PID),
		event:  uint8(w.Source),
		kernel: w.Kernel, user: frameStack{pcs: w.User, cause: causeOf(w)}}
	if view == nil || p.sampledMaps != view.maps && !sameCode(view.maps, p.sampledMaps, w.User) {
		one.user = frameStack{cause: unwind.NoMapping} // another process has the number, or other code is there now
	}
	if one.user.cause == unwind.Outermost {
		k.copies.ends.add(p.sampledMaps, w.User[len(w.User)-1])
	}
	k.need(p.sampledMaps, one.user.pcs)
	k.copies.stacks++ // copies grow if too many of all stacks are cut
	k.unwound(&one, th, p)
}

// need notes the objects of a stack, as walks of copies do: their names will be asked for.
func (k *inKernel) need(maps *unwind.Maps, pcs []uint64) {
	var m *unwind.Mapping
	for _, pc := range pcs {
		if m == nil || pc < m.Start || pc >= m.End {
			m = maps.Find(pc)
		}
		if m == nil || m.Object.Needed() {
			continue
		}
		m.Object.Need()
		if onObject := k.copies.opt.OnObject; onObject != nil && m.Object.IsFile() {
			onObject(m.Object)
		}
	}
}

// causeOf says why a walk has ended, of those outcomes that are not withCopy.
func causeOf(w *bpfunwind.Sample) unwind.Cause {
	ended := w.Outcome == bpfunwind.EndOfStack || w.Outcome == bpfunwind.NullReturn
	switch {
	case ended && w.Kept:
		return unwind.OutermostGuessed
	case ended:
		return unwind.Outermost
	case w.Outcome == bpfunwind.FrameLimit:
		return unwind.Full
	}
	return unwind.Unreadable
}

// sameCode reports whether addresses mean the same in two address spaces.
func sameCode(a, b *unwind.Maps, pcs []uint64) bool {
	for i, pc := range pcs {
		if i > 0 { // a return address, which may be the end of its mapping
			pc--
		}
		m, n := a.Find(pc), b.Find(pc)
		if (m == nil) != (n == nil) || m != nil && (m.Object != n.Object || m.FileOffset(pc) != n.FileOffset(pc)) {
			return false
		}
	}
	return true
}

// of walks a copy, and notes the process: the kernel could not.
func (k *inKernel) of(r *perfdata.Sample, th *thread, p *process) frameStack {
	k.came = true
	if c, ok := k.byCopy[r.PID]; !ok || c.texts != len(p.texts) {
		k.tell(r.PID, p, time.Now()) // before its next sample
	}
	return k.copies.of(r, th, p)
}

// retell is how long a process waits until its regions are looked at again, if samples still come with copies.
const retell = 200 * time.Millisecond

// update takes tables that are made, and tells the kernel of processes whose samples came with copies.
func (k *inKernel) update(now time.Time) {
	if k.tables.take() {
		for pid := range k.byCopy { // it may be one of theirs
			k.byCopy[pid] = lastTold{}
		}
	}
	for pid, c := range k.byCopy {
		p := k.tracker.processes[pid]
		if p == nil || p.exited {
			delete(k.byCopy, pid)
		} else if now.Sub(c.told) >= retell || c.texts != len(p.texts) {
			k.tell(pid, p, now)
		}
	}
}

// wait waits for tables no longer than for mappings. Copies wake the reader, since the kernel may then be told of a
// process; but not for a while after some that told it nothing.
func (k *inKernel) wait(most time.Duration) (wait, blind time.Duration) {
	if k.tables.busy() {
		most = min(most, leastMap)
	}
	if k.copies.open.eager && k.came && !k.fresh {
		blind = min(leastMap, most)
	}
	k.came, k.fresh = false, false
	return most, blind
}

// tell gives a process the regions of its objects that have tables. If the kernel has no room for them, samples still
// come with copies.
func (k *inKernel) tell(pid int32, p *process, now time.Time) {
	var list []bpfunwind.Mapping
	maps := p.Maps()
	all, complete := maps.All(), true
	for i := range all {
		m := &all[i]
		if m.Object.IsAnonymous() {
			continue
		}
		o, ok := k.tables.of(m.Object)
		complete = complete && ok
		if bias, ok := m.Object.Bias(m); ok && o != nil {
			list = append(list, bpfunwind.Mapping{Start: m.Start, End: m.End, Bias: bias, Tables: o})
		}
	}
	if k.byCopy[pid] = (lastTold{now, len(p.texts)}); !complete {
		k.byCopy[pid] = lastTold{}
	}
	if v := k.views.of(p); len(list) == 0 || v == nil && k.tables.busy() || v != nil && v.maps == maps &&
		v.regions == len(list) {
		return
	}
	view, err := k.kernel.MapProcess(uint32(pid), list)
	if err != nil {
		return
	}
	k.views.leave(p)
	k.views.list[view] = &kernelView{maps: maps, regions: len(list)}
	k.views.give(p, view)
	k.fresh = true
}

// forked gives a child the view of its parent.
func (k *inKernel) forked(child, parent int32) {
	c, p := k.tracker.processes[child], k.tracker.processes[parent]
	if c == nil || p == nil || k.views.of(p) == nil || k.kernel.Fork(uint32(child), uint32(parent)) != nil {
		return
	}
	k.views.give(c, p.view)
}

// started notes a process that is recorded.
func (k *inKernel) started(pid int32) {
	if k.programs.follows {
		k.kernel.MapProcess(uint32(pid), nil) // without room for it, it is not recorded
	}
}

// changed forgets a process.
func (k *inKernel) changed(pid int32, p *process, ended bool) {
	delete(k.byCopy, pid)
	known := p.view != 0
	k.views.leave(p)
	switch {
	case k.programs.follows && !ended:
		k.started(pid)
	case k.programs.follows || known:
		k.kernel.Forget(uint32(pid))
	}
}

// release forgets objects, and has processes looked at again that have unmapped one since the kernel was told of it.
func (k *inKernel) release(are func(*unwind.Object) bool) {
	k.copies.release(are)
	if !k.tables.release(are) {
		return
	}
	for pid, p := range k.tracker.processes {
		if v := k.views.of(p); v != nil && v.maps != p.Maps() {
			k.byCopy[pid] = lastTold{}
		}
	}
}

// beside returns how many walks, since its last call, had no room in the rings or no program that could run, and the
// bytes of the others.
func (k *inKernel) beside() (lost, bytes uint64) {
	stats, err := k.kernel.Stats()
	if err != nil {
		return 0, 0
	}
	missed, err := k.programs.missed()
	if err != nil {
		return 0, 0
	}
	now := stats.Lost + missed
	lost, bytes = now-k.lost, stats.Bytes-k.bytes
	k.lost, k.bytes = now, stats.Bytes
	return lost, bytes
}
