package bpfunwind

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// TestKilled: no program and no map outlives a process that is killed.
func TestKilled(t *testing.T) {
	const variable = "BPFUNWIND_TEST_KILLED"
	if os.Getenv(variable) != "" {
		keepBusy(t)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for round := range testtool.Few(20, 5) {
		cmd := exec.Command(self, "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), variable+"=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		var program ebpf.ProgramID
		var number int
		var mapID ebpf.MapID
		_, err = fmt.Sscan(line, &program, &mapID, &number)
		require.NoError(t, err, line)
		time.Sleep(time.Duration(round) * 3 * time.Millisecond)
		require.NoError(t, cmd.Process.Kill())
		cmd.Wait()
		gone := func() bool {
			p, err := ebpf.NewProgramFromID(program)
			if err == nil {
				p.Close()
				return false
			}
			m, err := ebpf.NewMapFromID(mapID)
			if err == nil {
				m.Close()
				return false
			}
			return true
		}
		require.Eventually(t, gone, 10*time.Second, 10*time.Millisecond, "round %d", round)
	}
}

// keepBusy walks at each switch of this process's threads until it is killed.
func keepBusy(t *testing.T) {
	u, err := Load(Options{})
	require.NoError(t, err)
	o, err := u.AddTables(&Tables{})
	require.NoError(t, err)
	_, err = u.MapProcess(uint32(os.Getpid()), []Mapping{{0x400000, 0x800000, 0, o}})
	require.NoError(t, err)
	p, err := u.NewProgram(Source{Kind: RawTracepoint})
	require.NoError(t, err)
	_, err = p.AttachTracepoint("sched_switch")
	require.NoError(t, err)
	info, err := p.loaded.Info()
	require.NoError(t, err)
	id, _ := info.ID()
	about, err := u.maps.chunks.Info()
	require.NoError(t, err)
	mapID, _ := about.ID()
	fmt.Println(id, mapID, len(u.memory.chunks))
	for {
		require.NoError(t, u.Read(time.Millisecond, func(*Sample) {}))
	}
}

// TestFull: what is full is said, and what was there goes on.
func TestFull(t *testing.T) {
	u := loadForTest(t, Options{MaxProcesses: 4})
	o, err := u.AddTables(&Tables{})
	require.NoError(t, err)
	one := []Mapping{{0x400000, 0x401000, 0, o}}
	full := 0
	for pid := range uint32(8) {
		if _, err := u.MapProcess(1000+pid, one); err != nil {
			assert.ErrorContains(t, err, fmt.Sprint("process ", 1000+pid))
			full++
		}
	}
	assert.Equal(t, 4, full)
	require.NoError(t, u.Forget(1000))
	require.NoError(t, u.Forget(1000))
	_, err = u.MapProcess(1007, one)
	require.NoError(t, err)
	require.Error(t, u.RemoveTables(o))

	many := make([]Mapping, 65000)
	for i := range many {
		many[i] = Mapping{uint64(i+1) * 0x2000, uint64(i+1)*0x2000 + 0x1000, 0, o}
	}
	_, err = u.MapProcess(1007, many)
	assert.ErrorContains(t, err, "more than 16384 regions")
	_, err = u.MapProcess(1007, many[:maxRegions])
	assert.NoError(t, err)
	for _, bad := range [][]Mapping{{many[1], many[0]}, {many[0], many[0]}, {{0x1000, 0x1000, 0, o}},
		{{0x1010, 0x2000, 0, o}}, {{0x1000, 0x2000, 8, o}},
		{{0x1000, 0x2000, 0, nil}}, {{0x1000, 1 << 63, 0, o}}} {
		_, err = u.MapProcess(1007, bad)
		assert.Error(t, err, "%+v", bad)
	}
	for pid := range uint32(8) {
		require.NoError(t, u.Forget(1000+pid))
	}
	require.NoError(t, u.RemoveTables(o))
	free := uint32(0)
	for _, b := range u.memory.free {
		free += b.size
	}
	assert.EqualValues(t, len(u.memory.chunks)*chunkSize, free, "memory that was not given back")
}

// TestOptions: options that cannot be met are errors.
func TestOptions(t *testing.T) {
	for _, opt := range []Options{{MaxFrames: -1}, {MaxFrames: 1 << 17}, {MaxTime: -1}, {MaxTime: 2 * time.Second},
		{MaxProcesses: -1}, {RingSize: 5000},
		{RingSize: 1024}} {
		_, err := Load(opt)
		assert.Error(t, err, "%+v", opt)
	}
}

// circleTable is of functions that keep rbp.
func circleTable() *dwarfcfa.Table {
	row := dwarfcfa.Row{CFA: dwarfcfa.CFARule{Kind: dwarfcfa.CFARegOffset, Reg: abi.RBP, Offset: 16}}
	for reg := range row.Regs {
		row.Regs[reg].Kind = dwarfcfa.RuleUndefined
	}
	for _, reg := range saved {
		row.Regs[reg].Kind = dwarfcfa.RuleSameValue
	}
	row.Regs[abi.RSP].Kind = dwarfcfa.RuleValOffset
	row.Regs[abi.RBP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -16}
	row.Regs[abi.RIP] = dwarfcfa.RegRule{Kind: dwarfcfa.RuleOffset, Offset: -8}
	return &dwarfcfa.Table{Ranges: []dwarfcfa.Range{{Start: 0x1000, End: 0x2000}}, Rows: []dwarfcfa.Row{row},
		Exprs: make([]dwarfcfa.Expr, 1)}
}

// TestCircle: stacks that lead in a circle end at the limits.
func TestCircle(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := newRig(t, 1, 4000)
	g.use(t, circleTable())
	for i, word := range []uint64{g.base + 0x100, g.code + 0x10} { // rbp leads to itself
		binary.LittleEndian.PutUint64(g.arena[0x100+8*i:], word)
	}
	binary.LittleEndian.PutUint64(g.input[8*abi.RBP:], g.base+0x100)
	binary.LittleEndian.PutUint64(g.input[8*abi.RIP:], g.code+0x10)
	for _, c := range []struct {
		time int64
		want Outcome
	}{{1e9, FrameLimit}, {1, TimeLimit}} {
		g.maxTime = c.time
		require.NoError(t, g.load(g.program()))
		returned, err := g.run.Run(&ebpf.RunOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, returnCopy, returned)
		samples := 0
		require.NoError(t, g.u.Read(0, func(s *Sample) {
			samples++
			assert.Equal(t, c.want, s.Outcome)
			assert.LessOrEqual(t, len(s.User), 4000)
			assert.GreaterOrEqual(t, len(s.User), 2*(callsPerTime-1))
			for _, pc := range s.User {
				assert.Equal(t, g.code+0x10, pc)
			}
		}))
		assert.Equal(t, 1, samples)
	}
}

// TestLargeFrame: a row of a frame above 2 GB has no record.
func TestLargeFrame(t *testing.T) {
	s := step{kind: stepFrame, cfa: cfa{reg: abi.RSP, off: 1<<31 - 8}}
	s.places[columnRSP], s.places[columnRIP] = place{kind: placeCFA}, wordBelowCFA
	assert.EqualValues(t, kindPlain, encode(s)[byteKind])
	s.cfa.off = 1 << 31
	assert.Equal(t, record{kindNoRecord}, encode(s))
}

// TestLost: samples that a ring has no room for are counted.
func TestLost(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := newRig(t, 3, 5)
	g.use(t, stepTable(g.Rand, 50))
	g.fill()
	runs := uint64(40000)
	for range runs {
		_, err := g.run.Run(&ebpf.RunOptions{})
		require.NoError(t, err)
	}
	read, bytes := uint64(0), uint64(0)
	require.NoError(t, g.u.Read(0, func(s *Sample) {
		read++
		bytes += 48 + 8*uint64(len(s.User)) // of the ring, the sample and its frames
	}))
	stats, err := g.u.Stats()
	require.NoError(t, err)
	assert.NotZero(t, stats.Lost)
	assert.Equal(t, bytes, stats.Bytes)
	assert.Equal(t, runs, read+stats.Lost)
}

// TestRemap changes the regions of a process at each moment of its walks, and uses the memory of the old ones for
// others: a stack that claims to be whole is.
func TestRemap(t *testing.T) {
	w := newWorkload(t, "s", 2000, 100, 4000)
	pid := uint32(w.cmd.Process.Pid)
	var list []Mapping
	for _, c := range w.s.views[w.s.u.view] {
		list = append(list, c.Mapping)
	}
	scribble, err := w.s.u.AddTables(&Tables{})
	require.NoError(t, err)
	stop, stopped := make(chan bool), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				stopped <- n
				return
			default:
			}
			w.s.u.MapProcess(1, []Mapping{{0x1000 * uint64(n%7+1), 1 << 46, 0, scribble}}) // where the regions were
			w.s.u.MapProcess(pid, list)
			w.s.u.Forget(1)
		}
	}()
	var want []uint64
	outcomes := map[Outcome]int{}
	w.s.onSample = func(s *Sample) {
		outcomes[s.Outcome]++
		switch {
		case s.Outcome != EndOfStack || len(s.User) < 2000: // also its begin and its end
		case want == nil:
			want = slices.Clone(s.User)
		case !slices.Equal(want, s.User):
			t.Errorf("%x instead of %x", s.User, want)
		}
	}
	p, err := w.s.u.NewProgram(Source{Kind: RawTracepoint})
	require.NoError(t, err)
	defer p.Close()
	tracepoint, err := p.AttachTracepoint("sys_enter")
	require.NoError(t, err)
	defer tracepoint.Close()
	w.run(t, p)
	close(stop)
	t.Logf("%d changes; %v", <-stopped, outcomes)
	assert.Greater(t, outcomes[EndOfStack], 1000)
	for o := range outcomes {
		assert.Contains(t, []Outcome{EndOfStack, Remapped, NoRegion}, o)
	}
}

