//go:build linux && amd64

package perfevent

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeRing returns a ring of the given size whose writer is the test.
func fakeRing(size int) *Ring {
	return &Ring{data: make([]byte, size), control: new(unix.PerfEventMmapPage)}
}

// put writes a record of size bytes whose body says n.
func put(r *Ring, size int, n uint32) {
	b := make([]byte, size)
	binary.LittleEndian.PutUint16(b[6:], uint16(size))
	binary.LittleEndian.PutUint32(b[8:], n)
	for i, c := range b {
		r.data[(r.control.Data_head+uint64(i))%uint64(len(r.data))] = c
	}
	r.control.Data_head += uint64(size)
}

// TestRing writes and reads records of changing sizes many times around a ring.
func TestRing(t *testing.T) {
	r := fakeRing(4096)
	written, read := uint32(0), uint32(0)
	for round := range 500 {
		for i := range 1 + round%7 {
			put(r, 16+8*((round+i)%50), written)
			written++
		}
		require.Nil(t, r.Peek(), "nothing new before Refresh")
		r.Refresh()
		for b := r.Peek(); b != nil; b = r.Peek() {
			require.Equal(t, read, binary.LittleEndian.Uint32(b[8:]))
			read++
			r.Next()
		}
		r.Free()
		require.Equal(t, r.control.Data_head, r.control.Data_tail)
	}
	assert.Equal(t, written, read)
	assert.NoError(t, r.Err())
}

// TestRingDamaged wants an error, and no more records, where a size cannot be.
func TestRingDamaged(t *testing.T) {
	for _, size := range []uint16{0, 4, 64} {
		r := fakeRing(4096)
		put(r, 16, 1)
		binary.LittleEndian.PutUint16(r.data[6:], size)
		r.Refresh()
		assert.Nil(t, r.Peek())
		assert.Error(t, r.Err())
		put(r, 16, 2)
		r.Refresh()
		assert.Nil(t, r.Peek())
	}
}

// TestOrder merges two rings.
func TestOrder(t *testing.T) {
	a, b := fakeRing(4096), fakeRing(4096)
	for _, n := range []uint32{1, 4, 5, 9} {
		put(a, 16, n)
	}
	for _, n := range []uint32{2, 3, 6, 10} {
		put(b, 24, n)
	}
	o := NewOrder([]*Ring{a, b}, func(_ int, rec []byte) uint64 { return uint64(binary.LittleEndian.Uint32(rec[8:])) })
	assert.Equal(t, 4*16+4*24, o.Refresh())
	var got []uint32
	take := func(limit uint64) {
		for ring, rec := o.Next(limit); rec != nil; ring, rec = o.Next(limit) {
			got = append(got, binary.LittleEndian.Uint32(rec[8:]))
			o.Done(ring)
		}
		o.Free()
	}
	take(6)
	assert.Equal(t, []uint32{1, 2, 3, 4, 5}, got)
	assert.Equal(t, uint64(48), a.control.Data_tail)
	take(^uint64(0))
	assert.Equal(t, []uint32{1, 2, 3, 4, 5, 6, 9, 10}, got)
}

// TestOrderFuture: a record whose time is none does not stop what is behind it.
func TestOrderFuture(t *testing.T) {
	a := fakeRing(4096)
	const now = 1 << 50
	times := []uint64{now - 3, 0xdead << 48, now - 1, now + 1}
	for i := range times {
		put(a, 16, uint32(i))
	}
	o := NewOrder([]*Ring{a}, func(_ int, rec []byte) uint64 { return times[binary.LittleEndian.Uint32(rec[8:])] })
	o.Refresh()
	for want := range uint32(3) {
		ring, rec := o.Next(now)
		require.NotNil(t, rec, "%d", want)
		assert.Equal(t, want, binary.LittleEndian.Uint32(rec[8:]))
		o.Done(ring)
	}
	_, rec := o.Next(now)
	assert.Nil(t, rec, "it is from after the limit")
}

// TestKernel samples this thread and finds the samples in the ring; the counts are
// those of the kernel.
func TestKernel(t *testing.T) {
	attr := Attr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS, Sample: 1,
		Sample_type: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID, Read_format: ReadLost,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	e, err := Open(&attr, unix.Getpid(), AnyCPU) // of the process's first thread: it may be another's turn
	require.NoError(t, err)
	defer e.Close()
	_, err = e.ID()
	require.NoError(t, err)
	_, err = e.Map(12345)
	assert.Error(t, err)
	r, err := e.MapUpTo(1<<16, 4096)
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, e.Enable())
	for end := time.Now().Add(10 * time.Millisecond); time.Now().Before(end); {
		b, err := unix.Mmap(-1, 0, 64*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		require.NoError(t, err)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		require.NoError(t, unix.Munmap(b))
	}
	require.NoError(t, e.Disable())
	n := uint64(0)
	r.Refresh()
	for b := r.Peek(); b != nil; b = r.Peek() {
		if binary.LittleEndian.Uint32(b) == unix.PERF_RECORD_SAMPLE {
			assert.EqualValues(t, unix.Getpid(), binary.LittleEndian.Uint32(b[16:]))
			n++
		}
		r.Next()
	}
	count, err := e.Read()
	require.NoError(t, err)
	assert.Equal(t, count.Value, n+count.Lost)
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name string
		host host
		call string
		err  unix.Errno
		want string
	}{
		{"paranoid", host{available: true, readable: true, paranoid: 3}, "perf_event_open", unix.EACCES,
			"kernel.perf_event_paranoid=3 keeps performance events for root; as root sysctl kernel.perf_event_paranoid=2"},
		{"others", host{available: true, readable: true, paranoid: 2}, "perf_event_open", unix.EACCES,
			"not allowed to this user (kernel.perf_event_paranoid=2)"},
		{"seccomp", host{available: true, readable: true, paranoid: 2, seccomp: true}, "perf_event_open", unix.EPERM,
			"a seccomp filter"},
		{"mlock", host{available: true, mlockKB: "516"}, "mmap of a ring", unix.EPERM, "perf_event_mlock_kb=516"},
		{"none", host{}, "perf_event_open", unix.ENOSYS, "this kernel has no performance events"},
		{"filtered", host{available: true}, "perf_event_open", unix.ENOSYS, "the call is filtered"},
		{"PMU", host{available: true}, "perf_event_open", unix.ENOENT, "--event cpu-clock"},
		{"files", host{available: true}, "perf_event_open", unix.EMFILE, "ulimit -n"},
		{"old", host{available: true}, "perf_event_open", unix.EINVAL, "does not support"},
		{"other", host{available: true}, "perf_event_open", unix.EIO, "perf_event_open: input/output error"},
	} {
		err := c.host.explain(c.call, c.err)
		assert.ErrorContains(t, err, c.want, c.name)
		assert.ErrorIs(t, err, c.err)
	}
}
