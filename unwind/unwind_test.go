package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/testing/testtool"
	"github.com/ehasm/ehasm/internal/testing/unwindtest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	prog = unwindtest.ELF{Off: 0x1000, VAddr: 0x401000, Size: 0x1000, BuildID: []byte("prog-build-id"),
		Funcs: []unwindtest.Func{
			{Name: "_start", Addr: 0x401000, Size: 0x40, Kind: unwindtest.Outermost},
			{Name: "main", Addr: 0x401040, Size: 0x40},
			{Name: "handler", Addr: 0x401100, Size: 0x40},
			{Name: "assembler", Addr: 0x401140, Size: 0x40, Kind: unwindtest.ByRAX},
			{Name: "vector", Addr: 0x401180, Size: 0x40, Kind: unwindtest.BelowRSP},
		}}
	lib = unwindtest.ELF{Entry: 0x3400, Off: 0x2000, VAddr: 0x3000, Size: 0x1000, BuildID: []byte("lib-build-id!"),
		Funcs: []unwindtest.Func{
			{Name: "work", Addr: 0x3000, Size: 0x100},
			{Name: "restore", Addr: 0x3200, Size: 0x10, Kind: unwindtest.Signal},
		}}
)

const libBase = 0x7f0000000000

// world writes the objects below a folder, and maps them.
func world(t *testing.T, opt Options) (*Processes, *Objects, string) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), prog.Bytes(), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lib.so"), lib.Bytes(), 0o666))
	if opt.Compile == nil && opt.Prepare == nil {
		opt.Compile = unwindtest.Compile
	}
	objects := NewObjects(opt)
	t.Cleanup(func() { assert.NoError(t, objects.Close()) })
	ps := NewProcesses()
	ps.Space(1).Map(0x401000, 0x1000, 0x1000, objects.Object(filepath.Join(dir, "prog"), prog.BuildID))
	ps.Space(1).Map(libBase+0x3000, 0x1000, 0x2000, objects.Object(filepath.Join(dir, "lib.so"), nil))
	return ps, objects, dir
}

// stack is frames of two words: rbp, return address.
func stack(returns ...uint64) *ehelf.Memory {
	var b []byte
	for _, r := range returns {
		b = binary.LittleEndian.AppendUint64(b, 0xb9)
		b = binary.LittleEndian.AppendUint64(b, r)
	}
	return &ehelf.Memory{Lo: 0x7ffc0000, Bytes: b}
}

func start(pc uint64) *abi.Regs {
	r := &abi.Regs{Valid: abi.AllRegs, Exact: 1}
	r.Reg[abi.RIP], r.Reg[abi.RSP] = pc, 0x7ffc0000
	return r
}

// TestWalk walks through eh_elfs, by rows on demand, and by the one until there is
// the other.
func TestWalk(t *testing.T) {
	t.Run("compiled", func(t *testing.T) { testWalk(t, Options{}) })
	t.Run("on demand", func(t *testing.T) { testWalk(t, onDemand(math.MaxInt64)) })
	t.Run("on demand at first", func(t *testing.T) { testWalk(t, onDemand(10)) })
}