// TestExecs samples a shell that starts many programs.
func TestExecs(t *testing.T) {
	s := newSession(t, Options{})
	s.sample(4999, Source{Kernel: true}, 0)
	outcomes := map[Outcome]int{}
	s.onSample = func(w *Sample) { outcomes[w.Outcome]++ }
	s.run("/bin/sh", "-c", strings.Repeat("/bin/true; ", 300))
	stats, err := s.u.Stats()
	require.NoError(t, err)
	t.Logf("%v; %+v", outcomes, stats)
	assert.Zero(t, stats.Lost+stats.Nested)
	assert.NotZero(t, outcomes[EndOfStack])
	assert.Zero(t, outcomes[Damaged])
}

// TestNested walks at probes and at clocks that interrupt them.
func TestNested(t *testing.T) {
	w := newWorkload(t, "m", 8, 100, 30000)
	w.s.sample(20000, Source{ID: 1}, 0)
	by := [2]map[Outcome]int{{}, {}}
	w.s.onSample = func(s *Sample) { by[s.Source][s.Outcome]++ }
	p, err := w.s.u.NewProgram(Source{Kind: Probe})
	require.NoError(t, err)
	defer p.Close()
	uprobe(t, p, "/lib/x86_64-linux-gnu/libc.so.6", "malloc")
	_, _, stats := w.run(t, p)
	t.Logf("probes %v; clock %v", by[0], by[1])
	assert.Zero(t, stats.Lost+stats.Nested)
	assert.GreaterOrEqual(t, by[0][EndOfStack]+by[0][Remapped], 30000)
	assert.Greater(t, by[1][EndOfStack], 10)
}
