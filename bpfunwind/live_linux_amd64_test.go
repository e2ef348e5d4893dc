package bpfunwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/profile/perfevent"
	"github.com/ehasm/ehasm/perfdata"
)

// session samples commands: a small profiler.
type session struct {
	t       *testing.T
	u       *Unwinder
	files   map[string]*file
	wanted  map[uint32]bool
	dirty   map[uint32]bool
	views   map[uint32][]code // by number
	decoder perfdata.Decoder

	side     []perfRing // mappings and processes
	samples  []perfRing // with copies of stacks, or none
	onSample func(*Sample)
	onCopy   func(*perfdata.Sample)
}

// file is an object.
type file struct {
	object *Loaded
	table  *dwarfcfa.Table
	loads  []elf.ProgHeader
	vdso   bool
}

// code is a mapping of a process.
type code struct {
	Mapping
	table *dwarfcfa.Table
}

type perfRing struct {
	event *perfevent.Event
	ring  *perfevent.Ring
	as    *perfdata.Event
}

// newSession watches which code processes have.
func newSession(t *testing.T, opt Options) *session {
	s := &session{t: t, u: loadForTest(t, opt), files: map[string]*file{}, wanted: map[uint32]bool{},
		dirty: map[uint32]bool{},
		views: map[uint32][]code{}, onSample: func(*Sample) {}, onCopy: func(*perfdata.Sample) {}}
	s.side = s.open(perfevent.Attr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_DUMMY,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitComm | unix.PerfBitCommExec | unix.PerfBitTask}, 1<<20)
	return s
}

// open opens an event on each CPU.
func (s *session) open(attr perfevent.Attr, size int) (rings []perfRing) {
	attr.Sample_type |= unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU
	attr.Bits |= unix.PerfBitSampleIDAll | unix.PerfBitUseClockID
	attr.Clockid = unix.CLOCK_MONOTONIC
	for cpu := range runtime.NumCPU() {
		event, err := perfevent.Open(&attr, perfevent.AllThreads, cpu)
		require.NoError(s.t, err)
		ring, err := event.Map(size)
		require.NoError(s.t, err)
		s.t.Cleanup(func() { ring.Close(); event.Close() })
		as := perfdata.NewEvent(unsafe.Slice((*byte)(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)))
		rings = append(rings, perfRing{event, ring, as})
	}
	return rings
}

// sample opens a clock of a frequency in Hz, for which the program walks.
func (s *session) sample(frequency uint64, source Source, copied uint32) {
	attr := perfevent.Attr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: frequency,
		Bits: unix.PerfBitFreq | unix.PerfBitDisabled | unix.PerfBitExcludeCallchainUser}
	size := 1 << 16
	if copied > 0 {
		attr.Sample_type = unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER
		attr.Sample_regs_user, attr.Sample_stack_user = perfevent.RegsUser, copied
		size = 1 << 25
	}
	p, err := s.u.NewProgram(source)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { p.Close() })
	s.samples = s.open(attr, size)
	for _, e := range s.samples {
		require.NoError(s.t, p.Attach(e.event.FD()))
		require.NoError(s.t, e.event.Enable())
	}
}

// run runs a command to its end.
func (s *session) run(name string, args ...string) {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.t.TempDir()
	require.NoError(s.t, cmd.Start())
	s.wanted[uint32(cmd.Process.Pid)] = true
	s.refresh(uint32(cmd.Process.Pid))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for over := false; !over; {
		select {
		case err := <-ended:
			require.NoError(s.t, err, "%s %v", name, args)
			over = true
		default:
		}
		s.pump()
	}
}

// pump reads all rings.
func (s *session) pump() {
	s.drain(s.side, func(r perfdata.Record) {
		switch r := r.(type) {
		case *perfdata.Task:
			child, parent := uint32(r.PID), uint32(r.PPID)
			switch {
			case r.Type == unix.PERF_RECORD_FORK && child != parent && s.wanted[parent]:
				s.wanted[child] = true
				require.NoError(s.t, s.u.Fork(child, parent))
			case r.Type == unix.PERF_RECORD_EXIT && r.PID == r.TID:
				require.NoError(s.t, s.u.Forget(child))
			}
		case *perfdata.Mmap:
			if pid := uint32(r.PID); s.wanted[pid] && r.Exec {
				s.dirty[pid] = true
			}
		}
	})
	for pid := range s.dirty {
		s.refresh(pid)
	}
	clear(s.dirty)
	require.NoError(s.t, s.u.Read(2*time.Millisecond, s.onSample))
	s.drain(s.samples, func(r perfdata.Record) {
		if sample, ok := r.(*perfdata.Sample); ok && s.wanted[uint32(sample.PID)] {
			s.onCopy(sample)
		}
	})
}

// drain reads records in the order of their time: a fork on one CPU comes before what the child does on another.
func (s *session) drain(list []perfRing, f func(perfdata.Record)) {
	rings := make([]*perfevent.Ring, len(list))
	for i := range list {
		rings[i] = list[i].ring
	}
	order := perfevent.NewOrder(rings, func(i int, raw []byte) uint64 { return list[i].as.Time(raw) })
	order.Refresh()
	for i, raw := order.Next(math.MaxUint64); raw != nil; i, raw = order.Next(math.MaxUint64) {
		record, err := s.decoder.Decode(raw, list[i].as)
		require.NoError(s.t, err)
		f(record)
		order.Done(i)
	}
	order.Free()
	for _, r := range rings {
		require.NoError(s.t, r.Err())
	}
}

