//go:build linux && amd64

package bpfunwind

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// This file reads BPF ring buffers without a copy: frames of a sample lie in the ring, and are valid while f runs.

// Sample is a walk. Its frames are run-time pcs, unadjusted: the first one was executing, others are return addresses,
// except behind a signal frame.
type Sample struct {
	Time     uint64 // ns of CLOCK_MONOTONIC
	PID, TID uint32 // thread group and thread in the first PID namespace
	CPU      uint32
	Source   uint32 // Source.ID of the program
	View     uint32 // see MapProcess
	Outcome  Outcome
	// a frame needed a register that calls may change; it was taken to have survived, as by libgcc and gdb
	Kept   bool
	Period uint64   // PerfEvent: events since the last sample
	Kernel []uint64 // frames of the kernel, the innermost first; in the ring: valid until f returns
	User   []uint64 // frames of the process
}

// ringSet are the rings of all CPUs.
type ringSet struct {
	rings []ring
	epoll int
}

// ring is a BPF ring buffer (kernel/bpf/ringbuf.c): positions of reader and writer, a page each, and the data, mapped
// twice.
type ring struct {
	inner    *ebpf.Map
	read     []byte
	written  []byte
	size     uint64
	position uint64
}

func ringSpec(size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: uint32(size)}
}

// newRings makes a ring for each CPU.
func newRings(m *maps) (*ringSet, error) {
	set := &ringSet{}
	var err error
	if set.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	for cpu := range uint32(m.cpus) {
		if err := set.add(m, cpu); err != nil {
			set.close()
			return nil, err
		}
	}
	return set, nil
}

// add makes the ring of a CPU.
func (s *ringSet) add(m *maps, cpu uint32) (err error) {
	page := os.Getpagesize()
	r := ring{size: uint64(m.ringSize)}
	if r.inner, err = ebpf.NewMap(ringSpec(m.ringSize)); err != nil {
		return fmt.Errorf("ring of CPU %d: %w", cpu, explain(err))
	}
	if r.read, err = unix.Mmap(r.inner.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		r.written, err = unix.Mmap(r.inner.FD(), int64(page), page+2*m.ringSize, unix.PROT_READ, unix.MAP_SHARED)
	}
	s.rings = append(s.rings, r)
	if err != nil {
		return os.NewSyscallError("mmap of a ring", err)
	}
	if err := m.rings.Put(cpu, r.inner); err != nil {
		return err
	}
	// Edge-triggered: it waits for the program's wakeups, not for any sample.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, r.inner.FD(), &event))
}

func (s *ringSet) close() {
	for _, r := range s.rings {
		if r.read != nil {
			unix.Munmap(r.read)
		}
		if r.written != nil {
			unix.Munmap(r.written)
		}
		r.inner.Close()
	}
	unix.Close(s.epoll)
}

// FD returns a descriptor for poll: it can be read when a ring is a quarter full, until the next Read.
func (u *Unwinder) FD() int { return u.rings.epoll }

// Read calls f for the samples that the rings hold. It first waits until one is a quarter full, but no longer than
// wait. Samples of a CPU come in the order of their time.
func (u *Unwinder) Read(wait time.Duration, f func(*Sample)) error {
	u.reading.Lock()
	defer u.reading.Unlock()
	var events [16]unix.EpollEvent
	if _, err := unix.EpollWait(u.rings.epoll, events[:], int(wait.Milliseconds())); err != nil &&
		!errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("epoll_wait", err)
	}
	var sample Sample
	for i := range u.rings.rings {
		sample.CPU = uint32(i)
		if err := u.rings.rings[i].drain(&sample, f); err != nil {
			return fmt.Errorf("ring of CPU %d: %w", i, err)
		}
	}
	return nil
}

// drain reads the samples that are there. The length's upper bits are BPF_RINGBUF_BUSY_BIT and BPF_RINGBUF_DISCARD_BIT
// (include/uapi/linux/bpf.h). Data are mapped twice, one behind the other, so a sample that wraps is one slice.
func (r *ring) drain(sample *Sample, f func(*Sample)) error {
	const (
		busy, discarded = 1 << 31, 1 << 30
		header          = 8
	)
	data := r.written[os.Getpagesize():]
	end := atomic.LoadUint64((*uint64)(unsafe.Pointer(&r.written[0])))
	for r.position < end {
		offset := r.position & (r.size - 1)
		length := uint64(atomic.LoadUint32((*uint32)(unsafe.Pointer(&data[offset]))))
		if length&busy != 0 {
			break // being written; so are those behind it
		}
		n := length &^ (busy | discarded)
		if n > r.size {
			return fmt.Errorf("sample of %d bytes", n)
		}
		var err error
		if length&discarded == 0 {
			if err = sample.decode(data[offset+header:][:n]); err == nil {
				f(sample)
			}
		}
		r.position += header + (n+7)&^7
		// After f: the kernel may overwrite the sample from here on.
		atomic.StoreUint64(r.freed(), r.position)
		if err != nil {
			return err
		}
	}
	return nil
}

// freed is the position as the kernel knows it.
func (r *ring) freed() *uint64 { return (*uint64)(unsafe.Pointer(&r.read[0])) }

// contextMax is the least of the markers in call chains: PERF_CONTEXT_MAX of include/uapi/linux/perf_event.h.
const contextMax = ^uint64(4095 - 1)

// decode reads a sample of a CPU, whose frames stay in b.
func (s *Sample) decode(b []byte) error {
	if len(b) < headerSize {
		return fmt.Errorf("sample of %d bytes", len(b))
	}
	le := binary.LittleEndian
	all, kernel := int(le.Uint32(b[headerCount:])), int(b[headerKernel])
	if len(b) != headerSize+8*all || kernel > all {
		return fmt.Errorf("sample of %d bytes with %d frames, %d of the kernel", len(b), all, kernel)
	}
	*s = Sample{
		Time: word(b, headerTime), TID: le.Uint32(b[headerThread:]), PID: le.Uint32(b[headerThread+4:]),
		CPU: s.CPU, Source: le.Uint32(b[headerSource:]), View: le.Uint32(b[headerView:]),
		Outcome: Outcome(b[headerOutcome]), Kept: b[headerKept] != 0, Period: word(b, headerPeriod),
	}
	if all > 0 {
		frames := unsafe.Slice((*uint64)(unsafe.Pointer(&b[headerSize])), all) // samples are aligned to 8 bytes
		s.Kernel, s.User = frames[:kernel:kernel], frames[kernel:]
		for len(s.Kernel) > 0 && s.Kernel[0] >= contextMax { // an event with call chains has its own, with the marker
			s.Kernel = s.Kernel[1:]
		}
	}
	return nil
}

// word returns the 8 bytes at an offset.
func word(b []byte, offset int) uint64 { return binary.LittleEndian.Uint64(b[offset:]) }
