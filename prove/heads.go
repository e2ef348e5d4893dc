package prove

// heads holds the addresses that lookups lead to, numbered as they are found.
type heads struct {
	list  []headOf
	slots []int32 // a hash table with linear probing; 0 is free, else a number plus 1
}

// headOf is such an address and a row that it has been proven for.
type headOf struct {
	addr   uint64 // of the file
	row    int32  // or noRow
	hasRow bool   // row is set
}

// of returns the number of an address. The first half of the slots stays free, so that probing is
// short.
func (h *heads) of(head uint64) int32 {
	if 2*len(h.list) >= len(h.slots) {
		h.slots = make([]int32, max(1024, 2*len(h.slots)))
		for i := range h.list {
			*h.slot(h.list[i].addr) = int32(i) + 1
		}
	}
	s := h.slot(head)
	if *s == 0 {
		h.list = append(h.list, headOf{addr: head})
		*s = int32(len(h.list))
	}
	return *s - 1
}

// slot returns where an address is in the hash table, or where it would go.
func (h *heads) slot(head uint64) *int32 {
	for i := head * 0x9e3779b97f4a7c15 >> 32; ; i++ { // Fibonacci hashing: 2^64 divided by the golden ratio
		s := &h.slots[i&uint64(len(h.slots)-1)]
		if *s == 0 || h.list[*s-1].addr == head {
			return s
		}
	}
}
