//go:build linux && amd64

package perfevent

// Order merges several rings, in the order of their records' times: a mapping must be known before the samples in it,
// and a thread moves between CPUs. It is for one goroutine.
type Order struct {
	rings []*Ring
	time  func(ring int, record []byte) uint64
	next  []uint64 // time of the record that is next in each ring
	ready []bool   // whether next is known
}

// NewOrder returns an Order of rings; time returns when a record of the ring with that
// index was written. The records of a ring are in order, except the few that an
// interrupt wrote while another was being written.
func NewOrder(rings []*Ring, time func(ring int, record []byte) uint64) *Order {
	return &Order{rings: rings, time: time, next: make([]uint64, len(rings)), ready: make([]bool, len(rings))}
}

// Refresh reads how far the kernel has written to the rings, and returns the number of unread bytes. Records that are
// written afterwards wait for the next call, so a round has an end.
func (o *Order) Refresh() int {
	n := 0
	for _, r := range o.rings {
		n += r.Refresh()
	}
	return n
}

// future is how far behind limit a record's time cannot be, in ns. Linux up to 6.18 makes records of code in the kernel
// too long where several events take them: what is read as their time is whatever the ring held. They would stop all
// behind them.
const future = 10e9

// Next returns the earliest record before limit, which has just been the present, and the index of its ring; the record
// is nil if there is none. It is valid until Done.
func (o *Order) Next(limit uint64) (int, []byte) {
	best := -1
	for i, r := range o.rings {
		if !o.ready[i] {
			b := r.Peek()
			if b == nil {
				continue
			}
			o.next[i], o.ready[i] = o.time(i, b), true
		}
		if ahead := o.next[i] - limit; o.next[i] > limit && ahead > future {
			o.next[i] = 0
		}
		if o.next[i] < limit && (best < 0 || o.next[i] < o.next[best]) {
			best = i
		}
	}
	if best < 0 {
		return -1, nil
	}
	return best, o.rings[best].Peek()
}

// Done releases the record that Next returned from the ring. The kernel gets memory back
// in pieces of a worthwhile size.
func (o *Order) Done(ring int) {
	const parts = 16 // of a ring: each update costs the writer a cache line
	r := o.rings[ring]
	r.Next()
	o.ready[ring] = false
	if r.unfreed() >= r.Size()/parts {
		r.Free()
	}
}

// Free gives the memory of all records read back to the kernel.
func (o *Order) Free() {
	for _, r := range o.rings {
		r.Free()
	}
}
