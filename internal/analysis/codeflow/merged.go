package codeflow

// merged holds the states at the leaders of a group, where paths meet, and the leaders to interpret.
type merged struct {
	states []State
	basis  []Basis
	soft   []bool   // by state: it follows only from a label's
	softly bool     // the states that flow now follow from a label
	bases  []uint64 // the addresses at which bases arise
	work   []uint32 // leaders to interpret: a heap of offsets
	steps  int      // instructions interpreted
	limit  bool     // a bound was reached
}

func (m *merged) begin() {
	m.states, m.basis, m.soft = m.states[:0], m.basis[:0], m.soft[:0]
	m.bases, m.work = m.bases[:0], m.work[:0]
	m.steps, m.limit = 0, false
}

// baseID returns the number of the base that arises at pc. Bases after the 250th share one
// unknown base.
func (m *merged) baseID(pc uint64) uint8 {
	for i, b := range m.bases {
		if b == pc {
			return uint8(i + 1)
		}
	}
	if len(m.bases) < 250 {
		m.bases = append(m.bases, pc)
		return uint8(len(m.bases))
	}
	m.limit = true
	return 251
}

// enqueue adds an offset to the heap of leaders to interpret.
func (m *merged) enqueue(o uint32) {
	m.work = append(m.work, o)
	h := m.work
	for i := len(h) - 1; i > 0; {
		p := (i - 1) / 2
		if h[p] <= h[i] {
			break
		}
		h[p], h[i] = h[i], h[p]
		i = p
	}
}

// dequeue removes and returns the lowest offset, however often it was added.
func (m *merged) dequeue() uint32 {
	h := m.work
	o := h[0]
	for len(h) > 0 && h[0] == o {
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		for i := 0; ; {
			c := 2*i + 1
			if c >= len(h) {
				break
			}
			if c+1 < len(h) && h[c+1] < h[c] {
				c++
			}
			if h[i] <= h[c] {
				break
			}
			h[i], h[c] = h[c], h[i]
			i = c
		}
	}
	m.work = h
	return o
}