// refresh reads which code a process has.
func (s *session) refresh(pid uint32) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return // it has ended
	}
	var list []code
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var start, end, offset, inode uint64
		var prot, device, name string
		fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &start, &end, &prot, &offset, &device, &inode)
		if column := strings.IndexAny(lines.Text(), "/["); column > 0 {
			name = lines.Text()[column:]
		}
		if len(prot) < 3 || prot[2] != 'x' || inode == 0 && name != "[vdso]" {
			continue
		}
		f := s.file(device+name, fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, start, end), name == "[vdso]")
		if f.object == nil {
			continue
		}
		for _, load := range f.loads {
			if f.vdso || load.Flags&elf.PF_X != 0 && offset&^4095 == load.Off&^4095 {
				bias := start - offset - (load.Vaddr - load.Off)
				list = append(list, code{Mapping{start, end, bias, f.object}, f.table})
				break
			}
		}
	}
	mappings := make([]Mapping, len(list))
	for i, c := range list {
		mappings[i] = c.Mapping
	}
	if len(mappings) == 0 {
		return
	}
	view, err := s.u.MapProcess(pid, mappings)
	require.NoError(s.t, err)
	s.views[view] = list
}

// file returns the object of a file, with no table if it has none.
func (s *session) file(key, path string, vdso bool) *file {
	if f := s.files[key]; f != nil {
		return f
	}
	f := &file{vdso: vdso}
	image, err := os.ReadFile(path)
	if vdso {
		image, err = ownVDSO()
	}
	if err != nil {
		return f // the mapping has changed meanwhile
	}
	s.files[key] = f
	o, err := dwarfcfa.NewFile(key, bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return f
	}
	parsed, err := elf.NewFile(bytes.NewReader(image))
	require.NoError(s.t, err)
	for _, p := range parsed.Progs {
		if p.Type == elf.PT_LOAD {
			f.loads = append(f.loads, p.ProgHeader)
		}
	}
	if f.table, _, err = dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{}); err != nil {
		return f
	}
	tables, err := Make(f.table)
	require.NoError(s.t, err)
	f.object, err = s.u.AddTables(tables)
	require.NoError(s.t, err)
	return f
}

// ownVDSO returns the object that the kernel gives all processes.
func ownVDSO() ([]byte, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			var start, end int64
			fmt.Sscanf(line, "%x-%x", &start, &end)
			mem, err := os.Open("/proc/self/mem")
			if err != nil {
				return nil, err
			}
			defer mem.Close()
			b := make([]byte, end-start)
			_, err = io.ReadFull(io.NewSectionReader(mem, start, end-start), b)
			return b, err
		}
	}
	return nil, os.ErrNotExist
}

// copied is a copy of a stack.
type copied struct {
	base  uint64
	bytes []byte
}

func (c copied) ReadWord(addr uint64) (uint64, bool) {
	if off := addr - c.base; off <= uint64(len(c.bytes)) && uint64(len(c.bytes))-off >= 8 {
		return binary.LittleEndian.Uint64(c.bytes[off:]), true
	}
	return 0, false
}

// reference walks a copy with Table.Step, keeping registers that calls may change.
func reference(list []code, sample *perfdata.Sample, limit int) (pcs []uint64, end Outcome) {
	regs := registersOf(sample)
	memory := copied{regs.Reg[abi.RSP], sample.Stack}
	for len(pcs) < limit {
		pc := regs.LookupPC()
		i, _ := slices.BinarySearchFunc(list, pc, func(c code, pc uint64) int {
			if c.End <= pc {
				return -1
			}
			return 1
		})
		if i == len(list) || list[i].Start > pc {
			if regs.Reg[abi.RIP] == 0 && regs.Exact == 0 {
				if regs.Reg[abi.RBP] == 0 && regs.Valid&(1<<abi.RBP) != 0 {
					return pcs, NullReturn
				}
				return pcs, Switched
			}
			return append(pcs, regs.Reg[abi.RIP]), NoRegion
		}
		pcs = append(pcs, regs.Reg[abi.RIP])
		before := regs
		switch list[i].table.Step(&regs, memory, list[i].Bias) {
		case abi.StatusOK:
		case abi.StatusOutermost:
			return pcs, EndOfStack
		case abi.StatusNoInfo:
			return pcs, NoRow
		case abi.StatusUnreadable:
			return pcs, Unreadable
		case abi.StatusBadRegister:
			return pcs, LostRegister
		default:
			return pcs, NoRecord
		}
		for reg := range regs.Reg {
			if isVolatile(reg) && regs.Valid&(1<<reg) == 0 {
				regs.Reg[reg], regs.Valid = before.Reg[reg], regs.Valid|before.Valid&(1<<reg)
			}
		}
	}
	return pcs, FrameLimit
}

// registersOf returns a sample's registers, which are in the order of enum perf_event_x86_regs.
func registersOf(sample *perfdata.Sample) abi.Regs {
	regs := abi.Regs{Valid: abi.AllRegs, Exact: 1}
	order := []int{abi.RAX, abi.RBX, abi.RCX, abi.RDX, abi.RSI, abi.RDI, abi.RBP, abi.RSP, abi.RIP, abi.R8, abi.R9,
		abi.R10, abi.R11, abi.R12,
		abi.R13, abi.R14, abi.R15}
	for i, reg := range order {
		regs.Reg[reg] = sample.UserRegs.Values[i]
	}
	return regs
}

// compileC compiles a C program.
func compileC(t *testing.T, source string, flags ...string) string {
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("gcc", append(flags, "-o", path, "-x", "c", "-")...)
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
