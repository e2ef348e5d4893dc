//go:build linux && amd64

package record

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

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
	opt     Options
	open    *opened
	order   *perfevent.Order
	streams []*stream // by ring of order
	polled  []unix.PollFd
	tracker *tracker
	decoder perfdata.Decoder
	walker  unwind.Walker
	pcs     []uint64
	kernel  []uint64
	guesses []int    // which of pcs were found by the frame pointer
	words   []uint64 // see Table.hash
	refill  refiller
	pace    pace
	clock   clock

	table     *Table
	samples   []Sample
	counts    Counts
	lost      uint64 // up to the last Take
	lostSide  uint64
	began     time.Time
	muted     map[uint64]bool // numbers of the events that were replaced by longer copies; nil: none
	mutedAt   uint64
	lostMaps  bool      // mappings were lost
	readable  time.Time // when they may be read again
	releaseAt time.Time // see release
	now       uint64    // of the round, ns of CLOCK_MONOTONIC
	ahead     []ahead   // by ring
	current   *ahead    // of the record's ring
	extent    uint64    // bytes of the last stack, from its stack pointer to the last frame
	copied    int       // bytes of a copy that has not all of a stack; of this sample
	walked    uint64    // stacks
	short     uint64    // those that stayed incomplete because the copy was too short
	grown     bool      // copies are as long as Options.Grow, or were
	crowded   bool      // samples were lost since the last round
	shrunk    bool      // copies are as long as Options.Copy for good
}

// Counts holds what a Session counts besides stacks.
type Counts struct {
	Samples   uint64                   `json:"samples"`
	Lost      uint64                   `json:"lost"`         // samples that the kernel had no room for
	LostSide  uint64                   `json:"lost_records"` // records of what processes do
	Throttled uint64                   `json:"throttled"`    // times that the kernel stopped sampling for a while
	Bad       uint64                   `json:"bad_records"`
	Unwound   uint64                   `json:"stacks_unwound"`
	Frames    uint64                   `json:"user_frames"`
	Ends      [unwind.NumCauses]uint64 `json:"-"`
	Kernel    uint64                   `json:"samples_of_kernel_threads"`
	NoCopy    uint64                   `json:"samples_without_stack"` // in execve, or exiting
	Compat    uint64                   `json:"samples_of_32_bit_code"`
	Guessed   uint64                   `json:"stacks_by_frame_pointer"`
	Cut       uint64                   `json:"stacks_longer_than_their_copy"`
	FromLast  uint64                   `json:"refilled_from_last_stack"`
	FromLater uint64                   `json:"refilled_from_memory"`
	Changed   uint64                   `json:"not_refilled_memory_changed"`
	Unproven  uint64                   `json:"not_refilled_no_proof"` // less than two callers in the copy
	Long      uint64                   `json:"samples_with_longer_copies"`
	Reread    uint64                   `json:"mappings_read_again"`
	Waited    uint64                   `json:"preempted_ns,omitempty"` // off the processor, but not blocked
	Handling  time.Duration            `json:"handling_ns"`            // processor time spent on records
	Rounds    uint64                   `json:"rounds"`
	Released  uint64                   `json:"released_files"` // that no process had mapped any more
}

// add adds what another part of a recording has counted.
func (c *Counts) add(d *Counts) {
	for _, f := range []struct {
		to   *uint64
		from uint64
	}{
		{&c.Samples, d.Samples}, {&c.Lost, d.Lost}, {&c.LostSide, d.LostSide}, {&c.Throttled, d.Throttled}, {&c.Bad, d.Bad},
		{&c.Unwound, d.Unwound}, {&c.Frames, d.Frames}, {&c.Kernel, d.Kernel}, {&c.NoCopy, d.NoCopy}, {&c.Compat, d.Compat},
		{&c.Guessed, d.Guessed}, {&c.Cut, d.Cut}, {&c.FromLast, d.FromLast}, {&c.FromLater, d.FromLater}, {&c.Changed, d.Changed}, {&c.Unproven, d.Unproven}, {&c.Long, d.Long},
		{&c.Reread, d.Reread}, {&c.Rounds, d.Rounds}, {&c.Released, d.Released}, {&c.Waited, d.Waited},
	} {
		*f.to += f.from
	}
	for i, n := range d.Ends {
		c.Ends[i] += n
	}
	c.Handling += d.Handling
}

