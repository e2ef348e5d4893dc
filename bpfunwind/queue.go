//go:build linux && amd64

package bpfunwind

import (
	"cmp"
	"slices"
)

// This file merges the rings of all CPUs into the order of time, since a reader also has other events (mmap, fork) to
// put between.

// Queue holds samples until their turn: those of all CPUs in the order of their time.
type Queue struct {
	u       *Unwinder
	without Outcomes
	waiting []queued // in the order of time
	next    int      // the first of waiting that has not been taken
	frames  []uint64 // of waiting
}

// queued is a sample whose frames are elsewhere.
type queued struct {
	Sample             // without frames
	first, kernel, all int
}

// NewQueue returns a queue of what Read has, without samples of some outcomes.
func (u *Unwinder) NewQueue(without Outcomes) *Queue { return &Queue{u: u, without: without} }

// Fill reads the rings, without waiting. It reports whether there are samples to take.
func (q *Queue) Fill() (waiting bool, err error) {
	q.drop()
	err = q.u.Read(0, func(s *Sample) {
		if q.without.Has(s.Outcome) {
			return
		}
		w := queued{*s, len(q.frames), len(s.Kernel), len(s.Kernel) + len(s.User)}
		w.Kernel, w.User = nil, nil
		q.frames = append(append(q.frames, s.Kernel...), s.User...)
		q.waiting = append(q.waiting, w)
	})
	slices.SortStableFunc(q.waiting, func(a, b queued) int { return cmp.Compare(a.Time, b.Time) })
	return len(q.waiting) > 0, err
}

// Before calls f for the samples before a time. Their frames are valid until the next Fill. A sample that was written
// later than until, but earlier read from another CPU's ring, waits for its turn.
func (q *Queue) Before(until uint64, f func(*Sample)) {
	for ; q.next < len(q.waiting) && q.waiting[q.next].Time < until; q.next++ {
		w := &q.waiting[q.next]
		frames := q.frames[w.first:][:w.all]
		w.Kernel, w.User = frames[:w.kernel:w.kernel], frames[w.kernel:]
		f(&w.Sample)
	}
}

// drop forgets the samples that were taken.
func (q *Queue) drop() {
	q.waiting, q.next = slices.Delete(q.waiting, 0, q.next), 0
	all := q.frames
	if q.frames = q.frames[:0]; len(q.waiting) > 0 {
		q.frames = nil // theirs may be anywhere in it
	}
	for i := range q.waiting {
		w := &q.waiting[i]
		first := len(q.frames)
		q.frames = append(q.frames, all[w.first:][:w.all]...)
		w.first = first
	}
}
