//go:build linux && amd64

package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sort"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/mapped"
	"github.com/ehasm/ehasm/unwind"

	"golang.org/x/sys/unix"
)

// This file takes stacks of processes. A thread is stopped by ptrace while registers and stack are copied, and walked
// once it runs again: the walk may read files, and nothing may stop a program for as long as that takes.

// How long to wait for threads to stop.
const (
	patience      = 100 * time.Millisecond // for a thread
	leastPatience = time.Millisecond       // for a thread, once allPatience is used up
	allPatience   = time.Second            // for all that do not stop, together
	runPatience   = 10 * time.Second       // for all that wait for a CPU, as beside a real-time thread
)

// Live takes the stacks of processes, as often as the caller wants. It keeps what it has read of their files. Only one
// goroutine at a time may use it.
type Live struct {
	files  *mapped.Files
	walker *walker
	only   func(tid int32) bool
	want   map[int32][]part // by thread: the parts that its last walk needed
	space
}

// space is the address space of the last process whose stacks were taken. It is read anew with each Take; a PID may by
// then be another process's.
type space struct {
	pid  int32
	read memory           // set with list
	list []procfs.Mapping // all, ascending
	maps *unwind.Maps
}

// mostOpen is how many files are kept open, of all processes, so that those that are removed can still be read. It is
// a quarter of the usual limit on descriptors.
const mostOpen = 256

// NewLive returns a Live.
func NewLive(opt Options) *Live {
	return &Live{files: mapped.NewFiles(opt.Objects, mostOpen), walker: newWalker(&opt), only: opt.Only,
		want: make(map[int32][]part)}
}

// Close closes the files that were kept open. After it, objects cannot be opened.
func (l *Live) Close() { l.files.Close() }

// Take takes the stacks of all threads of a process. It stops each thread alone or, if consistent, all together. The
// error says why there are no stacks, and what to do.
func (l *Live) Take(ctx context.Context, pid int32, consistent bool) (t *Target, err error) {
	l.enter(pid)
	onThread(func() { t, err = l.take(ctx, consistent) })
	return t, err
}

// enter makes pid the process whose stacks are taken. What was noted of another one's threads is of no use.
func (l *Live) enter(pid int32) {
	if pid != l.pid {
		l.space = space{pid: pid}
		clear(l.want)
	}
}

// readLive takes the stacks of a process. end ends the use of its files.
func readLive(ctx context.Context, pid int32, opt Options) (t *Target, end func(), err error) {
	l := NewLive(opt)
	t, err = l.Take(ctx, pid, opt.Consistent)
	return t, l.Close, err
}

// onThread calls f on an OS thread that ends afterwards. ptrace(2) works only on the thread that has attached, so a
// goroutine must not move. The thread's end cancels the stops that came too late for f.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a locked thread ends with its goroutine, except the main thread
		if unix.Gettid() == unix.Getpid() {
			onThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// take does what Take says, on the tracer's thread.
func (l *Live) take(ctx context.Context, consistent bool) (*Target, error) {
	if err := l.readMaps(); err != nil {
		return nil, err
	}
	t := &Target{PID: l.pid}
	t.Comm, _ = procfs.Comm(l.pid, l.pid)
	stops := newStops()
	if err := l.takeEach(ctx, t, stops); err != nil {
		return nil, err
	}
	if consistent && ctx.Err() == nil {
		l.takeAll(t, stops)
	}
	slices.SortStableFunc(t.Threads, func(a, b Thread) int { return int(a.TID) - int(b.TID) })
	t.named(l.maps)
	return t, nil
}

// readMaps reads what the process has mapped. It is called again when a stack leads out of the mappings that were
// read: a library may have been loaded meanwhile.
func (l *Live) readMaps() error {
	of := procfs.Living(l.pid)
	list, err := procfs.Mappings(of)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH):
		return noProcess(l.pid)
	case err != nil:
		return refused(l.pid, err)
	case len(list) == 0:
		return noMemory(l.pid)
	}
	l.list, l.read = list, askNoServer(of, list, readProcess(of))
	from := &mapped.Process{PID: l.pid, Read: func(addr uint64, b []byte) int { return l.read(b, addr) }}
	ids := buildIDs(list, l.read)
	object := func(m *procfs.Mapping) *unwind.Object { return l.files.Mapped(from, m, ids[fileOf(m)]) }
	l.maps = placeAll(list, object, from.Read)
	return nil
}

