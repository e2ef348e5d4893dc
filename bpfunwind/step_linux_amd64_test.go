package bpfunwind

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/testtool"
)

// The long run: the number of steps beside Table.Step.
const stepsEnv = "BPFUNWIND_STEPS"

// rig runs a program with registers and memory of the test's choice, beside Table.Step.
type rig struct {
	*rand.Rand
	u         *Unwinder
	run       *ebpf.Program
	frames    int       // Options.MaxFrames
	maxTime   int64     // Options.MaxTime, ns
	registers *ebpf.Map // with which the program begins
	input     []byte    // their bytes
	states    []byte    // of the unwinder
	arena     []byte    // memory that frames lie in, with holes
	holes     [arenaPages]bool
	base      uint64 // address of the arena
	code      uint64 // run-time address of the table's code

	table    *dwarfcfa.Table
	tables   *Tables
	object   *Loaded
	bias     uint64
	end      uint64 // of the mapping
	view     uint32
	empty    *Loaded // without rows, of the mappings between low and high but for the table's
	low      uint64
	high     uint64
	fate     int
	busy     int    // walks that are in progress
	outside  bool   // a step read other memory than the arena
	began    uint64 // the walk, ns of CLOCK_MONOTONIC
	walks    int
	steps    int
	outcomes [NumOutcomes]int
	stats    Stats         // that the program should have counted
	kinds    [numKinds]int // of records with which steps were taken
}

// What befalls a walk.
const (
	fateForeign  = 1 // the thread runs 32-bit code
	fateRemapped = 2 // the process gets other regions
	fateLate     = 3 // Options.MaxTime is over
)

const (
	arenaPages = 16
	guard      = 1 << 30 // bytes on both sides of the arena that cannot be read
)

// newRig makes memory, and loads the program.
func newRig(t *testing.T, seed uint64, frames int) *rig {
	t.Helper()
	g := &rig{Rand: rand.New(rand.NewPCG(seed, 1)), frames: frames, maxTime: 1e9, code: 0x10_0000_0000}
	g.u = loadForTest(t, Options{MaxFrames: frames, MaxTime: time.Second})
	var err error
	g.registers, err = ebpf.NewMap(&ebpf.MapSpec{Name: "registers", Type: ebpf.Array, KeySize: 4,
		ValueSize: 8 * (abi.NumRegs + 2), MaxEntries: 1,
		Flags: unix.BPF_F_MMAPABLE})
	require.NoError(t, err)
	t.Cleanup(func() { g.registers.Close() })
	g.input, err = mapBytes(g.registers, 4096)
	require.NoError(t, err)
	g.states, err = mapBytes(g.u.maps.states, g.u.maps.cpus*maxSlots*stateLen(frames))
	require.NoError(t, err)
	_, err = g.u.memory.allocate(chunkSize) // so that tables lie in another chunk than the first
	require.NoError(t, err)
	g.empty, err = g.u.AddTables(&Tables{})
	require.NoError(t, err)
	require.NoError(t, g.load(g.program()))
	t.Cleanup(func() { g.run.Close() })

	// The thread stays on the first or on the last CPU: the program reckons with its number.
	var before, last unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	last.Set((runtime.NumCPU() - 1) * int(seed%2))
	require.NoError(t, unix.SchedSetaffinity(0, &last))
	t.Cleanup(func() { unix.SchedSetaffinity(0, &before) })
	area, err := unix.Mmap(-1, 0, 2*guard+arenaPages*4096, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(area) })
	g.arena = area[guard:][:arenaPages*4096]
	require.NoError(t, unix.Mprotect(g.arena, unix.PROT_READ|unix.PROT_WRITE))
	g.base = uint64(uintptr(unsafe.Pointer(&g.arena[0])))
	for page := 2; page < arenaPages; page += 3 {
		g.holes[page] = true
		require.NoError(t, unix.Mprotect(g.arena[page*4096:][:4096], unix.PROT_NONE))
	}
	return g
}