func testWalk(t *testing.T, opt Options) {
	ps, objects, _ := world(t, opt)
	anon := objects.Object("//anon", nil)
	ps.Space(1).Map(0x10000, 0x1000, 0x10000, anon)
	missing := objects.Object("/nonexistent/x.so", nil)
	ps.Space(1).Map(0x20000, 0x1000, 0, missing)
	maps := ps.Space(1).Maps()
	var walker Walker
	for _, c := range []struct {
		name   string
		pc     uint64
		stack  []uint64
		want   []uint64
		cause  Cause
		object string
	}{
		{"over two objects", libBase + 0x3010, []uint64{0x401050, 0x401010},
			[]uint64{libBase + 0x3010, 0x401050, 0x401010}, Outermost, "prog"},
		{"return address behind the last instruction", libBase + 0x3010, []uint64{0x401080, 0x401010},
			[]uint64{libBase + 0x3010, 0x401080, 0x401010}, Outermost, "prog"},
		{"through a signal frame", 0x401100, []uint64{libBase + 0x3200 + 1, libBase + 0x3000, 0x401044, 0x401010},
			[]uint64{0x401100, libBase + 0x3201, libBase + 0x3000, 0x401044, 0x401010}, Outermost, "prog"},
		{"stack copy too short", libBase + 0x3010, []uint64{0x401050}, []uint64{libBase + 0x3010, 0x401050},
			Unreadable, "prog"},
		{"no row", 0x401050, []uint64{0x401f00, 0}, []uint64{0x401050, 0x401f00}, NoInfo, "prog"},
		{"entry without row", libBase + 0x3010, []uint64{libBase + 0x3410, 0},
			[]uint64{libBase + 0x3010, libBase + 0x3410}, Outermost, "lib.so"},
		{"no mapping", 0x401050, []uint64{0xdead}, []uint64{0x401050}, NoMapping, ""},
		{"zero", 0x401050, []uint64{0}, []uint64{0x401050}, Outermost, ""},
		{"anonymous", 0x401050, []uint64{0x10010}, []uint64{0x401050, 0x10010}, NoObject, "//anon"},
		{"missing", 0x401050, []uint64{0x20010}, []uint64{0x401050, 0x20010}, NoObject, "x.so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pcs [10]uint64
			n, cause, object := walker.Walk(maps, start(c.pc), stack(c.stack...), pcs[:])
			assert.Equal(t, fmt.Sprintf("%#x", c.want), fmt.Sprintf("%#x", pcs[:n]))
			assert.Equal(t, c.cause, cause, cause.String())
			if c.object == "" {
				assert.Nil(t, object)
			} else if assert.NotNil(t, object) {
				assert.Equal(t, filepath.Base(c.object), filepath.Base(object.Name))
			}
		})
	}
	t.Run("by frame pointer", func(t *testing.T) {
		testFramePointers(t, maps, &walker)
		testWhereFramePointers(t, ps, objects)
	})
	t.Run("by a caller-saved register", func(t *testing.T) { testCallerSaved(t, maps) })
	var two [2]uint64
	n, cause, _ := walker.Walk(maps, start(libBase+0x3010), stack(0x401050, 0x401010), two[:])
	assert.Equal(t, 2, n)
	assert.Equal(t, Full, cause)
	regs := start(0x401050)
	regs.Valid &^= 1 << abi.RSP
	_, cause, _ = walker.Walk(maps, regs, stack(0x401010), two[:])
	assert.Equal(t, BadRegister, cause)
	assert.ErrorIs(t, anon.Err(), ErrNoFile)
	assert.ErrorIs(t, missing.Err(), fs.ErrNotExist)

	libObject := maps.Find(libBase + 0x3000).Object
	assert.True(t, libObject.SignalFrame(0x3200))
	assert.False(t, libObject.SignalFrame(0x3010))
	assert.False(t, libObject.SignalFrame(0x9999))
	assert.False(t, anon.SignalFrame(1))
}

func TestResolve(t *testing.T) {
	_, _, dir := world(t, Options{})
	write := func(path string, e unwindtest.ELF) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, e.Bytes(), 0o666))
	}
	other := lib
	other.BuildID = []byte("another build")
	write(filepath.Join(dir, "replaced.so"), other)
	debug := filepath.Join(dir, "debug")
	byID := filepath.Join(debug, ".build-id", "6c", fmt.Sprintf("%x", lib.BuildID[1:]), "elf")
	write(byID, lib)
	write(filepath.Join(dir, "root", "lib", "inside.so"), lib)

	objects := NewObjects(Options{DebugDirs: []string{debug}, Compile: unwindtest.Compile})
	o := objects.Object(filepath.Join(dir, "replaced.so"), lib.BuildID)
	assert.Equal(t, byID, o.Path())
	o = objects.Object("/gone.so (deleted)", append(lib.BuildID, 0, 0, 0))
	assert.Equal(t, byID, o.Path())
	assert.Equal(t, lib.BuildID, o.BuildID())
	o = objects.Object(filepath.Join(dir, "replaced.so"), []byte("nowhere"))
	assert.Empty(t, o.Path())
	assert.ErrorIs(t, o.Err(), ErrReplaced)
	testtool.MakeFIFO(t, filepath.Join(dir, "fifo"))
	for _, path := range []string{dir, filepath.Join(dir, "fifo")} {
		o = objects.Object(path, nil)
		assert.Empty(t, o.Path())
		assert.EqualError(t, o.Err(), path+": not a regular file")
	}

	elsewhere := objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "root/lib/inside.so"))
	assert.Equal(t, filepath.Join(dir, "root/lib/inside.so"), elsewhere.Path())
	assert.NotSame(t, elsewhere, objects.Object("/lib/inside.so", lib.BuildID))
	assert.Same(t, elsewhere, objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "root/lib/inside.so")))
	o = objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "replaced.so"))
	assert.Empty(t, o.Path())
	assert.ErrorIs(t, o.Err(), ErrReplaced)

	without := lib
	without.BuildID = nil
	write(filepath.Join(dir, "without.so"), without)
	o = objects.At("/lib/inside.so", lib.BuildID, filepath.Join(dir, "without.so"))
	assert.Empty(t, o.Path(), "an absent build-id matches no known one")
	assert.ErrorIs(t, o.Err(), ErrReplaced)
	for _, before := range []time.Time{time.Now().Add(-time.Hour), time.Now().Add(time.Hour)} {
		recorded := NewObjects(Options{Before: before, Compile: unwindtest.Compile})
		assert.Equal(t, before.After(time.Now()), recorded.Object(filepath.Join(dir, "without.so"), nil).Path() != "")
		assert.NotEmpty(t, recorded.Object(byID, lib.BuildID).Path())
	}
	was := objects.At("/memfd:code", nil, filepath.Join(dir, "without.so"))
	assert.True(t, was.IsFile())
	require.NoError(t, os.Chtimes(filepath.Join(dir, "without.so"), time.Time{}, time.Now().Add(time.Second)))
	assert.NotSame(t, was, objects.At("/memfd:code", nil, filepath.Join(dir, "without.so")), "it was written to")
	o = objects.Without(filepath.Join(dir, "without.so"), nil, fs.ErrClosed)
	assert.Empty(t, o.Path())
	assert.ErrorIs(t, o.Err(), fs.ErrClosed)
	assert.ErrorIs(t, o.Ready(), fs.ErrClosed)

	inRoot := NewObjects(Options{Symfs: filepath.Join(dir, "root"), Compile: unwindtest.Compile})
	assert.Equal(t, filepath.Join(dir, "root/lib/inside.so"), inRoot.Object("/lib/inside.so", nil).Path())

	vdso := NewObjects(Options{VDSO: func() ([]byte, error) { return lib.Bytes(), nil }, Compile: unwindtest.Compile})
	o = vdso.Object(VDSOName, nil)
	assert.NoError(t, o.Ready())
	bias, ok := o.Bias(&Mapping{Start: 0x7fff00002000, End: 0x7fff00003000, Offset: 0x2000})
	assert.True(t, ok)
	assert.Equal(t, uint64(0x7fff00002000-0x3000), bias)
	assert.ErrorIs(t, objects.Object(VDSOName, nil).Ready(), fs.ErrNotExist)
}

