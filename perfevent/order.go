//go:build linux && amd64

package perfevent

// Order reads several rings as one, in the order of their records' times.
type Order struct {
	rings []*Ring
	time  func(ring int, record []byte) uint64
	next  []uint64 // time of the record that is next in each ring
	ready []bool   // whether next is known
}

// NewOrder puts rings in order; time tells when a record of the ring of that index was
// written. The records of one ring are in order but for the few that an interrupt has
// written into the middle of others' writing.
func NewOrder(rings []*Ring, time func(ring int, record []byte) uint64) *Order {
	return &Order{rings: rings, time: time, next: make([]uint64, len(rings)), ready: make([]bool, len(rings))}
}

// Refresh takes notice of what the kernel has written to the rings, and returns how many
// bytes there are to be read.
func (o *Order) Refresh() int {
	n := 0
	for _, r := range o.rings {
		n += r.Refresh()
	}
	return n
}

// Next returns the earliest record that is earlier than limit, and the index of its ring;
// nil: there is none. It is valid up to Done.
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
		if o.next[i] < limit && (best < 0 || o.next[i] < o.next[best]) {
			best = i
		}
	}
	if best < 0 {
		return -1, nil
	}
	return best, o.rings[best].Peek()
}

// Done gives up the record that Next has returned from the ring. Memory goes back to the
// kernel when there is a worthwhile piece of it.
func (o *Order) Done(ring int) {
	const parts = 16 // of a ring: each time costs the writer a line of its cache
	r := o.rings[ring]
	r.Next()
	o.ready[ring] = false
	if r.unfreed() >= r.Size()/parts {
		r.Free()
	}
}

// Free gives the memory of all that has been read back to the kernel.
func (o *Order) Free() {
	for _, r := range o.rings {
		r.Free()
	}
}