// program returns the program that takes its registers from a map.
func (g *rig) program() asm.Instructions {
	p := &program{maps: g.u.maps, maxFrames: g.frames, maxTime: g.maxTime, copies: NeedsCopy,
		source: Source{Kind: RawTracepoint, ID: 77}}
	p.registers = func(p *program) {
		p.add(asm.Mov.Imm(asm.R1, 0))
		p.lookup(g.registers.FD(), asm.R1, "foreign")
		for reg, slot := range slots {
			p.add(load(asm.R1, asm.R0, 8*reg, asm.DWord), store(asm.R8, int(slot), asm.R1, asm.DWord))
		}
		p.add(load(asm.R1, asm.R0, 8*abi.NumRegs, asm.DWord), store(asm.R8, stateExact, asm.R1, asm.Word))
		p.add(load(asm.R1, asm.R0, 8*abi.NumRegs+8, asm.Word), load(asm.R2, asm.R0, 8*abi.NumRegs+12, asm.Word),
			asm.JEq.Imm(asm.R2, fateForeign, "foreign"), asm.JEq.Imm(asm.R1, 0, "ownframes"),
			store(asm.R8, stateHeader+headerKernel, asm.R1, asm.Byte), store(asm.R8, stateHeader+headerCount, asm.R1, asm.Word))
		p.label("ownframes")
		p.add(asm.JNE.Imm(asm.R2, fateLate, "intime"), asm.Mov.Imm(asm.R1, 1),
			store(asm.R8, stateDeadline, asm.R1, asm.DWord))
		p.label("intime")
		p.add(asm.JNE.Imm(asm.R2, fateRemapped, "hooked"), move(asm.R1, asm.R7), asm.RSh.Imm(asm.R1, 32))
		p.lookup(p.maps.processes.FD(), asm.R1, "hooked")
		p.add(load(asm.R1, asm.R0, viewGeneration, asm.Word), asm.Add.Imm(asm.R1, 1),
			store(asm.R0, viewGeneration, asm.R1, asm.Word))
		p.label("hooked")
	}
	return p.emit()
}

// load loads a program instead of the one before.
func (g *rig) load(list asm.Instructions) error {
	run, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "unwind", Type: ebpf.RawTracepoint, Instructions: list,
		License: license})
	if err != nil {
		return err
	}
	if g.run != nil {
		g.run.Close()
	}
	g.run = run
	return nil
}

// monotonic returns the time of CLOCK_MONOTONIC in ns.
func monotonic() uint64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return uint64(now.Nano())
}

// ReadWord reads this process's memory, which is the arena's mostly.
func (g *rig) ReadWord(addr uint64) (uint64, bool) {
	off := addr - g.base
	if off > uint64(len(g.arena)-8) {
		return g.elsewhere(addr)
	}
	if g.holes[off/4096] || g.holes[(off+7)/4096] {
		return 0, false
	}
	return binary.LittleEndian.Uint64(g.arena[off:]), true
}

// elsewhere reads a word that lies elsewhere: random words may be addresses.
func (g *rig) elsewhere(addr uint64) (uint64, bool) {
	if addr-g.base+guard < 2*guard || addr >= maxAddress {
		return 0, false
	}
	var b [8]byte
	g.outside = true
	n, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &b[0], Len: 8}},
		[]unix.RemoteIovec{{Base: uintptr(addr), Len: 8}}, 0)
	return binary.LittleEndian.Uint64(b[:]), n == 8 && err == nil
}

// use maps a table's code into this process.
func (g *rig) use(t *testing.T, table *dwarfcfa.Table) {
	t.Helper()
	var err error
	g.table = table
	g.tables, err = Make(table)
	require.NoError(t, err)
	old := g.object
	g.object, err = g.u.AddTables(g.tables)
	require.NoError(t, err)
	low := uint64(table.Low()) &^ 4095
	g.bias = g.code - low
	g.end = (uint64(table.High())+g.bias)&^4095 + 0x2000
	g.view, err = g.u.MapProcess(uint32(os.Getpid()), g.neighbours(Mapping{g.code, g.end, g.bias, g.object}))
	require.NoError(t, err)
	// Behind the list lies what a search that goes too far would take.
	r := g.u.processes[uint32(os.Getpid())]
	if behind := g.u.memory.chunks[r.chunk].bytes[int(r.offset)+regionSize*r.number:]; len(behind) > 0 {
		clear(behind[:regionSize])
	}
	if old != nil {
		require.NoError(t, g.u.RemoveTables(old))
	}
}

// neighbours returns the mapping among others, which have no rows: as many as make the search short or long.
func (g *rig) neighbours(m Mapping) []Mapping {
	before, after := 0, 0
	own := len(m.appendRegions(nil)) / regionSize
	round := max(0, min(maxRegions, (1+2*g.IntN(2))<<g.IntN(15))-own) // where searches end
	switch n := []int{0, 1, round, round, 65 - min(own, 65), 513 - min(own, 513), maxRegions - own}[g.IntN(7)]; g.IntN(4) {
	case 0:
		before = n
	case 1:
		after = n
	default:
		before = g.IntN(n + 1)
		after = n - before
	}
	var list []Mapping
	for i := range before {
		addr := m.Start - uint64(before-i)*0x1000
		list = append(list, Mapping{addr, addr + 0x1000, 0, g.empty})
	}
	list = append(list, m)
	for i := range after {
		addr := m.End + uint64(i)*0x1000
		list = append(list, Mapping{addr, addr + 0x1000, 0, g.empty})
	}
	g.low, g.high = list[0].Start, list[len(list)-1].End
	return list
}

