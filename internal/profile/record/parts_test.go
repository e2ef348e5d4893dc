//go:build linux && amd64

package record

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ehasm/ehasm/internal/files/procfs"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-2": {0, 1, 2}, "1,3-4": {1, 3, 4}} {
		cpus, err := parseCPUs(text)
		require.NoError(t, err)
		assert.Equal(t, want, cpus)
	}
	for _, text := range []string{"", "a", "2-1", "0-99999999", "-1"} {
		_, err := parseCPUs(text)
		assert.Error(t, err, "%q", text)
	}
}

// TestSpaces: the same addresses are the same code until an exec, or until another
// object lies there.
func TestSpaces(t *testing.T) {
	objects := unwind.NewObjects(unwind.Options{})
	tr := newTracker(objects)
	a, b := objects.Object("/a", []byte("aa")), objects.Object("/b", []byte("bb"))
	const pid = 1 << 30 // there is none
	exec := func() {
		tr.comm(&perfdata.Comm{PID: pid, TID: pid, Name: []byte("x"), Exec: true})
	}
	space := func() uint32 { _, p := tr.sampledThread(pid, pid); return p.space }
	exec()
	tr.putObject(pid, 0x1000, 0x1000, 0, a)
	first := space()
	tr.putObject(pid, 0x1000, 0x1000, 0, a)
	assert.Equal(t, first, space(), "the same again")
	tr.putObject(pid, 0x5000, 0x1000, 0, b)
	assert.Equal(t, first, space(), "where there was nothing")
	maps := mapsOf(tr, pid)
	assert.Equal(t, b, maps.Find(0x5800).Object)
	tr.putObject(pid, 0x1800, 0x100, 0x800, b)
	second := space()
	assert.NotEqual(t, first, second, "over what was sampled")
	exec()
	third := space()
	assert.NotEqual(t, second, third)
	maps = mapsOf(tr, pid)
	assert.Empty(t, maps.All())

	tr.putObject(pid, 0x1000, 0x1000, 0, a)
	tr.task(&perfdata.Task{Header: perfdata.Header{Type: perfdata.TypeFork}, PID: pid + 1, TID: pid + 1, PPID: pid,
		PTID: pid})
	_, child := tr.sampledThread(pid+1, pid+1)
	maps = child.sampledMaps
	assert.Equal(t, a, maps.Find(0x1000).Object)
	assert.NotEqual(t, space(), child.space)
	tr.putObject(pid, 0x9000, 0x1000, 0, b)
	maps = mapsOf(tr, pid+1)
	assert.Nil(t, maps.Find(0x9000))
	assert.Equal(t, "x", tr.thread(pid+1, pid+1).comm)

	// What has exited is forgotten after a while, but not a process that has its number now.
	for i := range int32(keepGone + 10) {
		tr.task(&perfdata.Task{Header: perfdata.Header{Type: perfdata.TypeExit}, PID: pid + 100 + i,
			TID: pid + 100 + i})
	}
	assert.LessOrEqual(t, len(tr.exits.gone), keepGone)
}

// TestFloods: programs that map, name threads and open files without end do not make the memory for
// that grow without end.
func TestFloods(t *testing.T) {
	objects := unwind.NewObjects(unwind.Options{})
	tr := newTracker(objects)
	self := int32(os.Getpid())
	anon := objects.Object("//anon", nil)
	needed := objects.Object("/needed", []byte{1, 2})
	needed.Ready() // there is no such file, but a walk has asked
	tr.readProcess(self)
	_, sampled := tr.sampledThread(self, self)
	maps := sampled.sampledMaps
	space := sampled.space
	before := len(maps.All())
	for i := range uint64(4 * manyMappings) {
		tr.putObject(self, 1<<40+i<<13, 1<<12, 1<<40+i<<13, anon)
		require.LessOrEqual(t, len(tr.process(self).All()), max(manyMappings, 2*before)+1)
	}
	_, sampled = tr.sampledThread(self, self)
	maps = sampled.sampledMaps
	assert.NotEqual(t, space, sampled.space)
	require.NotNil(t, maps.Find(codeOfSelf(t)), "what is still mapped is known")

	mapped := objectAt(tr, self, procfs.Mapping{Name: "/mapped"})
	tr.putObject(self, 1<<41, 1<<12, 0, mapped)
	dump := objectAt(tr, self, procfs.Mapping{Name: "/tmp/jit-7.dump"})
	for i := range 3 * manyObjects {
		objectAt(tr, self, procfs.Mapping{Name: fmt.Sprintf("/memfd:%d", i)})
	}
	assert.LessOrEqual(t, len(tr.files.Known), manyObjects)
	all := objects.All()
	assert.LessOrEqual(t, len(all), manyObjects+8)
	for _, o := range []*unwind.Object{needed, mapped, dump} {
		assert.Contains(t, all, o)
	}
}

