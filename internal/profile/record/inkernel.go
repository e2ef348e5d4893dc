//go:build linux && amd64

package record

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// inKernel unwinds user stacks in the kernel, at the sample. Objects that walks of copies have met get tables there, and
// processes get regions. A sample for which the kernel has no answer comes with a copy of the stack, as all do without it.
type inKernel struct {
	unwinder *bpfunwind.Unwinder
	programs []*bpfunwind.Program
	make     func(*unwind.Object) (*bpfunwind.Tables, error)
	objects  map[*unwind.Object]*bpfunwind.Object // nil: wanted, or there are none
	views    map[uint32]*kernelView
	old      []uint32            // views that no process has; their samples may still be in the rings
	copied   map[int32]time.Time // processes whose samples came with copies, and when their regions were last told

	queue  []*unwind.Object // that want tables
	made   chan madeTables  // of the object at whose tables a goroutine works
	making bool
	spent  time.Duration // making tables
	begun  time.Time

	waiting []kernelWalk // in the order of time
	next    int          // the first of waiting that has not been taken
	frames  []uint64     // of waiting
	lost    uint64       // told so far
}

// kernelView is what processes had mapped when the kernel was told.
type kernelView struct {
	maps    *unwind.Maps
	regions int
	users   int
}

// madeTables are the tables of an object; nil: there are none.
type madeTables struct {
	object *unwind.Object
	tables *bpfunwind.Tables
	took   time.Duration
}

// kernelWalk is a walk whose frames are elsewhere.
type kernelWalk struct {
	bpfunwind.Sample // without frames
	first            int
	kernel, user     int // numbers of frames
}

// withCopy are the outcomes for which a sample comes with a copy of its stack, too. A walk that has as many frames as are
// wanted needs none; after a null return address frame pointers may go on, and memory that is not there can be read later.
const withCopy = bpfunwind.NeedsCopy&^(1<<bpfunwind.FrameLimit) | 1<<bpfunwind.NullReturn | 1<<bpfunwind.Unreadable

// errNamespace says why numbers of processes in the kernel are not those in records.
var errNamespace = errors.New("unwinding in the kernel needs the first PID namespace")

