//go:build linux && amd64

package perfevent

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bits of perf_event_attr that golang.org/x/sys/unix has no names for.
const (
	BitNamespaces uint64 = 1 << 28
	BitKSymbol    uint64 = 1 << 29
	BitCgroup     uint64 = 1 << 32
	BitBuildID    uint64 = 1 << 34 // since Linux 5.12
)

// Attr is struct perf_event_attr.
type Attr = unix.PerfEventAttr

// Limits of the kernel.
const (
	// MaxStackUser is the largest copy of a user stack: the record's 16-bit size must
	// hold it, and it is a multiple of 8 (kernel/events/core.c, perf_copy_attr).
	MaxStackUser = 65528
	// RegsUser is the registers of x86-64 in enum perf_event_x86_regs that take part in
	// unwinding: ax to ip, and r8 to r15.
	RegsUser uint64 = 0xff01ff
)

// Event is an open performance event. It counts for as long as the descriptor is open; what children have inherited of
// it ends with it, too.
type Event struct {
	fd int
}

// AnyCPU and ThisThread are arguments of Open.
const (
	AnyCPU     = -1
	AllThreads = -1 // with a CPU: all that runs there
	ThisThread = 0
)

// Open opens an event for a thread, or for all of a CPU. attr.Size is set. The error
// is a *Refusal that says what helps.
func Open(attr *Attr, tid, cpu int) (*Event, error) { return open(attr, tid, cpu, 0) }

// OpenCgroup opens an event for the threads of a control group on one CPU; dir is the
// group's folder.
func OpenCgroup(attr *Attr, dir *os.File, cpu int) (*Event, error) {
	return open(attr, int(dir.Fd()), cpu, unix.PERF_FLAG_PID_CGROUP)
}

// open is perf_event_open(2), with the size of the attributes that this program knows: a newer kernel takes zeros for
// the rest. The descriptor is closed in programs that are executed.
func open(attr *Attr, tid, cpu, flags int) (*Event, error) {
	attr.Size = uint32(unsafe.Sizeof(*attr))
	fd, err := unix.PerfEventOpen(attr, tid, cpu, -1, flags|unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, refused("perf_event_open", err)
	}
	return &Event{fd: fd}, nil
}

// FD returns the event's file, for poll(2).
func (e *Event) FD() int { return e.fd }

// Redirect has the event write to the ring of another event of the same CPU.
func (e *Event) Redirect(to *Event) error {
	return os.NewSyscallError("PERF_EVENT_IOC_SET_OUTPUT", unix.IoctlSetInt(e.fd, unix.PERF_EVENT_IOC_SET_OUTPUT, to.fd))
}

// Enable starts an event that was opened with unix.PerfBitDisabled.
func (e *Event) Enable() error { return e.ioctl("PERF_EVENT_IOC_ENABLE", unix.PERF_EVENT_IOC_ENABLE) }

// Disable stops it, and those that were inherited from it.
func (e *Event) Disable() error {
	return e.ioctl("PERF_EVENT_IOC_DISABLE", unix.PERF_EVENT_IOC_DISABLE)
}

// ioctl is ioctl(2) with a request that takes no argument; name is for the error.
func (e *Event) ioctl(name string, request uint) error {
	return os.NewSyscallError(name, unix.IoctlSetInt(e.fd, request, 0))
}

// SetPeriod changes the period of the event, or for one with a frequency that the kernel adapts periods to, the
// frequency. It holds for what is inherited from now on.
func (e *Event) SetPeriod(n uint64) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return os.NewSyscallError("PERF_EVENT_IOC_PERIOD", errno)
	}
	return nil
}

// SetFilter has a tracepoint count only where its fields fulfil a condition. The kernel checks it, and says only
// whether it is one.
func (e *Event) SetFilter(condition string) error {
	text, err := unix.BytePtrFromString(condition)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.PERF_EVENT_IOC_SET_FILTER,
		uintptr(unsafe.Pointer(text)))
	if errno != 0 {
		return fmt.Errorf("filter %q: %w: the fields are in the file format beside the tracepoint's id", condition, errno)
	}
	return nil
}

// ID returns the number by which records name the event.
func (e *Event) ID() (uint64, error) {
	var id uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.PERF_EVENT_IOC_ID, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0, os.NewSyscallError("PERF_EVENT_IOC_ID", errno)
	}
	return id, nil
}

// Count is what read(2) says of an event that was opened with ReadLost alone as its
// read_format.
type Count struct {
	Value uint64
	Lost  uint64 // records for which its ring had no room
}

// ReadLost is the read_format of events that Read is used with: PERF_FORMAT_LOST,
// since Linux 6.0.
const ReadLost = unix.PERF_FORMAT_LOST

// Read reads the counter, with what was inherited from the event. It needs attr.Read_format to be ReadLost.
func (e *Event) Read() (Count, error) {
	var b [16]byte
	n, err := unix.Read(e.fd, b[:])
	if err != nil {
		return Count{}, os.NewSyscallError("read", err)
	}
	if n < len(b) {
		return Count{}, fmt.Errorf("read of an event: %d bytes, want %d", n, len(b))
	}
	return Count{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}, nil
}

// Close closes the event. Its ring stays mapped.
func (e *Event) Close() error {
	if e.fd < 0 {
		return nil
	}
	err := unix.Close(e.fd)
	e.fd = -1
	return os.NewSyscallError("close", err)
}

// HasPMU reports whether the processor's cycles can be counted here.
func HasPMU() bool {
	attr := Attr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	e, err := Open(&attr, ThisThread, AnyCPU)
	if err != nil {
		return false
	}
	e.Close()
	return true
}