// TestRunByLoader: a program that ld.so was told to run is the process's program, and threads are named after it,
// unless they have another name.
func TestRunByLoader(t *testing.T) {
	file, err := elf.Open("/bin/sh")
	require.NoError(t, err)
	defer file.Close()
	seg := slices.IndexFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	require.NotEqual(t, -1, seg)
	b, err := io.ReadAll(file.Progs[seg].Open())
	require.NoError(t, err)
	interp := strings.TrimRight(string(b), "\x00")
	libc, err := exec.Command("gcc", "-print-file-name=libc.so.6").Output()
	require.NoError(t, err)
	objects := NewObjects(Options{})
	for run, want := range map[string]string{interp: "sh", "/bin/sh": "ld-linux-x86-64", "/no/file": "ld-linux-x86-64"} {
		ps := NewProcesses()
		for i, name := range []string{run, strings.TrimSpace(string(libc)), "/bin/sh", interp} {
			ps.Space(1).Map(uint64(i+1)<<20, 1<<12, 0, objects.Object(name, nil))
		}
		p := ps.Space(1)
		assert.Equal(t, map[bool]string{true: "/bin/sh", false: run}[run == interp], p.Program().Name)
		assert.Equal(t, want, p.Name("ld-linux-x86-64"), run)
		assert.Equal(t, "sh", p.Maps().Name("ld-linux-x86-64."), "gcore's form")
		assert.Equal(t, "worker", p.Name("worker"))
		assert.Equal(t, "ld", p.Name("ld"))
	}
}