// pc returns a run-time address, of a row mostly.
func (g *rig) pc() uint64 {
	switch g.IntN(40) {
	case 0:
		return 0
	case 1:
		return g.code + uint64(g.Int64N(int64(g.end-g.code)+4096)) - 2048
	case 2, 3:
		border := min(uint64(g.IntN(16))<<g.IntN(14), (g.high-g.low)/0x1000) // where searches turn
		return g.low + 0x1000*border + uint64(g.IntN(3)) - 1
	case 4:
		return []uint64{g.low, g.high, g.code, g.end}[g.IntN(4)] + uint64(g.IntN(3)) - 1
	}
	r := g.table.Ranges[g.IntN(len(g.table.Ranges))]
	if g.IntN(16) == 0 { // the end of a page
		return (uint64(r.Start) + g.bias) | (pageSize - 1) - uint64(g.IntN(4))
	}
	return uint64(r.Start) + g.bias + uint64(g.Int64N(int64(r.End-r.Start)+1))
}

// value returns a word: an address in the arena mostly.
func (g *rig) value() uint64 {
	switch g.IntN(24) {
	case 0:
		return g.Uint64()
	case 1:
		return ^uint64(0)
	case 2:
		return g.base + uint64(g.IntN(len(g.arena)))
	}
	return g.base + 8*uint64(g.IntN(len(g.arena)/8))
}

// fill writes words to the arena.
func (g *rig) fill() {
	for page := range arenaPages {
		if g.holes[page] {
			continue
		}
		for off := page * 4096; off < (page+1)*4096; off += 8 {
			word := g.value()
			if g.IntN(2) == 0 {
				word = g.pc()
			}
			binary.LittleEndian.PutUint64(g.arena[off:], word)
		}
	}
}

// walk takes one walk, and returns an error if the program does not do what Table.Step does.
func (g *rig) walk() error {
	regs := abi.Regs{Valid: abi.AllRegs, Exact: uint16(g.IntN(2))}
	for i := range regs.Reg {
		regs.Reg[i] = g.value()
	}
	if g.IntN(4) == 0 {
		regs.Reg[abi.RBP] = 0
	}
	if g.IntN(10) == 0 {
		lost := saved[g.IntN(len(saved))]
		regs.Reg[lost], regs.Valid = ^uint64(0), regs.Valid&^(1<<lost)
	}
	regs.Reg[abi.RIP] = g.pc()
	for i, v := range regs.Reg {
		binary.LittleEndian.PutUint64(g.input[8*i:], v)
	}
	binary.LittleEndian.PutUint64(g.input[8*abi.NumRegs:], uint64(regs.Exact))
	kernel := g.IntN(4) * g.IntN(2) * g.IntN(maxKernel/3)
	g.fate = max(0, g.IntN(40)-37)
	binary.LittleEndian.PutUint32(g.input[8*abi.NumRegs+8:], uint32(kernel))
	binary.LittleEndian.PutUint32(g.input[8*abi.NumRegs+12:], uint32(g.fate))
	if g.fate == fateForeign {
		kernel = 0 // they are not told of
	}
	defer g.u.use(uint32(os.Getpid()), g.u.processes[uint32(os.Getpid())]) // whatever the walk did to it
	g.busy = max(0, g.IntN(40)-35)
	for i := range g.busy { // of each CPU
		for cpu := range g.u.maps.cpus {
			binary.LittleEndian.PutUint64(g.states[(cpu*maxSlots+i)*stateLen(g.frames)+stateBusy:], 1)
		}
	}
	for i := range g.u.maps.cpus * maxSlots { // what walks before have left
		rest := g.states[i*stateLen(g.frames)+stateHeader:][:headerSize]
		for offset := range rest {
			rest[offset] = byte(g.IntN(3))
		}
	}
	defer func() {
		for i := range g.busy {
			for cpu := range g.u.maps.cpus {
				clear(g.states[(cpu*maxSlots+i)*stateLen(g.frames)+stateBusy:][:8])
			}
		}
	}()
	g.outside = false
	g.began = monotonic()
	returned, err := g.run.Run(&ebpf.RunOptions{})
	if err != nil {
		return err
	}
	number := 0
	var verdict error
	err = g.u.Read(0, func(s *Sample) {
		number++
		verdict = g.compare(&regs, s, kernel)
		if verdict == nil && (returned != 0) != NeedsCopy.Has(s.Outcome) {
			verdict = fmt.Errorf("the program returned %d", returned)
		}
		if verdict != nil {
			verdict = fmt.Errorf("%v after %d frames: %w", s.Outcome, len(s.User), verdict)
		}
	})
	switch {
	case err != nil:
		return err
	case verdict != nil:
		return verdict
	case g.busy == maxSlots:
		g.stats.Nested++
		if number != 0 || returned != returnCopy {
			return fmt.Errorf("%d samples, returned %d, without a state", number, returned)
		}
	case number != 1:
		return fmt.Errorf("%d samples", number)
	}
	return nil
}

