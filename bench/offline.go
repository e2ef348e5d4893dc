package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"ehasm/abi"
	"ehasm/ehelf"
)

// offline walks captured stacks with package ehelf.
type offline struct {
	tables    *tables
	objects   []*ehelf.Object // by module; nil: none
	snapshots []snapshot
	buf       []uint64
	flush     []byte
}

// newOffline loads the eh_elfs of one variant.
func newOffline(s *session, variant string) (*offline, error) {
	o := &offline{tables: &s.tables, snapshots: s.snapshots, buf: make([]uint64, 4096), flush: make([]byte, 48<<20)}
	for i, m := range s.Modules {
		if s.tables.table[i] == nil {
			o.objects = append(o.objects, nil)
			continue
		}
		obj, err := ehelf.Open(filepath.Join(s.dir, "eh_elfs", variant, filepath.Base(m.Path)+abi.Suffix))
		if err != nil {
			return nil, fmt.Errorf("ehelf: %w", err)
		}
		o.objects = append(o.objects, obj)
	}
	return o, nil
}

// walk returns the number of pcs it put into o.buf.
func (o *offline) walk(s *snapshot) int {
	regs := s.Regs
	mem := ehelf.Memory{Lo: regs.Reg[abi.RSP], Bytes: s.Memory}
	n, last := 0, 0
	for n < len(o.buf) {
		pc := regs.Reg[abi.RIP]
		if regs.Exact == 0 {
			pc--
		}
		if m := &o.tables.modules[last]; pc < m.Start || pc >= m.End {
			i, ok := o.tables.find(pc)
			if !ok {
				break
			}
			last = i
		}
		if o.objects[last] == nil {
			break
		}
		k := o.objects[last].Walk(&regs, &mem, o.tables.modules[last].Bias, o.buf[n:])
		n += k
		if k == 0 || regs.Status != abi.StatusNoInfo && regs.Status != abi.StatusOK {
			break
		}
	}
	return n
}

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
	const batches, batchNS = 5, 20000
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
	for _, id := range ids {
		s := &o.snapshots[id]
		if mode == "cold" {
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
	begin := time.Now()
	f()
	reps := max(1, int(batchNS/float64(time.Since(begin)+1)))
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
