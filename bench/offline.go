package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// offline walks captured stacks with package ehelf.
type offline struct {
	spans     ehelf.Spans
	snapshots []snapshot // by number, as the driver has them
	buf       []uint64   // of pcs; longer than any stack here
	flush     []byte     // written before cold walks
}

// newOffline loads the eh_elfs of one variant.
func newOffline(s *session, variant string) (*offline, error) {
	o := &offline{snapshots: s.snapshots, buf: make([]uint64, 4096), flush: make([]byte, s.Flush)}
	// Objects without a table have addresses, but no eh_elf.
	for i, m := range s.Modules {
		o.spans.Add(m.Start, m.End)
		if s.tables.table[i] == nil {
			continue
		}
		obj, err := ehelf.OpenUnchecked(filepath.Join(s.dir, "eh_elfs", variant, filepath.Base(m.Path)+abi.Suffix))
		if err != nil {
			return nil, fmt.Errorf("ehelf: %w", err)
		}
		o.spans.Set(i, obj, m.Bias)
	}
	return o, nil
}

// walk returns the number of pcs it put into o.buf.
func (o *offline) walk(s *snapshot) int {
	// A copy: the walk changes it.
	regs := s.Regs
	// The copy of the stack begins at rsp.
	mem := ehelf.Memory{Lo: regs.Reg[abi.RSP], Bytes: s.Memory}
	n, _ := o.spans.Walk(&regs, &mem, o.buf)
	return n
}

// pcs returns the frames of each stack, for the comparison with the reference.
func (o *offline) pcs(ids []int) [][]uint64 {
	var all [][]uint64
	for _, id := range ids {
		n := o.walk(&o.snapshots[id])
		all = append(all, slices.Clone(o.buf[:n]))
	}
	return all
}

// measure does what the driver's run command does.
func (o *offline) measure(ids []int, mode string) (m measurement) {
	const batches, batchNS = 5, 20000 // of 20 microseconds each, as the driver has them
	// In turn: one pass over all stacks is the unit.
	if mode == "turn" {
		pass := func() (frames int) {
			for _, id := range ids {
				frames += o.walk(&o.snapshots[id])
			}
			return frames
		}
		m.Frames = uint64(pass())
		m.NS = timeBatches(batches, 10*batchNS, func() { pass() })
		return m
	}
	// Else each stack by itself: again and again, or once after a flush.
	for _, id := range ids {
		s := &o.snapshots[id]
		if mode == "cold" {
			// One byte of each cache line, over more memory than the cache holds.
			for i := 0; i < len(o.flush); i += 64 {
				o.flush[i]++
			}
			begin := time.Now()
			n := o.walk(s)
			m.NS += float64(time.Since(begin))
			m.Frames += uint64(n)
			continue
		}
		m.Frames += uint64(o.walk(s))
		m.NS += timeBatches(batches, batchNS, func() { o.walk(s) })
	}
	return m
}

// timeBatches returns the median over batches of the ns that one call takes.
func timeBatches(batches int, batchNS float64, f func()) float64 {
	// One call says how many make a batch.
	begin := time.Now()
	f()
	reps := max(1, int(batchNS/float64(time.Since(begin)+1)))
	// Half a batch warms the caches.
	for range reps / 2 {
		f()
	}
	var t []float64
	for range batches {
		begin := time.Now()
		for range reps {
			f()
		}
		t = append(t, float64(time.Since(begin))/float64(reps))
	}
	slices.Sort(t)
	return t[len(t)/2]
}