// compare takes the walk's steps with the table, and looks whether the program's end is allowed there.
func (g *rig) compare(regs *abi.Regs, s *Sample, kernel int) error {
	g.walks++
	g.outcomes[s.Outcome]++
	g.stats.Outcomes[s.Outcome]++
	g.stats.Frames += uint64(len(s.User))
	if s.Source != 77 || int(s.PID) != os.Getpid() || int(s.TID) != unix.Gettid() || s.View != g.view ||
		s.Period != 0 ||
		int(s.CPU) >= g.u.maps.cpus || s.Time < g.began || s.Time > monotonic() ||
		len(s.User) > g.frames || len(s.Kernel) != kernel {
		return fmt.Errorf("sample %+v", s)
	}
	if g.fate != 0 || s.Outcome == Foreign || s.Outcome == Remapped {
		if want := [...]Outcome{fateForeign: Foreign, fateRemapped: Remapped}[g.fate]; s.Outcome != want ||
			g.fate == fateForeign && len(s.User) > 0 {
			return fmt.Errorf("want %v", want)
		}
		return nil
	}
	stale, kept := false, false
	for i, pc := range s.User {
		if pc != regs.Reg[abi.RIP] {
			return fmt.Errorf("frame %d: pc %#x, want %#x", i, pc, regs.Reg[abi.RIP])
		}
		rec := g.tables.lookup(regs.LookupPC() - g.bias)
		kind := rec[byteKind] &^ flagStale
		before := *regs
		status := g.table.Step(regs, g, g.bias)
		if i == len(s.User)-1 && s.Outcome != FrameLimit && s.Outcome != NullReturn && s.Outcome != Switched {
			return g.last(s, status, &before, regs, rec, stale, kept)
		}
		g.steps++
		g.kinds[kind]++
		if status == abi.StatusBadRegister && i == len(s.User)-1 && lost(&before, registerAt(rec[byteRA])) {
			return nil // the return address is lost: the program sees it at the next frame
		}
		if status != abi.StatusOK {
			return fmt.Errorf("frame %d: a step, want %v: record %x, registers %x", i, status, rec, before.Reg)
		}
		kept = kept || kind == kindVolatile && before.Exact == 0
		stale = stale && kind != kindSignal || rec[byteKind]&flagStale != 0
		if kind != kindSignal { // calls leave some registers as they are: see Sample.Kept
			for reg := range regs.Reg {
				if isVolatile(reg) && !stale {
					regs.Reg[reg], regs.Valid = before.Reg[reg], regs.Valid|1<<reg
				}
			}
		}
	}
	if s.Kept != kept {
		return fmt.Errorf("kept %v, want %v", s.Kept, kept)
	}
	if s.Outcome == NullReturn || s.Outcome == Switched {
		zero := regs.Reg[abi.RBP] == 0 && regs.Valid&(1<<abi.RBP) != 0
		if regs.Reg[abi.RIP] != 0 || regs.Exact != 0 || zero != (s.Outcome == NullReturn) {
			return fmt.Errorf("pc %#x, rbp %#x", regs.Reg[abi.RIP], regs.Reg[abi.RBP])
		}
		return nil
	}
	if s.Outcome != FrameLimit || len(s.User) != g.frames {
		return fmt.Errorf("no frame")
	}
	state := g.states[(int(s.CPU)*maxSlots+g.busy)*stateLen(g.frames):]
	if got := binary.LittleEndian.Uint32(state[stateExact:]); got != uint32(regs.Exact) {
		return fmt.Errorf("exact %d, want %d", got, regs.Exact)
	}
	for reg, slot := range slots {
		want := regs.Reg[reg]
		if regs.Valid&(1<<reg) == 0 {
			want = ^uint64(0)
		}
		if got := word(state, int(slot)); got != want && !(isVolatile(reg) && stale) {
			return fmt.Errorf("%s is %#x, want %#x", abi.RegName(reg), got, want)
		}
	}
	return nil
}