func TestProcesses(t *testing.T) {
	objects := NewObjects(Options{})
	a, b := objects.Object("/a", nil), objects.Object("/b", nil)
	ps := NewProcesses()
	name := func(pid int32, addr uint64) string {
		if m := ps.Space(pid).Maps().Find(addr); m != nil {
			return fmt.Sprintf("%s+%#x", m.Object.Name, m.FileOffset(addr))
		}
		return "-"
	}
	ps.SetComm(1, 1, "sh", false)
	ps.Space(1).Map(0x1000, 0x3000, 0, a)
	before := ps.Space(1).Maps()
	ps.Fork(2, 2, 1, 1)
	ps.Space(1).Map(0x2000, 0x1000, 0x7000, b)
	assert.Equal(t, []string{"/a+0x0", "/b+0x7000", "/a+0x2000", "-"},
		[]string{name(1, 0x1000), name(1, 0x2000), name(1, 0x3000), name(1, 0x4000)})
	assert.Equal(t, "/a+0x1000", name(2, 0x2000), "the child has the mappings of the fork")
	assert.Equal(t, "/a", before.Find(0x2000).Object.Name, "what was handed out does not change")
	ps.Space(2).Map(0x1800, 0x100, 0, nil)
	assert.Equal(t, []string{"/a+0x7ff", "-", "/a+0x900"}, []string{name(2, 0x17ff), name(2, 0x1800), name(2, 0x1900)})
	assert.Equal(t, "sh", ps.Comm(2))
	ps.SetComm(2, 2, "prog", true)
	assert.Equal(t, "-", name(2, 0x1000), "exec empties the address space")
	ps.Space(2).Map(0x9000, 0x1000, 0, b)
	ps.Fork(2, 3, 2, 2)
	assert.Equal(t, "prog", ps.Comm(3))
	ps.Fork(2, 3, 2, 99)
	assert.Empty(t, ps.Comm(3), "another thread has the number, of one that is not known")
	assert.Equal(t, "/b+0x0", name(2, 0x9000), "a thread changes nothing")
	ps.Exit(2, 3)
	ps.Exit(2, 2)
	assert.Equal(t, "/b+0x0", name(2, 0x9000), "the last samples may follow the exit")
	for pid := int32(100); pid < 100+keepExited; pid++ {
		ps.Fork(pid, pid, 1, 1)
		ps.Exit(pid, pid)
	}
	assert.NotContains(t, ps.byPID, int32(2))
	assert.Contains(t, ps.byPID, int32(1))
}

// TestInsert compares with an array of a page each.
func TestInsert(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var list []Mapping
	var pages [64]uint64 // file offset + 1, or 0
	o := &Object{}
	for range 2000 {
		start := rng.Uint64N(64)
		end := min(64, start+rng.Uint64N(20))
		var add *Mapping
		if rng.IntN(3) > 0 {
			add = &Mapping{Start: start, End: end, Offset: rng.Uint64N(1000), Object: o}
		}
		list = insert(list, start, end, add)
		for p := start; p < end; p++ {
			pages[p] = 0
			if add != nil {
				pages[p] = add.FileOffset(p) + 1
			}
		}
		maps := Maps{list: list}
		for p, want := range pages {
			got := uint64(0)
			if m := maps.Find(uint64(p)); m != nil {
				got = m.FileOffset(uint64(p)) + 1
			}
			require.Equal(t, want, got)
		}
	}
}

// deepProgram returns a program of a loaded object, and the memory of a stack with depth callers.
func deepProgram(t testing.TB, depth int) (*Maps, *ehelf.Memory) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), prog.Bytes(), 0o666))
	objects := NewObjects(Options{Compile: unwindtest.Compile})
	t.Cleanup(func() { objects.Close() })
	ps := NewProcesses()
	ps.Space(1).Map(0x401000, 0x1000, 0x1000, objects.Object(filepath.Join(dir, "prog"), nil))
	returns := make([]uint64, depth)
	for i := range returns {
		returns[i] = 0x401050
	}
	returns[depth-1] = 0x401010
	return ps.Space(1).Maps(), stack(returns...)
}

// TestAllocations has what Walk is given on the goroutine's stack.
func TestAllocations(t *testing.T) {
	maps, memory := deepProgram(t, 5)
	var walker Walker
	var pcs [64]uint64
	first := *start(0x401050)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		regs, mem := first, *memory
		if n, cause, _ := walker.Walk(maps, &regs, &mem, pcs[:]); n != 6 || cause != Outermost {
			t.Error(n, cause)
		}
	}))
}

func BenchmarkWalk(b *testing.B) {
	const depth = 30
	maps, memory := deepProgram(b, depth)
	var walker Walker
	var pcs [64]uint64
	first := *start(0x401050)
	for b.Loop() {
		regs, mem := first, *memory
		if n, cause, _ := walker.Walk(maps, &regs, &mem, pcs[:]); n != depth+1 || cause != Outermost {
			b.Fatal(n, cause)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/depth, "ns/step")
}

// TestIsFile: names of mappings as the kernel gives them.
func TestIsFile(t *testing.T) {
	objects := NewObjects(Options{})
	for name, want := range map[string]bool{
		"/usr/bin/true": true, "/dev/shm/program": true, "/tmp/gone (deleted)": true,
		"/dev/shm/shared (deleted)": false, "/dev/zero (deleted)": false, "/dev/dri/card0": false, "//anon": false,
		"/memfd:code (deleted)": false, "/SYSV00000000 (deleted)": false, "[heap]": false, VDSOName: false,
	} {
		assert.Equal(t, want, objects.Object(name, nil).IsFile(), name)
	}
}
