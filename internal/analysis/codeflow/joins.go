package codeflow

// This file holds the work list of the flow. Lowest addresses first is nearly reverse postorder for compilers' code, so
// most states are complete before they flow on.

// joins holds the states at the leaders of a group, where paths meet, and the leaders to interpret.
type joins struct {
	states []State
	basis  []Basis
	soft   []bool   // by state: it follows only from a label's
	work   []uint32 // leaders to interpret: a heap of offsets
}

func (j *joins) begin() {
	j.states, j.basis, j.soft, j.work = j.states[:0], j.basis[:0], j.soft[:0], j.work[:0]
}

// enqueue adds an offset to the heap of leaders to interpret.
func (j *joins) enqueue(o uint32) {
	j.work = append(j.work, o)
	h := j.work
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
func (j *joins) dequeue() uint32 {
	h := j.work
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
	j.work = h
	return o
}