// Whole returns the fraction of stacks that are complete.
func (c *Counts) Whole() float64 {
	return float64(c.Ends[unwind.Outermost]+c.Ends[unwind.OutermostGuessed]) / float64(max(c.Unwound, 1))
}

// Open opens the events. If the target is a command, the calling thread must
// execute it: see runtime.LockOSThread.
func Open(opt Options) (*Session, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	opt.Target.children = childrenOf(opt.Target.PIDs)
	op, err := opt.open()
	if err != nil {
		return nil, err
	}
	s := &Session{opt: opt, open: op, tracker: newTracker(opt.Objects), pcs: make([]uint64, opt.MaxStack), table: newTable(), pace: newPace(&opt), clock: newClock()}
	s.walker.FramePointers, s.walker.OnObject = opt.Pointers, opt.OnObject
	var rings []*perfevent.Ring
	for _, st := range []*stream{&op.side, &op.samples} {
		for _, r := range st.rings {
			rings, s.streams = append(rings, r), append(s.streams, st)
			s.polled = append(s.polled, unix.PollFd{Fd: int32(r.Event().FD()), Events: unix.POLLIN})
		}
	}
	s.ahead = make([]ahead, len(rings))
	s.order = perfevent.NewOrder(rings, func(ring int, rec []byte) uint64 { return s.streams[ring].event.Time(rec) })
	if opt.Raw != nil {
		if err := opt.Raw.start(op, opt.Event.Name); err != nil {
			op.close()
			return nil, err
		}
		s.tracker.onMap, s.tracker.onComm = opt.Raw.mapping, opt.Raw.comm
	}
	return s, nil
}

// UserOnly reports whether kernel code is not sampled, for lack of rights.
func (s *Session) UserOnly() bool { return s.open.user }

// Refused returns how many threads of child processes are not recorded, as this user may not.
func (s *Session) Refused() int { return s.open.samples.refused }

// RingBytes returns the size of a CPU's ring in bytes, which may be less than
// requested.
func (s *Session) RingBytes() int { return s.open.rings }

// Start enables the events, unless the command's execution does, and reads what the
// processes have already mapped.
func (s *Session) Start() error {
	s.began = time.Now()
	t := &s.opt.Target
	if !t.All && len(t.PIDs) == 0 {
		return nil
	}
	for _, st := range []*stream{&s.open.side, &s.open.samples} {
		for _, e := range st.all {
			if err := e.Enable(); err != nil {
				return err
			}
		}
	}
	var list []int32
	for _, pid := range slices.Concat(t.PIDs, t.children) {
		list = append(list, int32(pid))
	}
	if t.All {
		var err error
		if list, err = procfs.Processes(); err != nil {
			return err
		}
	}
	for _, pid := range list {
		s.tracker.readProcess(pid)
		s.tracker.readThreads(pid)
	}
	return nil
}

