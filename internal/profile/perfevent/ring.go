//go:build linux && amd64

package perfevent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file reads rings: perf_event_open(2), "MMAP layout". The kernel writes at data_head, this process reads at
// data_tail and moves it to give memory back; both count bytes since the beginning and never wrap. Loads and stores of
// them are ordered with the data's, as package atomic has it.

// maxRecord bounds the 16-bit size of a record.
const maxRecord = 1 << 16

// headerSize is the size of struct perf_event_header, in bytes.
const headerSize = 8

// Ring is the ring buffer shared with the kernel of the events that write to it. It may
// be used by one goroutine at a time.
type Ring struct {
	event   *Event
	mem     []byte                  // the page of control, then data
	data    []byte                  // of a power of two of bytes
	control *unix.PerfEventMmapPage // shared with the kernel
	head    uint64                  // as of Refresh
	tail    uint64                  // of what has been read
	freed   uint64                  // tail as the kernel knows it
	joined  []byte                  // a copy of a record that wraps around the ring's end
	current []byte                  // what Peek has returned; nil: nothing since Next
	damaged error                   // see Err
}

// Map makes a ring of size bytes, a power of two of pages, for an event. It counts as locked memory. It is mapped for
// writing, so the kernel does not overwrite what is not freed: samples are then lost, and counted.
func (e *Event) Map(size int) (*Ring, error) {
	page := os.Getpagesize()
	if size < page || bits.OnesCount(uint(size)) != 1 {
		return nil, fmt.Errorf("ring of %d bytes: want a power of two of at least a page", size)
	}
	mem, err := unix.Mmap(e.fd, 0, page+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, refused("mmap of a ring", err)
	}
	return &Ring{event: e, mem: mem, data: mem[page:], control: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0]))}, nil
}

// MapUpTo makes a ring of at most size bytes, halved until the kernel takes it, but of at least least bytes: a user
// without rights may lock 516 KB by default, and a smaller ring is better than none.
func (e *Event) MapUpTo(size, least int) (*Ring, error) {
	for {
		r, err := e.Map(size)
		if err == nil || size/2 < least || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
			return r, err
		}
		size /= 2
	}
}

// Size returns the size of the ring in bytes.
func (r *Ring) Size() int { return len(r.data) }

// Event returns the event that the ring was made for.
func (r *Ring) Event() *Event { return r.event }

// Refresh reads how far the kernel has written, and returns the number of unread bytes.
func (r *Ring) Refresh() int {
	if r.damaged == nil {
		r.head = atomic.LoadUint64(&r.control.Data_head)
	}
	return int(r.head - r.tail)
}

// Peek returns the next record, including its header, or nil if there is none up to the
// last Refresh. The record is valid until Free, or if it wraps around the ring's end,
// until the next Peek.
func (r *Ring) Peek() []byte {
	if r.current != nil || r.tail == r.head {
		return r.current
	}
	offset := r.tail & uint64(len(r.data)-1)
	size := uint64(binary.LittleEndian.Uint16(r.data[offset+6:])) // records are aligned to 8 bytes
	if size < headerSize || size > r.head-r.tail {
		r.damaged = fmt.Errorf("record of %d bytes, %d are left", size, r.head-r.tail)
		r.tail = r.head
		return nil
	}
	if offset+size <= uint64(len(r.data)) {
		r.current = r.data[offset : offset+size : offset+size]
		return r.current
	}
	if r.joined == nil {
		r.joined = make([]byte, maxRecord)
	}
	n := copy(r.joined, r.data[offset:])
	copy(r.joined[n:size], r.data)
	r.current = r.joined[:size]
	return r.current
}

// Next advances past the record that Peek returned.
func (r *Ring) Next() {
	r.tail += uint64(len(r.current))
	r.current = nil
}

// unfreed returns the number of bytes read and not yet freed.
func (r *Ring) unfreed() int { return int(r.tail - r.freed) }

// Free gives the memory of the records read back to the kernel.
func (r *Ring) Free() {
	if r.freed != r.tail {
		r.freed = r.tail
		atomic.StoreUint64(&r.control.Data_tail, r.tail)
	}
}

// Err returns an error if the ring holds bytes that are not a record, which ends the
// records. It may be nil.
func (r *Ring) Err() error { return r.damaged }

// Close unmaps the ring.
func (r *Ring) Close() error {
	if r.mem == nil {
		return nil
	}
	err := unix.Munmap(r.mem)
	r.mem, r.data, r.current, r.control = nil, nil, nil, nil
	return os.NewSyscallError("munmap", err)
}
