//go:build linux && amd64

package record

import (
	"time"

	"github.com/ehasm/ehasm/internal/profile/mapped"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"

	"golang.org/x/sys/unix"
)

// reader reads the records of all rings in the order of time.
type reader struct {
	order   *perfevent.Order
	streams []*stream // by ring of order
	polled  []unix.PollFd
	decoder perfdata.Decoder
}

func newReader(op *opened) (r reader) {
	var rings []*perfevent.Ring
	for _, st := range []*stream{&op.side, &op.samples} {
		for _, ring := range st.rings {
			rings, r.streams = append(rings, ring), append(r.streams, st)
			r.polled = append(r.polled, unix.PollFd{Fd: int32(ring.Event().FD()), Events: unix.POLLIN})
		}
	}
	streams := r.streams
	r.order = perfevent.NewOrder(rings, func(ring int, rec []byte) uint64 { return streams[ring].event.Time(rec) })
	return r
}

// round handles all records that are earlier than limit.
func (s *Session) round(limit uint64) error {
	s.now = limit
	s.part.counts.Rounds++
	last := limit == ^uint64(0)
	unread, err := s.stacks.begin()
	if err != nil {
		return err
	}
	unread = s.rings.order.Refresh() > 0 || unread
	if !unread && !last && !s.unread.pending && time.Now().Before(s.releaseAt) {
		return nil // as in half of all rounds while stacks are refilled
	}
	begin := threadTime()
	for {
		ring, raw := s.rings.order.Next(limit)
		if raw == nil {
			break
		}
		s.stacks.arrive(s.rings.streams[ring].event.Time(raw))
		if s.rings.streams[ring] == &s.open.samples {
			s.part.counts.Bytes += uint64(len(raw))
		}
		s.handle(ring, raw)
		s.rings.order.Done(ring)
	}
	s.rings.order.Free()
	s.readLost(last)
	if err := s.stacks.end(limit); err != nil {
		return err
	}
	if !last {
		s.release(time.Now())
	}
	s.part.counts.Handling += threadTime() - begin
	if s.opt.Raw != nil {
		s.opt.Raw.round()
		return s.opt.Raw.err
	}
	return nil
}

// readLost reads the mappings of all processes if records of them were lost.
func (s *Session) readLost(last bool) {
	const parts = 10 // of the time, which programs that map and unmap all the time could take otherwise
	start := time.Now()
	if !s.unread.pending || !last && start.Before(s.unread.after) {
		return
	}
	s.part.counts.Reread++
	s.tracker.readAgain()
	s.unread = unread{after: start.Add(parts * time.Since(start))}
}

// threadTime returns the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// identify finds the file of a mapping, as the process sees it now, and adds its build-id to the record: the kernel has
// written that without.
func (s *Session) identify(m *perfdata.Mmap, raw []byte, when uint64) (mapped.Found, []byte) {
	mapping := mappingOf(m)
	f := s.tracker.files.Find(s.tracker.origin(m.PID), &mapping, s.clock.wall(when))
	if s.opt.Raw != nil {
		raw = rawWithBuildID(raw, f.BuildID())
	}
	return f, raw
}

// handle takes a record of a ring.
func (s *Session) handle(ring int, raw []byte) {
	from := s.rings.streams[ring]
	rec, err := s.rings.decoder.Decode(raw, from.event)
	if err != nil {
		s.part.counts.Bad++
		return
	}
	var file mapped.Found
	if m, ok := rec.(*perfdata.Mmap); ok && m.Type == perfdata.TypeMmap2 && m.Mode() == perfdata.ModeUser &&
		(m.Exec || s.opt.Raw != nil) {
		file, raw = s.identify(m, raw, from.event.Time(raw))
	}
	if r, ok := rec.(*perfdata.Sample); ok && s.foreign(r) {
		return
	}
	if r, ok := rec.(*perfdata.KSymbol); ok { // without those of before, a reader would ask kallsyms for none
		s.kernelCode.Apply(r.Code())
		return
	}
	if w := s.opt.Raw; w != nil {
		w.time = from.event.Time(raw) - 1 // of what is made up because of this record
		if _, sampled := rec.(*perfdata.Sample); !sampled || !w.Chains {
			w.record(raw)
		}
	}
	switch r := rec.(type) {
	case *perfdata.Sample:
		if !s.stacks.replaced(raw, r.Time) {
			s.sample(r, raw)
		}
	case *perfdata.Mmap:
		if r.Mode() == perfdata.ModeUser && s.tracker.mapped(r, &file) {
			s.pace.moving = from.event.Time(raw) + movingTime
		}
	case *perfdata.Comm:
		s.tracker.comm(r)
	case *perfdata.Task:
		s.tracker.task(r)
	case *perfdata.Lost:
		if from == &s.open.side {
			s.unread.pending = true
		} else {
			s.stacks.crowd()
		}
	case *perfdata.Other:
		switch r.Type {
		case perfdata.TypeThrottle:
			s.part.counts.Throttled++
		case perfdata.TypeSwitch:
			s.switched(raw, r.Misc)
		}
	}
}
