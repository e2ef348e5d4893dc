package perfdata

import (
	"cmp"
	"slices"
)

// item is a record that has been read and not yet delivered.
type item struct {
	time uint64
	seq  uint64 // among those of one time, the order of the file
	off  int64
	blk  *block
	raw  []byte
	ev   *Event
	data bool // not a record, but data that follow one
}

// queue sorts records by time. perf record writes the records of all CPUs in
// rounds; a record is never earlier than the last one of the round before the
// last, so the end of a round releases everything up to there
// (tools/perf/Documentation/perf.data-file-format.txt, "Ordering", and
// tools/perf/util/ordered-events.c).
type queue struct {
	ready   []item // to be delivered, from next on
	next    int
	pending []item
	bytes   int64 // of pending
	seq     uint64
	last    uint64 // latest time seen
	barrier uint64 // latest time seen when the last round ended
}

func (q *queue) add(it item) {
	q.seq++
	it.seq = q.seq
	q.pending = append(q.pending, it)
	q.bytes += int64(len(it.raw))
	q.last = max(q.last, it.time)
}

// deliver releases a record without a time before the pending ones.
func (q *queue) deliver(it item) {
	q.compact()
	q.ready = append(q.ready, it)
}

func (q *queue) pop() (item, bool) {
	if q.next == len(q.ready) {
		return item{}, false
	}
	it := q.ready[q.next]
	q.ready[q.next] = item{}
	q.next++
	return it, true
}

func (q *queue) compact() {
	if q.next == len(q.ready) {
		q.ready, q.next = q.ready[:0], 0
	}
}

// round handles the end of a round.
func (q *queue) round() {
	q.flush(q.barrier)
	q.barrier = q.last
}

// flush releases the records up to limit.
func (q *queue) flush(limit uint64) {
	byTime := func(a, b item) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(q.pending, byTime) {
		slices.SortFunc(q.pending, byTime)
	}
	n, _ := slices.BinarySearchFunc(q.pending, limit, func(it item, limit uint64) int {
		if it.time <= limit {
			return -1
		}
		return 1
	})
	q.release(n)
}

// release releases the first n pending records.
func (q *queue) release(n int) {
	q.compact()
	q.ready = append(q.ready, q.pending[:n]...)
	for _, it := range q.pending[:n] {
		q.bytes -= int64(len(it.raw))
	}
	rest := copy(q.pending, q.pending[n:])
	clear(q.pending[rest:])
	q.pending = q.pending[:rest]
}

// flushHalf releases the earlier half, although records that follow may be
// earlier still.
func (q *queue) flushHalf() {
	half := len(q.pending) / 2
	q.flush(0) // sorts
	q.release(min(half+1, len(q.pending)))
}
