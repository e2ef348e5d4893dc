//go:build linux && amd64

package record

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/ehasm/ehasm/bpfunwind"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/internal/profile/symbolize"

	"golang.org/x/sys/unix"
)

// Sample is one sample of a profile.
type Sample struct {
	Time   uint64 // ns, of CLOCK_MONOTONIC
	Period uint64
	Stack  uint32 // index of Table.Stacks
	TID    int32
	CPU    uint32
}

// Session is a recording. Open makes one, Run records, Take returns the counts.
type Session struct {
	opt         Options
	open        *opened
	rings       reader
	tracker     *tracker
	kernelCode  symbolize.KernelCode
	labeler     *labeler
	stacks      stacks
	pace        pace
	clock       clock
	part        part
	unread      unread
	unlearnt    []int32          // processes that were there at the start, see learn
	releaseAt   time.Time        // see release
	now         uint64           // of the round, ns of CLOCK_MONOTONIC
	numbers     map[uint64]uint8 // see opened.eventNumbers
	notInKernel error
	kernelPart  []uint64 // see chainPart
	words       []uint64 // see Table.hash
	insns       []uint64 // see instructions
}

// part is what Take returns.
type part struct {
	table   *Table
	comms   comms
	samples []Sample
	mains   map[int32]string  // see Profile.Mains
	made    []*symbols.Symbol // see Profile.Made
	counts  Counts
	began   time.Time
	ended   time.Time // zero while Run has not returned
}

// newPart returns one that counts in a table.
func newPart(t *Table) part { return part{table: t, mains: make(map[int32]string)} }

// unread says that mappings must be read from /proc, since records of them were lost.
type unread struct {
	pending bool
	after   time.Time // no earlier
}

// Open opens the events. If the target is a command, the calling thread must
// execute it: see runtime.LockOSThread.
func Open(opt Options) (*Session, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	opt.Target.children = childrenOf(opt.Target.PIDs)
	s := &Session{opt: opt, tracker: newTracker(opt.Objects), labeler: newLabeler(opt.Labels), clock: newClock(),
		part: newPart(newTable())}
	user := opt.kernelForbidden()
	k, err := s.loadKernel(user)
	if err != nil {
		return nil, err
	}
	if err := s.openEvents(user, k); err != nil {
		if k != nil {
			k.close()
		}
		return nil, err
	}
	if opt.Places != nil {
		s.tracker.files.places = opt.Places
	}
	if opt.Raw != nil {
		s.tracker.onMap, s.tracker.onComm = opt.Raw.mapping, opt.Raw.comm
	}
	return s, nil
}

// openEvents opens the events, whose stacks come from the kernel, or from copies if k is nil.
func (s *Session) openEvents(user bool, k *inKernel) (err error) {
	opt := &s.opt
	if s.open, err = opt.open(user, k != nil); err != nil {
		return err
	}
	s.rings, s.pace = newReader(s.open), newPace(opt, s.open.rings)
	base := newCopies(opt, s.open)
	s.stacks = base
	if s.numbers, err = s.open.eventNumbers(); err == nil && opt.Raw != nil {
		err = opt.Raw.start(s.open, opt.events())
	}
	if err == nil && k != nil {
		err = k.attach(s, base)
	}
	if err != nil {
		s.open.close()
	}
	return err
}

// loadKernel returns what unwinds in the kernel, if that is wanted and possible; else nil.
func (s *Session) loadKernel(user bool) (k *inKernel, err error) {
	opt := &s.opt
	defer func() {
		for _, e := range opt.events() {
			e.hooked = e.hooked && k != nil
		}
	}()
	if opt.Settings.Unwind == Copies || opt.Tables == nil {
		return nil, nil
	}
	s.notInKernel = errRaw
	switch {
	case user:
		s.notInKernel = bpfunwind.ErrRights
	case opt.Raw == nil && opt.Settings.Copy > 0:
		if k, s.notInKernel = newInKernel(opt); k != nil && opt.Settings.Grow > 0 && opt.Target.All {
			opt.Settings.Copy = min(opt.Settings.Copy, rareCopy)
		}
	}
	if s.notInKernel != nil && opt.Settings.Unwind == KernelToo {
		return nil, fmt.Errorf("--unwind=kernel: %w", s.notInKernel)
	}
	return k, nil
}