// Run counts samples until done is closed. It locks its thread. each, which may be nil, is
// called after each round.
func (s *Session) Run(done <-chan struct{}, each func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore, err := s.priority()
	if err != nil {
		return err
	}
	defer restore()
	wake, err := s.wakeAt(done)
	if err != nil {
		return err
	}
	defer unix.Close(wake)
	// The default, 50 us, is as long as the stacks of some programs stay the same.
	unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0)
	wait := mapWait
	polled := append(s.polled, unix.PollFd{Fd: int32(wake), Events: unix.POLLIN})
	for {
		select {
		case <-done:
			err := s.open.each((*perfevent.Event).Disable)
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
		timeout := unix.NsecToTimespec(wait.Nanoseconds())
		if _, err := unix.Ppoll(polled, &timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %w", err)
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
		wait = s.pace.wait(now)
		if each != nil {
			each()
		}
	}
}

// priority gives the thread that reads the rings real-time priority, if requested, and otherwise lets it go first among
// others as far as this user may. The result restores the latter.
func (s *Session) priority() (restore func(), err error) {
	if !s.opt.Realtime {
		const thisThread, first, offset = 0, -20, 20
		was, err := unix.Getpriority(unix.PRIO_PROCESS, thisThread) // the system call returns 20 - nice
		if err != nil || unix.Setpriority(unix.PRIO_PROCESS, thisThread, first) != nil {
			return func() {}, nil
		}
		return func() { unix.Setpriority(unix.PRIO_PROCESS, thisThread, offset-was) }, nil
	}
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, &a, 0); err != nil {
		return nil, fmt.Errorf("real-time priority: %w (it needs CAP_SYS_NICE)", err)
	}
	return func() {}, nil
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

// round handles all records that are earlier than limit.
func (s *Session) round(limit uint64) error {
	begin := threadTime()
	s.now = limit
	s.order.Refresh()
	for {
		ring, raw := s.order.Next(limit)
		if raw == nil {
			break
		}
		s.current = &s.ahead[ring]
		s.fetchNext(ring, raw)
		s.handle(raw, s.streams[ring])
		s.order.Done(ring)
	}
	s.order.Free()
	if start := time.Now(); s.lostMaps && (limit == ^uint64(0) || !start.Before(s.readable)) {
		const parts = 10 // of the time, which programs that map and unmap all the time could take otherwise
		s.lostMaps = false
		s.counts.Reread++
		s.tracker.readAgain()
		s.readable = start.Add(parts * time.Since(start))
	}
	if err := s.growCopies(); err != nil {
		return err
	}
	if limit != ^uint64(0) {
		s.release(time.Now())
	}
	s.counts.Rounds++
	s.counts.Handling += threadTime() - begin
	if s.opt.Raw != nil {
		s.opt.Raw.round()
		return s.opt.Raw.err
	}
	return nil
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// identify adds the build-id to a mapping that the kernel has written without, and returns the record with it. The
// record is of the file as the process sees it now.
func (s *Session) identify(m *perfdata.Mmap, raw []byte) []byte {
	id := s.tracker.fileID(m.PID, procfs.Mapping{Start: m.Addr, End: m.Addr + m.Len, Name: string(m.Name), Inode: m.Inode})
	if s.opt.Raw != nil {
		raw = rawWithBuildID(raw, id)
	}
	m.BuildID = id
	return raw
}

// handle takes a record.
func (s *Session) handle(raw []byte, from *stream) {
	rec, err := s.decoder.Decode(raw, from.event)
	if err != nil {
		s.counts.Bad++
		return
	}
	if m, ok := rec.(*perfdata.Mmap); ok && m.Type == perfdata.TypeMmap2 && m.Mode() == perfdata.ModeUser && from.attr.Bits&perfevent.BitBuildID == 0 {
		raw = s.identify(m, raw)
	}
	if w := s.opt.Raw; w != nil {
		w.time = from.event.Time(raw) - 1 // of what is made up because of this record
		w.record(raw)
	}
	switch r := rec.(type) {
	case *perfdata.Sample:
		if !s.isMuted(raw, r.Time) {
			s.sample(r)
		}
	case *perfdata.Mmap:
		if r.Mode() == perfdata.ModeUser {
			s.pace.moving = from.event.Time(raw) + movingTime
			s.tracker.mapped(r)
		}
	case *perfdata.Comm:
		s.tracker.comm(r)
	case *perfdata.Task:
		s.tracker.task(r)
	case *perfdata.Lost:
		if from == &s.open.side {
			s.lostMaps = true
		} else {
			s.crowded = true
		}
	case *perfdata.Other:
		switch r.Type {
		case perfdata.TypeThrottle:
			s.counts.Throttled++
		case perfdata.TypeSwitch:
			s.switched(raw, r.Misc)
		}
	}
}

// Take returns the counts since the last call. Call it from Run's callback, or after Run
// has returned.
func (s *Session) Take() *Profile {
	c := s.counts
	lost, side := s.open.samples.lost()+s.open.long.lost(), s.open.side.lost()
	c.Lost, c.LostSide = lost-s.lost, side-s.lostSide
	s.lost, s.lostSide, s.counts = lost, side, Counts{}
	weigh := uint64(0)
	if s.opt.Event.blocked {
		weigh = 1000 // a microsecond
	}
	p := &Profile{Weigh: weigh, Table: s.table, Samples: s.samples, Counts: c, Comms: s.tracker.takeComms(), Event: s.opt.Event.stackfmt(),
		Start: s.began, Duration: time.Since(s.began), Objects: s.opt.Objects}
	next := s.table.after()
	if len(next.frames) == 0 {
		met := s.tracker.frameAddrs
		s.table.metIn(nil, met)
		for o := range met {
			slices.Sort(met[o])
			met[o] = slices.Clone(slices.Compact(met[o]))
		}
	}
	s.table, s.samples, s.began = next, nil, time.Now()
	return p
}

// Size returns how many frames with their callers were met since the last Take, which is what the memory of
// a recording grows with.
func (s *Session) Size() int { return s.table.size() }

// Close closes the events and rings.
func (s *Session) Close() {
	s.open.close()
	s.tracker.close()
}