// region returns the bounds of the mapping at an address, or two zeros.
func (l *space) region(addr uint64) (start, end uint64) {
	i := sort.Search(len(l.list), func(i int) bool { return l.list[i].End > addr })
	if i < len(l.list) && l.list[i].Start <= addr {
		return l.list[i].Start, l.list[i].End
	}
	return 0, 0
}

// stops bounds the total wait for threads that do not stop, so that a process with a thousand of them, as behind a
// network file system that hangs, takes a second and not a hundred.
type stops struct {
	left     time.Duration
	hungry   time.Duration        // for those that wait for a CPU
	runnable func(tid int32) bool // whether a thread does that
	stuck    map[int32]bool       // they were interrupted and have not stopped yet
	reads    int                  // of mappings, for stacks that lead out of them
}

// newStops returns fresh bounds.
func newStops() *stops {
	return &stops{left: allPatience, hungry: runPatience, runnable: runnable, stuck: make(map[int32]bool)}
}

// await calls the function await within the bound. A runnable thread stops as soon as it gets a CPU.
func (s *stops) await(tid int32) (held, error) {
	for {
		begin := time.Now()
		h, err := await(int(tid), begin.Add(max(leastPatience, min(s.left, patience))))
		if err != errLate {
			return h, err
		}
		if s.hungry > 0 && s.runnable(tid) {
			s.hungry -= time.Since(begin)
			continue
		}
		s.left -= time.Since(begin)
		s.stuck[tid] = true
		return h, err
	}
}

// takeEach takes the stacks of the threads one by one, also of those that start meanwhile, until a look finds no new
// ones. An error says that there is no stack at all; what is wrong with one thread is in its Missing.
func (l *Live) takeEach(ctx context.Context, t *Target, s *stops) error {
	seen := make(map[int32]bool)
	for again := true; again; {
		again = false
		tids, err := procfs.Threads(l.pid)
		if err != nil {
			break // it has ended
		}
		slices.Sort(tids)
		for _, tid := range tids {
			if seen[tid] || ctx.Err() != nil || l.only != nil && !l.only(tid) {
				continue
			}
			seen[tid], again = true, true
			th := Thread{TID: tid, Kernel: kernelStack(l.pid, tid)}
			th.Comm, th.State = describe(l.pid, tid)
			// the first thread of a process may end before the others: its number stays taken
			if th.State == ended {
				th.Missing = "it has ended, and others of the process have not"
				t.Threads = append(t.Threads, th)
				continue
			}
			switch err := l.takeOne(&th, s); {
			case err == errGone:
				continue
			case err == errLate || err == errCompat:
				th.Missing = err.Error()
			case err != nil:
				if len(t.Threads) == 0 {
					return refused(tid, err)
				}
				th.Missing = refused(tid, err).Error()
			}
			t.Threads = append(t.Threads, th)
		}
	}
	if len(t.Threads) == 0 && ctx.Err() == nil {
		return ErrEnded
	}
	return ctx.Err()
}

// takeOne takes the stack of a thread. It repeats that with a larger copy as long as the walk needs more.
func (l *Live) takeOne(th *Thread, s *stops) error {
	// firstCopy times 8 in each try: the third is mostCopy. Other tries are for other stacks, and for new mappings.
	const tries, mostReads = 6, 3
	want := l.wanted(th.TID) // by what the last walk needed
	for range tries {
		if err := interrupt(int(th.TID)); err != nil {
			return err
		}
		h, err := s.await(th.TID)
		if err != nil {
			return err
		}
		regs, parts, err := l.copy(&h, want, mostCopy)
		th.Stopped += h.release()
		if err != nil {
			return err
		}
		more := l.walker.walk(th, l.maps, regs, parts)
		switch {
		case more != nil:
			want = more // remembered for the next round
			l.want[th.TID] = want
		case th.End == unwind.NoMapping && s.reads < mostReads: // of a library loaded meanwhile?
			s.reads++
			if err := l.readMaps(); err != nil {
				return errGone
			}
		default:
			return nil
		}
	}
	return nil
}