// last judges the outcome of the last frame.
func (g *rig) last(s *Sample, status abi.Status, before, after *abi.Regs, rec record, stale, kept bool) error {
	pc := before.LookupPC()
	mapped := pc >= g.low && pc < g.high
	kind := rec[byteKind] &^ flagStale
	ok := false
	switch s.Outcome {
	case EndOfStack:
		ok = status == abi.StatusOutermost
	case NoRow:
		ok = status == abi.StatusNoInfo && mapped
	case NoRegion:
		ok = status == abi.StatusNoInfo && !mapped && (pc != ^uint64(0) || before.Exact != 0)
	case NoRecord:
		ok = kind == kindNoRecord
	case Unreadable:
		ok = status == abi.StatusUnreadable || g.outside // memory that must be fetched first
	case Incomplete:
		ok = status == abi.StatusOK && unread(rec, after) || status == abi.StatusBadRegister &&
			lost(before, registerAt(rec[byteRA]))
	case LostRegister:
		ok = status == abi.StatusBadRegister || lost(before, registerAt(rec[byteBase])) || kind == kindVolatile && stale ||
			status == abi.StatusOK && after.Reg[abi.RIP] == ^uint64(0) // which stands for a lost return address
	}
	if !ok {
		return fmt.Errorf("want %v: record %x, registers %x", status, rec, before.Reg)
	}
	return nil
}

// lost reports whether the program takes a register for lost.
func lost(regs *abi.Regs, reg int) bool {
	return regs.Valid&(1<<reg) == 0 || regs.Reg[reg] == ^uint64(0)
}

// registerAt returns the register of a slot, or another one.
func registerAt(slot byte) int {
	reg, _ := slotRegister(slot)
	return reg
}

// unread reports whether the word of a register that a record names was not readable.
func unread(rec record, after *abi.Regs) bool {
	if rec[byteKind] == kindSignal {
		return after.Valid != abi.AllRegs
	}
	s, _ := rec.decode()
	if s.places[columnRIP] != wordBelowCFA { // the block may reach further than the words
		return true
	}
	for i, p := range s.places {
		if p.isWord() && after.Valid&(1<<register(i)) == 0 {
			return true
		}
	}
	return false
}

// tablesFor returns tables of all kinds.
func (g *rig) tablesFor(t *testing.T, real []*dwarfcfa.Table, i int) *dwarfcfa.Table {
	switch {
	case i%8 == 0 && len(real) > 0:
		return real[i/8%len(real)]
	case i%8 == 1:
		return randomTable(g.Rand, 40)
	case i%8 == 2:
		return pagesTable(g.Rand)
	}
	return stepTable(g.Rand, 1+g.IntN(1+g.IntN(1000)))
}

// realTables returns tables of files.
func realTables(t *testing.T, names ...string) (tables []*dwarfcfa.Table) {
	for _, name := range names {
		o, err := dwarfcfa.Open(name)
		require.NoError(t, err)
		table, _, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
		require.NoError(t, err)
		require.NoError(t, o.Close())
		tables = append(tables, table)
	}
	return tables
}

// TestSteps runs the program on random tables, registers and memory, step by step and over several frames, beside
// Table.Step.
func TestSteps(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	steps := 20000
	if n := os.Getenv(stepsEnv); n != "" {
		var err error
		steps, err = strconv.Atoi(n)
		require.NoError(t, err)
	}
	real := realTables(t, "/lib/x86_64-linux-gnu/libc.so.6")
	for _, frames := range testtool.Sweep([]int{12, 1, 2, 3}) {
		g := newRig(t, uint64(frames), frames)
		for i := 0; g.steps < steps/4; i++ {
			g.use(t, g.tablesFor(t, real, i))
			g.fill()
			for range 500 {
				require.NoError(t, g.walk(), "table %d, walk %d", i, g.walks)
			}
		}
		t.Logf("%d frames: %d walks, %d steps; ends %v; by kind of record %v", frames, g.walks, g.steps, g.outcomes, g.kinds)
		for o := EndOfStack; o <= FrameLimit; o++ {
			assert.NotZero(t, g.outcomes[o], "%v", o)
		}
		assert.NotZero(t, g.outcomes[Switched])
		for _, kind := range []int{kindPlain, kindShifted, kindVolatile, kindDeref, kindDRAP, kindPLT, kindSignal} {
			assert.NotZero(t, g.kinds[kind], "kind %d", kind)
		}
	}
}