// codeOfSelf returns an address of this process's code.
func codeOfSelf(t *testing.T) uint64 {
	list, err := procfs.Mappings(int32(os.Getpid()))
	require.NoError(t, err)
	for _, m := range list {
		if m.Exec && m.Inode != 0 {
			return m.Start
		}
	}
	require.Fail(t, "no code")
	return 0
}

// TestTable: stacks that differ in one word are two, and share the frames that they have
// in common.
func TestTable(t *testing.T) {
	objects := unwind.NewObjects(unwind.Options{})
	ps := unwind.NewProcesses()
	ps.Space(7).Map(0x1000, 0x1000, 0x4000, objects.Object("/a", nil))
	ps.Space(7).Map(0x8000, 0x1000, 0, objects.Object("//anon", nil))
	maps := ps.Space(7).Maps()
	table := newTable()
	add := func(kernel, user []uint64) uint32 {
		h := table.hash(append(append([]uint64{uint64(len(kernel))}, kernel...), user...))
		id, ok := table.index[h]
		if !ok {
			id = table.insert(h, Stack{PID: 7}, maps, kernel, user, nil)
		}
		table.count(id, 10)
		return id
	}
	first := add([]uint64{1 << 63}, []uint64{0x1010, 0x1020, 0x2000, 0x8010, 0x99999})
	second := add([]uint64{1 << 63}, []uint64{0x1011, 0x1020, 0x2000, 0x8010, 0x99999})
	assert.NotEqual(t, first, second)
	assert.Equal(t, first, add([]uint64{1 << 63}, []uint64{0x1010, 0x1020, 0x2000, 0x8010, 0x99999}))
	assert.Equal(t, uint64(2), table.Stacks[first].Count)
	assert.Equal(t, uint64(20), table.Stacks[first].Period)
	assert.Len(t, table.nodes, 1+6+2, "the second adds two")
	frames := table.Frames(nil, &table.Stacks[first])
	require.Len(t, frames, 6)
	assert.True(t, frames[0].Kernel)
	assert.Equal(t, uint64(0x4010), frames[1].Mapping.FileOffset(frames[1].PC))
	assert.Equal(t, "/a", frames[3].Mapping.Object.Name, "a return address at the end of a mapping")
	assert.Equal(t, int32(7), frames[4].PID)
	assert.Nil(t, frames[5].Mapping.Object)
}

// TestClock: times are those of the kernel's records.
func TestClock(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "monotonic           0         0\nboottime            0         0\n": 0,
		"monotonic       -3600         5\nboottime         7200         0\n": -3600e9 + 5,
		"boottime 1 1\nmonotonic 2 3\n":                                      2e9 + 3,
		"1 7 0\n7 9 0\n":                                                     7e9, "monotonic x y\n": 0,
	} {
		assert.Equal(t, want, parseOffset(text), "%q", text)
	}
	first, err := newClock().now()
	require.NoError(t, err)
	moved, err := clock{moved: -5e9}.now()
	require.NoError(t, err)
	assert.InDelta(t, float64(first)+5e9, float64(moved), 1e9)
}

// TestPaceJumps: a reader that was stopped, as with its machine, reads at once; times before those of the last
// samples do not make it wait.
func TestPaceJumps(t *testing.T) {
	p := newPace(&Options{Event: &Event{}, Settings: Settings{Frequency: 1000}}, 1<<20)
	const hour = uint64(time.Hour)
	p.note(0, 10*hour)
	p.alert = 10*hour + alertTime
	assert.Equal(t, leastWait, p.wait(10*hour+uint64(time.Millisecond)-1))
	p.note(1, 10*hour)
	assert.Equal(t, calmWait, p.wait(11*hour), "long after")
	p.note(1, 10*hour)
	assert.LessOrEqual(t, p.wait(9*hour), cutWait, "before")
}