// wanted returns the parts of a thread's stack to copy first: those that its last walk needed, as a thread with a deep
// stack is likely to have one again.
func (l *Live) wanted(tid int32) []part {
	if want := l.want[tid]; want != nil {
		return want
	}
	return []part{{size: firstCopy}}
}

// copy copies registers and stack of a stopped thread. The first part begins at its stack pointer. No part is
// larger than most bytes.
func (l *Live) copy(h *held, want []part, most int) (regs abi.Regs, parts []copied, err error) {
	regs, err = h.registers()
	if err != nil {
		return regs, nil, err
	}
	for i, p := range want {
		if i == 0 {
			p.sp = regs.Reg[abi.RSP]
		}
		p.size = min(p.size, most)
		parts = append(parts, copyPart(l.read, l.region, p))
	}
	return regs, parts, nil
}

// takeAll stops all threads, copies their stacks and lets them go on. takeEach must have run before: it finds the size
// of each stack, and reads the files that walks need. A stack that has grown since is cut, as no thread is stopped
// twice.
func (l *Live) takeAll(t *Target, s *stops) {
	const room, least = 256 << 20, 32 << 10 // bytes of all copies, and of one
	begin := time.Now()
	all := l.stopAll(t, s)
	// taken is a copy of one thread; walking waits until all threads run again.
	type taken struct {
		regs  abi.Regs
		parts []copied
		err   error
	}
	// Too many or too large stacks: copy less of each.
	most, sum := mostCopy, 0
	for i := range all {
		for _, p := range l.wanted(t.Threads[i].TID) {
			sum += p.size
		}
	}
	if sum > room {
		most = max(least, room/len(all))
	}
	copies := make([]taken, len(all))
	for i, h := range all {
		if h.tid != 0 {
			c := &copies[i]
			c.regs, c.parts, c.err = l.copy(&h, l.wanted(t.Threads[i].TID), most)
		}
	}
	for i, h := range all {
		if h.tid != 0 {
			t.Threads[i].Stopped = h.release()
		}
	}
	t.Notes = append(t.Notes, fmt.Sprintf("all %d threads were stopped together, for %v at most", len(all),
		time.Since(begin).Round(time.Microsecond)))
	for i, h := range all {
		if h.tid == 0 {
			continue
		}
		if err := copies[i].err; err != nil {
			t.Threads[i].Missing = err.Error()
			continue
		}
		l.walker.walk(&t.Threads[i], l.maps, copies[i].regs, copies[i].parts)
	}
}

// stopAll stops all threads. It adds and stops those that start meanwhile. A thread that does not stop, or has ended,
// has the tid 0 in the result and is Missing.
func (l *Live) stopAll(t *Target, s *stops) (all []held) {
	index := make(map[int32]int)
	for i := range t.Threads {
		index[t.Threads[i].TID] = i
	}
	asked := make(map[int32]bool)
	for again := true; again; {
		again = false
		tids, err := procfs.Threads(l.pid)
		if err != nil {
			break
		}
		var batch []int32
		for _, tid := range tids {
			if asked[tid] || s.stuck[tid] { // a stuck thread would hold up all others
				continue
			}
			asked[tid] = true
			if interrupt(int(tid)) == nil {
				batch = append(batch, tid)
			}
		}
		for _, tid := range batch {
			again = true
			if _, ok := index[tid]; !ok {
				index[tid] = len(t.Threads)
				th := Thread{TID: tid}
				th.Comm, _ = procfs.Comm(l.pid, tid)
				t.Threads = append(t.Threads, th)
			}
			i := index[tid]
			all = append(all, make([]held, len(t.Threads)-len(all))...) // threads that started meanwhile have places, too
			all[i], err = s.await(tid)
			if err != nil {
				all[i] = held{}
			}
		}
	}
	all = append(all, make([]held, len(t.Threads)-len(all))...)
	for i := range t.Threads {
		if th := &t.Threads[i]; all[i].tid == 0 && th.Missing == "" {
			*th = Thread{TID: th.TID, Comm: th.Comm, State: th.State, Missing: "it did not stop with the others, or has ended"}
		}
	}
	return all
}
