// Package radix sorts long lists of large elements by a number, such as the address where each
// begins. It sorts the indices, digit by digit from the lowest, and then moves each element once.
package radix

// digit is the number of bits that one pass sorts by.
const digit = 11 // 2,048 counters of 8 bytes fit the first-level cache

// Sort orders list by key; elements with equal keys stay in their order. It takes one pass for each 11 bits in which
// the keys differ, and moves each element once. It needs 32 bytes for each element meanwhile.
func Sort[E any](list []E, key func(*E) uint64) {
	order := sorted(list, key)
	for i := range order { // each cycle of moves, beginning with the element that is in the way
		first, to := list[i], i
		for order[to] != i {
			from := order[to]
			list[to], order[to] = list[from], to
			to = from
		}
		list[to], order[to] = first, to
	}
}

// entry is the key of an element, less the lowest of all, and its index.
type entry struct {
	key   uint64
	index int
}

// sorted returns the indices of the elements in ascending order of their keys.
func sorted[E any](list []E, key func(*E) uint64) []int {
	entries, to := make([]entry, len(list)), make([]entry, len(list))
	low, high := ^uint64(0), uint64(0)
	for i := range list {
		k := key(&list[i])
		entries[i] = entry{k, i}
		low, high = min(low, k), max(high, k)
	}
	for i := range entries { // fewer digits then differ
		entries[i].key -= low
	}
	for shift := 0; shift < 64 && (high-low)>>shift > 0; shift += digit {
		pass(to, entries, shift)
		entries, to = to, entries
	}
	order := make([]int, len(entries))
	for i, e := range entries {
		order[i] = e.index
	}
	return order
}

// pass copies entries into to, sorted by the digit at shift and else in the order that they have.
func pass(to, entries []entry, shift int) {
	var next [1 << digit]int // where the next entry with this digit goes
	for _, e := range entries {
		next[e.key>>shift%(1<<digit)]++
	}
	place := 0
	for d, n := range next {
		next[d] = place
		place += n
	}
	for _, e := range entries {
		slot := &next[e.key>>shift%(1<<digit)]
		to[*slot] = e
		*slot++
	}
}
