//go:build linux && amd64

package bpfunwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// This file tells the kernel which code lies where: tables of objects, and for each process a sorted list of regions.
// The program finds them by the process's number; a number of a generation (view) tells walks that the list changed
// meanwhile.

// Loaded is an object's tables in the kernel.
type Loaded struct {
	parts []placed
	users int // regions that name it
}

// placed is a part in a chunk.
type placed struct {
	part // without its data
	block
}

// Mapping is code of a process.
type Mapping struct {
	Start, End uint64 // run-time addresses; multiples of a page
	Bias       uint64 // run-time addresses less link-time ones: the object's load bias
	Tables     *Loaded
}

// regions is what a process has, or several that were forked from it.
type regions struct {
	block
	number  int
	view    uint32
	objects []*Loaded
	users   int // processes
}

// AddTables puts an object's tables where programs find them. Make proves tables; those that were read from elsewhere
// mean what they mean.
func (u *Unwinder) AddTables(ts *Tables) (*Loaded, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	o := &Loaded{}
	for i := range ts.parts {
		p := placed{part: ts.parts[i]}
		var err error
		if p.block, err = u.memory.allocate(len(p.data)); err != nil {
			u.release(o)
			return nil, err
		}
		there := u.memory.bytes(p.block)[:len(p.data)]
		copy(there, p.data)
		if !bytes.Equal(there, p.data) {
			return nil, errors.New("the bytes of a BPF map are not those written")
		}
		p.data = nil
		o.parts = append(o.parts, p)
	}
	return o, nil
}

// RemoveTables frees an object's tables. No process may have it.
func (u *Unwinder) RemoveTables(o *Loaded) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if o.users > 0 {
		return fmt.Errorf("%d processes have the object", o.users)
	}
	u.release(o)
	return nil
}

func (u *Unwinder) release(o *Loaded) {
	for _, p := range o.parts {
		u.memory.release(p.block)
	}
	o.parts = nil
}

// MapProcess says which code a process has: all its mappings of objects, ascending, instead of those said before. Pcs
// in no mapping lie in no region; without mappings samples come with copies. The process's number is the thread group's
// in the first PID namespace.
//
// At an exec the kernel forgets the mappings at once, and walks no more before the next call. Otherwise, between a
// change of the mappings and the call samples are made with the old ones; a call with what was true before an exec is
// wrong until the next. So samples say with which view they were made: one is good if no mapping changed between the
// time that the view is of and the sample's.
func (u *Unwinder) MapProcess(pid uint32, mappings []Mapping) (view uint32, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	list, err := layOut(mappings)
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	r := &regions{number: len(list) / regionSize}
	if r.block, err = u.memory.allocate(max(len(list), regionSize)); err != nil {
		return 0, err
	}
	copy(u.memory.bytes(r.block), list)
	for _, m := range mappings {
		r.objects = append(r.objects, m.Tables)
		m.Tables.users++
	}
	// 0 stands for a process that has not begun, so the counter never gives it, also when it wraps.
	u.view++
	r.view = max(u.view, 1)
	if err := u.use(pid, r); err != nil {
		u.drop(r)
		return 0, err
	}
	return r.view, nil
}

// Fork gives a forked child the code and the view of its parent. It does nothing if the parent has none.
func (u *Unwinder) Fork(child, parent uint32) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r := u.processes[parent]; r != nil {
		return u.use(child, r)
	}
	return nil
}

// Forget ends the walks of a process.
func (u *Unwinder) Forget(pid uint32) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.maps.processes.Delete(pid)
	u.leave(pid)
	if errors.Is(err, ebpf.ErrKeyNotExist) { // not known, or after an exec
		return nil
	}
	return err
}

// use makes regions those of a process. Walks that are in progress with those before notice it, so that their memory is
// free.
func (u *Unwinder) use(pid uint32, r *regions) error {
	var value [viewSize]byte
	for i, n := range []uint32{r.chunk, r.offset, uint32(r.number), r.view} {
		binary.LittleEndian.PutUint32(value[4*i:], n)
	}
	if err := u.maps.processes.Put(pid, value[:]); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	r.users++
	u.leave(pid)
	u.processes[pid] = r
	return nil
}

// leave takes the regions from a process.
func (u *Unwinder) leave(pid uint32) {
	r := u.processes[pid]
	if r == nil {
		return
	}
	delete(u.processes, pid)
	if r.users--; r.users == 0 {
		u.drop(r)
	}
}

// drop frees regions.
func (u *Unwinder) drop(r *regions) {
	u.memory.release(r.block)
	for _, o := range r.objects {
		o.users--
	}
}

// layOut returns the regions of mappings as programs read them. They cover all pcs of the mappings.
func layOut(mappings []Mapping) (list []byte, err error) {
	end := uint64(0)
	for _, m := range mappings {
		switch {
		case m.Start < end || m.Start >= m.End || m.End > maxAddress:
			return nil, fmt.Errorf("mapping %#x-%#x: want ascending, not empty ones below %#x", m.Start, m.End,
				uint64(maxAddress))
		case m.Start%pageSize != 0 || m.Bias%pageSize != 0:
			return nil, fmt.Errorf("mapping at %#x with load bias %#x: want multiples of %d", m.Start, m.Bias, pageSize)
		case m.Tables == nil:
			return nil, fmt.Errorf("mapping at %#x without an object", m.Start)
		}
		end = m.End
		list = m.appendRegions(list)
		if len(list) > maxRegions*regionSize {
			return nil, fmt.Errorf("more than %d regions", maxRegions)
		}
	}
	return list, nil
}

// appendRegions appends the regions of a mapping. Pcs between parts have regions, too, of noChunk: a pc without a row
// is another outcome than one in no mapping.
func (m *Mapping) appendRegions(list []byte) []byte {
	addr := m.Start
	for i := range m.Tables.parts {
		p := &m.Tables.parts[i]
		// Addresses wrap where an object lies below its link-time ones, so offsets in the mapping are compared.
		start, end := p.start+m.Bias, p.end()+m.Bias
		if int64(end-addr) <= 0 || int64(start-m.End) >= 0 {
			continue
		}
		first := uint64(0) // page of the part
		if int64(start-addr) > 0 {
			list = appendRegion(list, addr, start, noChunk, 0, 0, 0)
			addr = start
		} else {
			first = (addr - start) >> pageShift
		}
		end = min(end, m.End)
		list = appendRegion(list, addr, end, p.chunk, p.offset+uint32(4*first), p.offset+uint32(p.entries),
			p.offset+uint32(p.records))
		addr = end
	}
	return appendRegion(list, addr, m.End, noChunk, 0, 0, 0)
}

// appendRegion appends a region; several, if it is larger than a region can be.
func appendRegion(list []byte, start, end uint64, chunk, index, entries, records uint32) []byte {
	const largest = 1<<32 - pageSize
	for start < end {
		size := min(end-start, largest)
		list = binary.LittleEndian.AppendUint64(list, start)
		for _, n := range []uint32{uint32(size), chunk, index, entries, records, 0} {
			list = binary.LittleEndian.AppendUint32(list, n)
		}
		start += size
	}
	return list
}
