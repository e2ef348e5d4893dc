package stackfmt

import (
	"sync"

	"github.com/ehasm/ehasm/internal/profile/tally"
)

// numbers gives things numbers, so that a stack is a sequence of numbers. Several goroutines may use it. Numbers are
// in the order of the first use, which depends on goroutines: formats put them in another order before they write.
type numbers[K comparable, V any] struct {
	mu   sync.Mutex
	ids  map[K]uint32 // number by key
	list []V          // by number
}

// number returns the number of a key. first returns what is kept of a new one.
func (n *numbers[K, V]) number(k K, first func() V) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.ids[k]
	if !ok {
		if n.ids == nil {
			n.ids = make(map[K]uint32)
		}
		id = uint32(len(n.list))
		v := first()
		n.ids[k] = id
		n.list = append(n.list, v)
	}
	return id
}

// reordered returns a tally with other keys.
func reordered(from []*tally.Tally, rekey func(to, key []byte) []byte) *tally.Tally {
	to := new(tally.Tally)
	var b []byte
	for key, n := range tally.All(from...) {
		b = rekey(b[:0], key)
		to.Add(b, n)
	}
	return to
}