// newInKernel loads what unwinds in the kernel, and gives it to the events.
func newInKernel(o *Options, op *opened) (k *inKernel, err error) {
	if !firstNamespace() {
		return nil, errNamespace
	}
	k = &inKernel{make: o.Tables, objects: make(map[*unwind.Object]*bpfunwind.Object), views: make(map[uint32]*kernelView),
		copied: make(map[int32]time.Time), made: make(chan madeTables, 1), begun: time.Now()}
	const part = 4 // of a ring for copies; the kernel takes the memory of both at once
	k.unwinder, err = bpfunwind.Load(bpfunwind.Options{MaxFrames: o.MaxStack, RingSize: o.Ring / part, Copies: withCopy})
	if err != nil {
		return nil, err
	}
	for i, e := range o.events() {
		from := &op.samples
		if i > 0 {
			from = &op.more[i-1]
		}
		err = errors.Join(err, k.attach(e, uint32(i), from))
	}
	if err = errors.Join(err, k.attach(o.Event, longSource, &op.long)); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// longSource is the source of samples that would have longer copies, see growth.
const longSource = 1 << 8

// firstNamespace reports whether this process is in the first PID namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).
func firstNamespace() bool {
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name == "pid:[4026531836]"
}

// attach gives an event a program. Tracepoints get none: what the program returns would hold for other users of the
// tracepoint, too. Nor do probes: the program of each CPU's event would run at the hits of all CPUs.
func (k *inKernel) attach(e *Event, number uint32, from *stream) error {
	if e.typ == unix.PERF_TYPE_TRACEPOINT || e.probe != nil || len(from.all) == 0 {
		return nil
	}
	program, err := k.unwinder.NewProgram(bpfunwind.Source{ID: number, Kernel: e.bits&unix.PerfBitExcludeKernel == 0})
	if err != nil {
		return err
	}
	k.programs = append(k.programs, program)
	for _, event := range from.all {
		if err := program.Attach(event.FD()); err != nil {
			return err
		}
	}
	return nil
}

func (k *inKernel) close() {
	if k.making {
		<-k.made
	}
	for _, p := range k.programs {
		p.Close()
	}
	k.unwinder.Close()
}

// read takes the walks that the kernel has made.
func (k *inKernel) read() error {
	err := k.unwinder.Read(0, func(s *bpfunwind.Sample) {
		if withCopy.Has(s.Outcome) {
			return
		}
		w := kernelWalk{Sample: *s, first: len(k.frames), kernel: len(s.Kernel), user: len(s.User)}
		w.Kernel, w.User = nil, nil
		k.frames = append(append(k.frames, s.Kernel...), s.User...)
		k.waiting = append(k.waiting, w)
	})
	slices.SortStableFunc(k.waiting[k.next:], func(a, b kernelWalk) int { return cmp.Compare(a.Time, b.Time) })
	return err
}

// take calls f for the walks before a time. Their frames are valid until the next read.
func (k *inKernel) take(until uint64, f func(*bpfunwind.Sample)) {
	for ; k.next < len(k.waiting) && k.waiting[k.next].Time < until; k.next++ {
		w := &k.waiting[k.next]
		frames := k.frames[w.first:]
		w.Kernel, w.User = frames[:w.kernel], frames[w.kernel:w.kernel+w.user]
		f(&w.Sample)
	}
}

// done ends a round: the frames of the walks that still wait are kept.
func (k *inKernel) done() {
	k.waiting, k.next = slices.Delete(k.waiting, 0, k.next), 0
	all := k.frames
	if k.frames = k.frames[:0]; len(k.waiting) > 0 {
		k.frames = nil // theirs may be anywhere in it
	}
	for i := range k.waiting {
		w := &k.waiting[i]
		first := len(k.frames)
		k.frames = append(k.frames, all[w.first:w.first+w.kernel+w.user]...)
		w.first = first
	}
	for _, view := range k.old {
		delete(k.views, view)
	}
	k.old = nil
}

// kernelWalked counts a walk.
func (s *Session) kernelWalked(w *bpfunwind.Sample) {
	pid, view := int32(w.PID), s.kernel.views[w.View]
	if w.Source == 0 && s.copies.replaced(w.Time) {
		return
	}
	th, p := s.tracker.sampled(pid, int32(w.TID))
	one := sampled{Sample: Sample{Time: w.Time, Period: w.Period, TID: int32(w.TID), CPU: w.CPU}, pid: pid, event: uint8(w.Source), kernel: w.Kernel,
		user: frameStack{pcs: w.User, cause: causeOf(w)}}
	if view == nil || w.View != p.view && w.View != p.viewBefore || p.sampledMaps != view.maps && !sameCode(view.maps, p.sampledMaps, w.User) {
		one.user = frameStack{cause: unwind.NoMapping} // another process has the number, or other code is there now
	}
	s.part.counts.walked(&one.user)
	s.part.counts.InKernel++
	s.add(&one, th, p)
}

// causeOf says why a walk has ended, of those outcomes that are not withCopy.
func causeOf(w *bpfunwind.Sample) unwind.Cause {
	switch {
	case w.Outcome == bpfunwind.EndOfStack && w.Kept:
		return unwind.OutermostGuessed
	case w.Outcome == bpfunwind.EndOfStack:
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

// Bounds on the time for which tables are made: so much at once, and one part in so many of the recording.
const (
	leastMaking = 2 * time.Second
	makingParts = 200
)

// meet notes a process whose sample came with a copy.
func (k *inKernel) meet(pid int32) {
	if _, ok := k.copied[pid]; !ok {
		k.copied[pid] = time.Time{}
	}
}

// retell is how long a process waits until its regions are looked at again, if samples still come with copies.
const retell = 200 * time.Millisecond

// update takes tables that are made, and tells the kernel of processes whose samples came with copies.
func (k *inKernel) update(t *tracker, now time.Time) {
	select {
	case m := <-k.made:
		k.making, k.spent = false, k.spent+m.took
		if _, wanted := k.objects[m.object]; wanted && m.tables != nil { // it may have been released since
			k.objects[m.object], _ = k.unwinder.AddObject(m.tables) // without room for it, its samples come with copies
		}
		for pid := range k.copied { // it may be one of theirs
			k.copied[pid] = time.Time{}
		}
	default:
	}
	for pid, told := range k.copied {
		p := t.processes[pid]
		if p == nil || p.exited {
			delete(k.copied, pid)
		} else if now.Sub(told) >= retell {
			k.copied[pid] = now
			k.tell(pid, p)
		}
	}
	if !k.making && len(k.queue) > 0 && k.affords() {
		o := k.queue[0]
		k.queue, k.making = k.queue[1:], true
		go func() {
			begin := time.Now()
			tables, _ := k.make(o) // an object without tables has no region
			k.made <- madeTables{o, tables, time.Since(begin)}
		}()
	}
}

// affords reports whether there is time to make more tables.
func (k *inKernel) affords() bool { return k.spent < leastMaking+time.Since(k.begun)/makingParts }

// busy reports whether tables will be ready soon.
func (k *inKernel) busy() bool { return k.making || len(k.queue) > 0 && k.affords() }

// tell gives a process the regions of its objects that have tables, and asks for those of others that walks have needed. If
// the kernel has no room for them, samples still come with copies.
func (k *inKernel) tell(pid int32, p *process) {
	var list []bpfunwind.Mapping
	maps := p.Maps()
	all := maps.All()
	for i := range all {
		m := &all[i]
		if m.Object.IsAnonymous() || !m.Object.Needed() {
			continue
		}
		o, known := k.objects[m.Object]
		if !known {
			k.objects[m.Object] = nil
			k.queue = append(k.queue, m.Object)
		}
		if bias, ok := m.Object.Bias(m); ok && o != nil {
			list = append(list, bpfunwind.Mapping{Start: m.Start, End: m.End, Bias: bias, Object: o})
		}
	}
	if v := k.views[p.view]; len(list) == 0 || v == nil && k.busy() || v != nil && v.maps == maps && v.regions == len(list) {
		return
	}
	view, err := k.unwinder.MapProcess(uint32(pid), list)
	if err != nil {
		return
	}
	before := p.view
	k.leave(p)
	p.view, p.viewBefore = view, before
	k.views[view] = &kernelView{maps, len(list), 1}
}

// leave takes its view from a process.
func (k *inKernel) leave(p *process) {
	if v := k.views[p.view]; v != nil {
		if v.users--; v.users == 0 {
			k.old = append(k.old, p.view)
		}
	}
	p.view = 0
}

// fork gives a child the view of its parent.
func (k *inKernel) fork(child, parent int32, t *tracker) {
	c, p := t.processes[child], t.processes[parent]
	if c == nil || p == nil || k.views[p.view] == nil || k.unwinder.Fork(uint32(child), uint32(parent)) != nil {
		return
	}
	c.view = p.view
	k.views[p.view].users++
}

// forget forgets a process that has ended, or is another program now.
func (k *inKernel) forget(pid int32, p *process) {
	if p == nil || p.view == 0 {
		return
	}
	k.leave(p)
	k.unwinder.Forget(uint32(pid))
}

// release frees the tables of objects that are released.
func (k *inKernel) release(list []*unwind.Object) {
	for _, o := range list {
		if tables, known := k.objects[o]; known && (tables == nil || k.unwinder.RemoveObject(tables) == nil) {
			delete(k.objects, o)
			k.queue = slices.DeleteFunc(k.queue, func(other *unwind.Object) bool { return other == o })
		}
	}
}

// newlyLost returns how many walks had no room in the rings since the last call.
func (k *inKernel) newlyLost() uint64 {
	stats, err := k.unwinder.Stats()
	if err != nil {
		return 0
	}
	n := stats.Lost - k.lost
	k.lost = stats.Lost
	return n
}