// TestPack: packed stacks are the same, in little memory.
func TestPack(t *testing.T) {
	table := newTable()
	rnd := rand.New(rand.NewPCG(1, 2))
	objects := unwind.NewObjects(unwind.Options{})
	file, jit := objects.Object("/a", nil), objects.Object("//anon", nil)
	ps := unwind.NewProcesses()
	for pid := range int32(2) { // at other addresses
		addr := uint64(pid+1) << 20
		ps.Space(pid).Map(1<<40+addr, 0x1000, 0x3000, file)
		ps.Space(pid).Map(1<<40+addr+0x1000, 0x1000, 0x5000, file)
		ps.Space(pid).Map(1<<40+addr+0x2000, 0x1000, addr, jit)
		maps := ps.Space(pid).Maps()
		for i := range 100 {
			user := []uint64{1<<40 + addr + rnd.Uint64N(0x3000), 1<<40 + addr + rnd.Uint64N(0x3000), rnd.Uint64N(8)}
			id := table.insert(hash{uint64(pid), uint64(i)}, Stack{PID: pid}, maps, user[:1], user, []int{i % 2})
			table.count(id, 1)
		}
	}
	for range 300 {
		user := make([]uint64, 1+rnd.IntN(40))
		for i := range user { // outermost frames differ least
			user[i] = 1<<40 + rnd.Uint64N(1+uint64(len(user)-i))
		}
		words := append([]uint64{rnd.Uint64N(2)}, user...)
		h := table.hash(words)
		id, ok := table.index[h]
		if !ok {
			id = table.insert(h, Stack{Comm: rnd.Uint32N(9), PID: rnd.Int32(),
				End: unwind.Cause(rnd.IntN(int(unwind.NumCauses))), Origin: Origin(words[0])}, new(unwind.Maps), nil,
				user, nil)
		}
		table.count(id, rnd.Uint64()>>rnd.IntN(64))
	}
	p := &Profile{Table: table}
	p.Pack()
	small := p.Table
	p.Pack()
	assert.Same(t, small, p.Table, "once")
	assert.Equal(t, len(table.Stacks), small.distinct())
	got := p.open()
	assert.Equal(t, table.Stacks, got.Table.Stacks)
	for i := range table.Stacks {
		want, have := table.Frames(nil, &table.Stacks[i]), got.Table.Frames(nil, &got.Table.Stacks[i])
		require.Equal(t, len(want), len(have))
		for k, w := range want {
			if h := *have[k]; w.Mapping.Object != file {
				require.Equal(t, *w, h)
			} else {
				require.Equal(t, w.Mapping.FileOffset(w.PC), h.Mapping.FileOffset(h.PC))
				require.Equal(t, w.Mapping.Offset, h.Mapping.Offset)
				require.Equal(t, []any{w.Mapping.Object, w.Guessed, w.Kernel, w.PID},
					[]any{h.Mapping.Object, h.Guessed, h.Kernel, h.PID})
			}
		}
	}
	assert.Len(t, small.packed.maps, 2+2, "two of the file, one of the code of each process")
	assert.Less(t, len(small.packed.bytes), 3*len(table.nodes)+20*len(table.Stacks))

	next := table.after()
	assert.Zero(t, len(next.Stacks))
	assert.Equal(t, len(table.frames), len(next.frames))
	next.insert(hash{}, Stack{}, new(unwind.Maps), nil, []uint64{1 << 50}, nil)
	assert.Equal(t, len(table.frames)+1, len(next.frames))
	for len(next.frames) < 1<<15 {
		next.frame(frameKey{addr: 1<<60 + uint64(len(next.frames))}, Frame{})
	}
	assert.Zero(t, len(next.after().frames))
}

// TestGrowShrink: copies become longer where too many stacks are incomplete, and shorter for good
// when samples are lost.
func TestGrowShrink(t *testing.T) {
	event, err := perfevent.Open(&perfevent.Attr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
		Bits: unix.PerfBitDisabled | unix.PerfBitExcludeKernel},
		perfevent.ThisThread, perfevent.AnyCPU)
	require.NoError(t, err)
	defer event.Close()
	opt, op := &Options{Event: named("cpu-clock"), Settings: Settings{Frequency: 100}},
		&opened{long: stream{all: []*perfevent.Event{event}}}
	k := copies{unwinder: newUnwinder(opt), opt: opt, open: op, growth: growth{stacks: 100, short: 50}}
	require.NoError(t, k.end(0))
	assert.True(t, k.grown && !k.shrunk)
	k.crowded = true
	require.NoError(t, k.end(0))
	assert.True(t, k.shrunk && !k.crowded)
	early := copies{unwinder: newUnwinder(opt), opt: opt, open: op, growth: growth{stacks: 100, short: 50, crowded: true}}
	require.NoError(t, early.end(0))
	assert.True(t, early.shrunk)
	early.short = 90
	require.NoError(t, early.end(0))
}

// TestPriority: the reader goes first while it runs, if it may, and not after.
func TestPriority(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	require.NoError(t, err)
	usual, restore, err := (&Session{}).priority()
	require.NoError(t, err)
	if os.Geteuid() == 0 {
		a, err := unix.SchedGetAttr(0, 0)
		require.NoError(t, err)
		assert.Equal(t, uint32(unix.SCHED_FIFO), a.Policy)
	}
	usual()
	a, err := unix.SchedGetAttr(0, 0)
	require.NoError(t, err)
	assert.Equal(t, uint32(unix.SCHED_NORMAL), a.Policy)
	if os.Geteuid() == 0 {
		now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		require.NoError(t, err)
		assert.Equal(t, 40, now) // as the system call has it: 20 - nice
	}
	restore()
	after, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// mapsOf returns what a process has mapped at this moment.
func mapsOf(t *tracker, pid int32) *unwind.Maps {
	_, p := t.sampledThread(pid, pid)
	return p.sampledMaps
}
