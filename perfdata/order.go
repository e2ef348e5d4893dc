package perfdata

import (
	"cmp"
	"slices"
)

// item is a record that has been read and not yet delivered.
type item struct {
	time uint64 // ns of the recording's clock; 0: none
	seq  uint64 // among those of one time, the order of the file
	off  int64  // offset of the record in its file
	blk  *block // block that raw lies in; the item has a reference
	raw  []byte // with its header
	ev   *Event // may be nil, except for samples
	data bool   // not a record, but data that follow one
}

// queue sorts records by time. perf record writes the records of all CPUs in
// rounds; a record is never earlier than the last one of the round before the
// last, so the end of a round releases everything up to there
// (tools/perf/Documentation/perf.data-file-format.txt, "Ordering", and
// tools/perf/util/ordered-events.c).
type queue struct {
	ready   []item // to be delivered, from next on
	next    int    // index of the next one in ready
	pending []item // in the order of the file, up to the next flush
	bytes   int64  // of pending
	seq     uint64 // number of the last record
	last    uint64 // latest time seen
	barrier uint64 // latest time seen when the last round ended
}

// add queues a record with a time.
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

// pop takes the next record that may be delivered; false: none yet.
func (q *queue) pop() (item, bool) {
	if q.next == len(q.ready) {
		return item{}, false
	}
	it := q.ready[q.next]
	// References to blocks must not outlive the item.
	q.ready[q.next] = item{}
	q.next++
	return it, true
}

// compact reuses the memory of ready once all of it is delivered.
func (q *queue) compact() {
	if q.next == len(q.ready) {
		q.ready, q.next = q.ready[:0], 0
	}
}

// round handles the end of a round.
func (q *queue) round() {
	// Records of the next round may be as early as this round's latest, not earlier than the last
	// one's.
	q.flush(q.barrier)
	q.barrier = q.last
}

// flush releases the records up to limit.
func (q *queue) flush(limit uint64) {
	// Equal times keep the order of the file.
	byTime := func(a, b item) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(q.pending, byTime) {
		slices.SortFunc(q.pending, byTime)
	}
	// The number of records that are not later than limit.
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
	// Items beyond the end must not keep blocks alive.
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
