//go:build linux && amd64

package record

import (
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// largeFile makes a library with many functions, of about 100 KB of symbols.
func largeFile(t *testing.T, path string) {
	source := path + ".s"
	require.NoError(t, os.WriteFile(source, []byte(`.altmacro
.macro fn n
.type a_function_with_a_name_of_some_length_\n, @function
a_function_with_a_name_of_some_length_\n: .cfi_startproc
ret
.cfi_endproc
.size a_function_with_a_name_of_some_length_\n, .-a_function_with_a_name_of_some_length_\n
.endm
.set i, 0
.rept 4000
fn %i
.set i, i+1
.endr
.section .note.GNU-stack
`), 0o666))
	out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", path, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// mappingAt returns a mapping of the file at a path.
func mappingAt(t *testing.T, path string) procfs.Mapping {
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(path, &st))
	return procfs.Mapping{Name: path, Inode: st.Ino}
}

// TestRelease has many processes, one after the other, each with its own file that is gone afterwards. What is kept
// of each is what the profile needs.
func TestRelease(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	largeFile(t, file)
	objects := unwind.NewObjects(unwind.Options{Prepare: func(name string, r io.ReaderAt, size int64) ([]byte,
		unwind.Stepper, error) {
		s, err := unwindtest.NewStepper(name, r, size, math.MaxInt64)
		return nil, s, err
	}})
	names := symbolize.New(symbolize.Options{OpenFiles: symbols.NewOpenFiles(1000)})
	s := &Session{tracker: newTracker(objects), part: part{table: newTable()}, stacks: new(copies),
		opt: Options{Left: names.Settle}}
	tr := s.tracker
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, now := heap(), time.Now()
	const count, first = 120, 1 << 30 // there are no such processes
	for i := range int32(count) {
		pid := first + i
		path := fmt.Sprintf("%s.%d", file, i)
		require.NoError(t, os.Link(file, path))
		tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("x"), Exec: true})
		o := objectAt(tr, pid, mappingAt(t, path))
		tr.putObject(pid, 0x10000, 0x100000, 0, o)
		maps := mapsOf(tr, pid)
		names.Foresee(o)
		require.NoError(t, o.Ready())
		names.NewCache(nil).Frame(&maps.All()[0], pid, 0x11000) // waits for the symbols
		s.part.table.insert(hash{uint64(i)}, Stack{PID: pid}, maps, nil, []uint64{0x11010, 0x11100}, nil)
		tr.task(&perfdata.Task{Header: perfdata.Header{Type: perfdata.TypeExit}, PID: pid, TID: pid})
		now = now.Add(time.Second)
		s.release(now)
		require.NoError(t, os.Remove(path))
		assert.LessOrEqual(t, len(tr.processes), 2)
	}
	needed := func() (n int) {
		for _, o := range objects.All() {
			if o.Needed() {
				n++
			}
		}
		return n
	}
	assert.LessOrEqual(t, needed(), mostIdle+2)
	for range 2 {
		now = now.Add(idleTime)
		s.release(now)
	}
	assert.Zero(t, needed())
	var frames []*Frame
	cache := names.NewCache(nil)
	for i := range s.part.table.Stacks {
		frames = s.part.table.Frames(frames[:0], &s.part.table.Stacks[i])
		for k, f := range frames {
			got, signal := cache.Frame(&f.Mapping, 0, f.PC-uint64(k)) // the second is a caller
			assert.True(t, strings.HasPrefix(got.Name, "a_function_with_a_name_"), "%d %q", i, got.Name)
			assert.False(t, signal)
		}
	}
	const each = 500 << 10 // bytes at least of a file that is not released, and far more than of one that is
	assert.Less(t, int64(heap()-before), int64(count*each/4), "bytes kept")
	names.Close()
}

// TestReleaseAgain: a file that is mapped again is the same object, with all of its symbols.
func TestReleaseAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	largeFile(t, file)
	objects := unwind.NewObjects(unwind.Options{Compile: unwindtest.Compile})
	names := symbolize.New(symbolize.Options{})
	s := &Session{tracker: newTracker(objects), part: part{table: newTable()}, stacks: new(copies),
		opt: Options{Left: names.Settle}}
	tr, now := s.tracker, time.Now()
	name := func(m *unwind.Mapping, addr uint64) string {
		f, _ := names.NewCache(nil).Frame(m, 0, addr)
		return f.Name
	}
	var was *unwind.Object
	want := make(map[uint64]string)
	for i := range int32(4) {
		pid := 1<<30 + i
		tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("x"), Exec: true})
		o := objectAt(tr, pid, mappingAt(t, file))
		if was != nil {
			assert.Same(t, was, o)
			assert.False(t, o.Needed())
		}
		was = o
		tr.putObject(pid, 0x10000, 0x100000, 0, o)
		maps := mapsOf(tr, pid)
		names.Foresee(o)
		require.NoError(t, o.Ready())
		m := &maps.All()[0]
		addr := uint64(0x11000 + 0x40*i)
		want[addr] = name(m, addr)
		assert.NotEmpty(t, want[addr])
		s.part.table.insert(hash{uint64(i)}, Stack{PID: pid}, maps, nil, []uint64{addr}, nil)
		tr.task(&perfdata.Task{Header: perfdata.Header{Type: perfdata.TypeExit}, PID: pid, TID: pid})
		for range 3 {
			now = now.Add(idleTime)
			s.release(now)
		}
		for addr, want := range want {
			assert.Equal(t, want, name(m, addr))
		}
	}
}

// TestIdleTime: what keeps a file system busy is released early.
func TestIdleTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	largeFile(t, file)
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(file, &st))
	tr := newTracker(unwind.NewObjects(unwind.Options{}))
	o := objectAt(tr, gone, mappingAt(t, file))
	is := func(want time.Duration) {
		t.Helper()
		got, size := tr.files.idleTime(o)
		assert.Equal(t, want, got)
		assert.Equal(t, st.Size, size)
	}
	tr.files.root = st.Dev
	is(idleTime)
	tr.files.root++
	is(idleTimeOther)
	tr.files.root = st.Dev
	tr.files.Open[o] = os.Stdin // the file is in another mount namespace
	is(idleTimeOther)
}

// TestIdleRoom: neither many files nor large ones wait together.
func TestIdleRoom(t *testing.T) {
	r := idleRoom{objects: 3, bytes: 100}
	for _, c := range []struct {
		bytes int64
		fits  bool
	}{{60, true}, {41, false}, {40, true}, {1, false}, {0, true}, {0, false}} {
		assert.Equal(t, c.fits, r.take(c.bytes), "%d", c.bytes)
	}
}