// rareCopy is how many bytes of stacks are copied of the whole system where the kernel unwinds: copies are of programs
// that have just begun, and of code made at run time. Of 42 of the former one needed more than 8 KB, of 5,541 stacks of
// node 7. Deep programs have a few copies at their start, which one recording alone may want whole.
const rareCopy = 8 << 10

// errRaw says why a recording for perf is unwound in copies.
var errRaw = errors.New("a perf.data file has copies of stacks, or chains of them")

// NotInKernel says why stacks are not unwound in the kernel; nil: they are, or that was not wanted.
func (s *Session) NotInKernel() error { return s.notInKernel }

// UserOnly reports whether kernel code is not sampled, for lack of rights.
func (s *Session) UserOnly() bool { return s.open.user }

// Refused returns how many threads of child processes are not recorded, as this user may not.
func (s *Session) Refused() int { return s.open.samples.refused }

// RingBytes returns the size of a CPU's ring in bytes, which may be less than
// requested.
func (s *Session) RingBytes() int { return s.open.rings }

// FillTime returns how long a ring takes to fill with copies as long as they are now; 0: that is not known. Run's each
// and what unwinds may call it.
func (s *Session) FillTime() time.Duration {
	return fillTime(time.Duration(s.pace.period), s.open.rings, s.stacks.size())
}

// Start enables the events, unless the command's execution does. Run then reads what the processes have already mapped.
func (s *Session) Start() error {
	s.part.began = time.Now()
	t := &s.opt.Target
	if !t.All && len(t.PIDs) == 0 {
		return nil
	}
	for _, st := range slices.Backward(s.open.streams()) {
		if st == &s.open.long {
			continue // not yet
		}
		for _, e := range st.all {
			if err := e.Enable(); err != nil {
				return err
			}
		}
	}
	for _, pid := range slices.Concat(t.PIDs, t.children) {
		s.unlearnt = append(s.unlearnt, int32(pid))
		s.stacks.started(int32(pid))
	}
	if t.All {
		var err error
		if s.unlearnt, err = procfs.Processes(); err != nil {
			return err
		}
	}
	return nil
}

// learn reads what processes had mapped at the start, for a while: rings fill meanwhile. A process that is sampled
// before its turn is read at its first sample.
func (s *Session) learn() {
	const while = 2 * time.Millisecond
	for begin := time.Now(); len(s.unlearnt) > 0 && time.Since(begin) < while; s.unlearnt = s.unlearnt[1:] {
		pid := s.unlearnt[0]
		if !s.tracker.process(pid).known {
			s.tracker.readProcess(pid)
		}
		s.tracker.readThreads(pid)
	}
}

// Run counts samples until done is closed. It locks its thread. each, which may be nil, is
// called after each round.
func (s *Session) Run(done <-chan struct{}, each func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	usual, restore, err := s.priority()
	if err != nil {
		return err
	}
	defer restore()
	started := false
	end := time.Now().Add(startTime)
	wake, err := s.wakeAt(done)
	if err != nil {
		return err
	}
	defer unix.Close(wake)
	// The default, 50 us, is as long as the stacks of some programs stay the same.
	unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0)
	wait, blind := leastMap, time.Duration(0)
	polled := append(s.rings.polled, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
	for {
		select {
		case <-done:
			err := s.open.each((*perfevent.Event).Disable)
			s.part.ended = time.Now()
			if errors.Is(err, unix.ESRCH) {
				err = nil
			}
			err = errors.Join(err, s.round(^uint64(0)))
			if now, clockErr := s.clock.now(); s.opt.Event.blocked && clockErr == nil {
				s.allBack(now)
			}
			return err
		default:
		}
		if !started && len(s.unlearnt) == 0 && time.Now().After(end) {
			started = true
			usual()
		}
		if s.pace.slow && wait == calmWait && started {
			sleep(done, wait)
		} else if err := errors.Join(waitFor(polled[len(polled)-1:], blind), waitFor(polled, wait-blind)); err != nil {
			return err
		}
		// What has happened before another thing is in a ring by now if that is: the clock is
		// read first.
		now, err := s.clock.now()
		if err != nil {
			return err
		}
		if err := s.round(now); err != nil {
			return err
		}
		s.learn()
		wait, blind = s.stacks.wait(s.pace.wait(now))
		if len(s.unlearnt) > 0 {
			wait, blind = 0, 0 // a negative time ended recordings of many processes
		}
		if each != nil {
			each()
		}
	}
}

// sleep waits for a time, or until done is closed. A system call would wake Go's monitor thread when it returns, which
// took a seventh of the recorder's time; but a thread of ordinary priority ends this wait.
func sleep(done <-chan struct{}, wait time.Duration) {
	select {
	case <-done:
	case <-time.After(wait):
	}
}

// waitFor waits until a ring asks to be read, or for a time.
func waitFor(polled []unix.PollFd, wait time.Duration) error {
	timeout := unix.NsecToTimespec(wait.Nanoseconds())
	var err error
	if wait >= calmWait {
		_, err = unix.Ppoll(polled, &timeout, nil)
	} else if _, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(polled))),
		uintptr(len(polled)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0, 0); errno != 0 {
		// Go's scheduler does not see this call: it would take this thread's place away, and its monitor, awake for each such
		// call, took a third of the recorder's time. What stops the thread, such as a garbage collection, interrupts the
		// call.
		err = errno
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

// startTime is how long the reader has real-time priority, if it may, while it learns what runs: on a busy machine,
// rings of seconds fill before it has had a tenth of a second. Nice values do not count among the groups of
// sched_autogroup.
const startTime = 3 * time.Second

// priority gives the thread that reads the rings real-time priority, if it may, and for later lets it go first among
// others. usual ends the former; restore ends both.
func (s *Session) priority() (usual, restore func(), err error) {
	const thisThread, first, offset = 0, -20, 20
	nothing := func() {}
	was, err := unix.Getpriority(unix.PRIO_PROCESS, thisThread) // the system call returns 20 - nice
	nice := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: first}
	restore = func() {
		nice.Nice = int32(offset - was)
		unix.SchedSetAttr(thisThread, &nice, 0)
	}
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	switch refused := cmp.Or(err, unix.SchedSetAttr(thisThread, &fifo, 0)); {
	case refused != nil && s.opt.Settings.Realtime:
		return nil, nil, fmt.Errorf("real-time priority: %w (it needs CAP_SYS_NICE)", refused)
	case refused == nil && s.opt.Settings.Realtime:
		return nothing, restore, nil
	case refused == nil:
		return func() { unix.SchedSetAttr(thisThread, &nice, 0) }, restore, nil
	case unix.SchedSetAttr(thisThread, &nice, 0) == nil:
		return nothing, restore, nil
	}
	return nothing, nothing, nil
}

// wakeAt returns an eventfd that becomes readable when done is closed.
func (s *Session) wakeAt(done <-chan struct{}) (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("eventfd: %w", err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) // fd may be closed, and its number in use again
	if err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("eventfd: %w", err)
	}
	go func() {
		<-done
		unix.Write(own, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		unix.Close(own)
	}()
	return fd, nil
}

// Take returns the counts since the last call. Call it from Run's callback, or after Run
// has returned.
func (s *Session) Take() *Profile {
	ended := s.part.ended
	if ended.IsZero() {
		ended = time.Now()
	}
	weigh := uint64(0)
	if s.opt.Event.blocked {
		weigh = 1000 // a microsecond
	}
	p := &Profile{Weigh: weigh, Table: s.part.table, Samples: s.part.samples, Mains: s.part.mains, Counts: s.part.counts,
		Comms: s.part.comms.names, Made: s.part.made, Labels: s.labeler.take(),
		Event: s.opt.Event.stackfmt(s.opt.Settings.Frequency), Start: s.part.began, Duration: ended.Sub(s.part.began), Objects: s.opt.Objects}
	for _, e := range s.opt.More {
		p.More = append(p.More, e.stackfmt(s.opt.Settings.Frequency))
	}
	p.Counts.LostSide = s.open.side.newlyLost()
	lost := s.open.newlyLost()
	elsewhere, bytes := s.stacks.beside()
	lost[0] += elsewhere
	p.Counts.Bytes += bytes
	p.addLost(lost, s.opt.events())
	next := s.part.table.after()
	if len(next.frames) == 0 {
		met := s.tracker.files.frameAddrs
		s.part.table.metIn(nil, met)
		for o := range met {
			slices.Sort(met[o])
			met[o] = slices.Clone(slices.Compact(met[o]))
		}
	}
	s.part = newPart(next)
	s.part.began = time.Now()
	return p
}

// Size returns how many frames with their callers were met since the last Take, which is what the memory of
// a recording grows with.
func (s *Session) Size() int { return s.part.table.size() }

// Close closes the events and rings.
func (s *Session) Close() {
	s.open.close()
	s.stacks.close()
	s.tracker.files.Close()
}
