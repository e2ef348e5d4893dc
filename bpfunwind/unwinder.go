//go:build linux && amd64

package bpfunwind

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// This file loads the maps and what all programs share, and explains the kernel's refusals.

// Options bound what an Unwinder takes. Fields that are zero have the defaults that are said with them.
type Options struct {
	MaxFrames    int           // user frames of a sample: 8,192, at most 65,536
	MaxTime      time.Duration // of a walk: 4 ms, at most a second
	MaxProcesses int           // processes with regions at a time: 16,384
	RingSize     int           // bytes of the ring of samples of each CPU, a power of two of pages: 1 MB
	// Copies are the outcomes for which a program asks perf to write its own sample, too: NeedsCopy; 1 for none. Others
	// leave it out.
	Copies Outcomes
}

// complete returns the options with defaults.
func (o Options) complete() (Options, error) {
	o.MaxFrames = cmp.Or(o.MaxFrames, 8192)
	o.MaxTime = cmp.Or(o.MaxTime, 4*time.Millisecond) // 5,000 frames of 4 KB take 0.6 ms, on a busy machine 2
	o.MaxProcesses = cmp.Or(o.MaxProcesses, 16384)
	o.RingSize = cmp.Or(o.RingSize, 1<<20)
	o.Copies = cmp.Or(o.Copies, NeedsCopy)
	page := os.Getpagesize()
	switch {
	case o.MaxFrames < 1 || o.MaxFrames > 1<<16:
		return o, fmt.Errorf("MaxFrames is %d: want 1 to 65,536", o.MaxFrames)
	case o.MaxTime < 0 || o.MaxTime > time.Second:
		return o, fmt.Errorf("MaxTime is %v: want at most 1s", o.MaxTime)
	case o.MaxProcesses < 1:
		return o, fmt.Errorf("MaxProcesses is %d", o.MaxProcesses)
	case o.RingSize < page || bits.OnesCount(uint(o.RingSize)) != 1 || o.RingSize > 1<<30:
		return o, fmt.Errorf("RingSize is %d: want a power of two of at least a page, at most 1 GB", o.RingSize)
	}
	return o, nil
}

// Unwinder holds the maps that programs use: tables, processes, samples. Its methods may be called by several
// goroutines, but Read by one at a time.
type Unwinder struct {
	opt  Options
	maps *maps
	exec link.Link // the program that forgets the regions of a process at an exec
	fork link.Link // the program that follows forks; nil: they are not followed

	mu        sync.Mutex // for what is below
	memory    memory
	processes map[uint32]*regions
	view      uint32 // the last generation

	reading sync.Mutex // for rings
	rings   *ringSet
}

// maps are the BPF maps.
type maps struct {
	chunks    *ebpf.Map // tables and regions
	processes *ebpf.Map // views by the process's number
	states    *ebpf.Map // maxSlots of each CPU
	nested    *ebpf.Map // a count: walks that found no state
	rings     *ebpf.Map // by CPU
	ringSize  int
	cpus      int         // one more than the highest number of a CPU that is online
	list      []*ebpf.Map // all of them
}

// Load makes the maps and loads what all programs need. The error says which right or which function of the kernel is
// missing.
func Load(opt Options) (*Unwinder, error) {
	opt, err := opt.complete()
	if err != nil {
		return nil, err
	}
	u := &Unwinder{opt: opt, processes: make(map[uint32]*regions)}
	if u.maps, err = newMaps(opt); err != nil {
		return nil, err
	}
	u.memory.outer = u.maps.chunks
	if err = u.start(); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

// start makes the rings and the first chunk, and watches execs: between an exec and the caller's notice of it, the old
// program's regions would answer for the new one's pcs.
func (u *Unwinder) start() (err error) {
	if u.rings, err = newRings(u.maps); err != nil {
		return err
	}
	if err = u.memory.grow(); err != nil { // it waits for RCU: not once samples come
		return err
	}
	u.exec, err = attachRaw("sched_process_exec", emitExec(u.maps.processes.FD()))
	return err
}

// attachRaw runs a program at a tracepoint.
func attachRaw(tracepoint string, list asm.Instructions) (link.Link, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "follow", Type: ebpf.RawTracepoint, Instructions: list,
		License: license})
	if err != nil {
		return nil, explain(err)
	}
	defer program.Close()
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: tracepoint, Program: program})
	return l, explain(err)
}

// Follow has children of known processes be known from their fork on, and what a thread forks, from its exec on:
// samples come with copies until MapProcess or Fork tells of their code. Without it a process is known when these tell
// of it. 0 is no thread.
func (u *Unwinder) Follow(thread uint32) error {
	offset, err := processIDOffset()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKernel, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fork, err = attachRaw("sched_process_fork", emitFork(u.maps.processes.FD(), offset)); err != nil || thread == 0 {
		return err
	}
	return u.maps.processes.Put(thread, make([]byte, viewSize))
}

// processIDOffset returns where the kernel's task_struct has the number of the process. It is from the running kernel's
// BTF, /sys/kernel/btf/vmlinux.
func processIDOffset() (uint32, error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, err
	}
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		return 0, err
	}
	for _, m := range task.Members {
		if m.Name == "tgid" {
			return m.Offset.Bytes(), nil
		}
	}
	return 0, errors.New("task_struct has no tgid")
}

// newMaps makes the maps but for chunks and rings.
func newMaps(opt Options) (m *maps, err error) {
	m = &maps{ringSize: opt.RingSize}
	if m.cpus, err = onlineCPUs(); err != nil {
		return nil, err
	}
	cpus := uint32(m.cpus)
	for _, of := range []struct {
		place **ebpf.Map
		spec  ebpf.MapSpec
	}{
		{&m.chunks, ebpf.MapSpec{Name: "chunks", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: maxChunks,
			InnerMap: chunkSpec()}},
		{&m.processes, ebpf.MapSpec{Name: "processes", Type: ebpf.Hash, KeySize: 4, ValueSize: viewSize,
			MaxEntries: uint32(opt.MaxProcesses)}},
		{&m.states, ebpf.MapSpec{Name: "states", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(stateLen(opt.MaxFrames)),
			MaxEntries: cpus * maxSlots, Flags: unix.BPF_F_MMAPABLE}},
		{&m.nested, ebpf.MapSpec{Name: "nested", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		{&m.rings, ebpf.MapSpec{Name: "rings", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: cpus,
			InnerMap: ringSpec(opt.RingSize)}},
	} {
		if *of.place, err = ebpf.NewMap(&of.spec); err != nil {
			m.close()
			return nil, fmt.Errorf("BPF map %s: %w", of.spec.Name, explain(err))
		}
		m.list = append(m.list, *of.place)
	}
	return m, nil
}

// onlineCPUs returns one more than the highest number of a CPU that is online. Many more may be possible. Walks on one
// that comes later count as nested.
func onlineCPUs() (int, error) {
	list, err := os.ReadFile("/sys/devices/system/cpu/online") // such as 0-3,8-11
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(list))
	highest, err := strconv.Atoi(text[strings.LastIndexAny(text, ",-")+1:])
	return highest + 1, err
}

func (m *maps) close() {
	for _, one := range m.list {
		one.Close()
	}
}

// Close frees the maps. No Read may be in progress. Events that a program is attached to keep it until they are closed.
func (u *Unwinder) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reading.Lock()
	defer u.reading.Unlock()
	for _, l := range []link.Link{u.exec, u.fork} {
		if l != nil {
			l.Close()
		}
	}
	if u.rings != nil {
		u.rings.close()
	}
	u.memory.close()
	u.maps.close()
	return nil
}

// Stats counts what the programs did.
type Stats struct {
	Outcomes [NumOutcomes]uint64 // walks
	Frames   uint64              // of users
	Lost     uint64              // samples for which the ring had no room
	Bytes    uint64              // that Read has taken from the rings
	Nested   uint64              // events without a walk: four were in progress on the CPU, or it came later than Load
}

// Stats reads the counts of all CPUs.
func (u *Unwinder) Stats() (s Stats, err error) {
	state := make([]byte, stateLen(u.opt.MaxFrames))
	for i := range uint32(u.maps.cpus * maxSlots) {
		if err := u.maps.states.Lookup(i, state); err != nil {
			return s, err
		}
		for o := range s.Outcomes {
			s.Outcomes[o] += word(state, stateCounts+8*o)
		}
		s.Frames += word(state, stateCounts+8*int(countFrames))
		s.Lost += word(state, stateCounts+8*int(countLost))
	}
	for i := range u.rings.rings {
		s.Bytes += atomic.LoadUint64(u.rings.rings[i].freed())
	}
	var nested []uint64
	if err := u.maps.nested.Lookup(uint32(0), &nested); err != nil {
		return s, err
	}
	for _, n := range nested {
		s.Nested += n
	}
	return s, nil
}

// ErrRights means that the process lacks CAP_BPF or CAP_PERFMON.
var ErrRights = errors.New("unwinding in the kernel needs CAP_BPF and CAP_PERFMON")

// ErrKernel means that the kernel lacks a function; Linux 5.17 has all.
var ErrKernel = errors.New("unwinding in the kernel needs Linux 5.17")

// ErrLockdown means that the kernel lets no program read memory.
var ErrLockdown = errors.New("unwinding in the kernel is refused: the kernel is locked down (lockdown=confidentiality)")

// lockedDown reports whether the kernel is: kernel_lockdown(7).
func lockedDown() bool {
	b, _ := os.ReadFile("/sys/kernel/security/lockdown")
	return strings.Contains(string(b), "[confidentiality]")
}

// explain says what the kernel's refusal means.
func explain(err error) error {
	var refused *ebpf.VerifierError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %w", ErrRights, err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: %w", ErrKernel, err)
	case errors.As(err, &refused) && lockedDown():
		return ErrLockdown
	case errors.As(err, &refused):
		for _, line := range refused.Log {
			_, number, found := strings.Cut(line, "invalid func unknown#")
			if n := 0; found {
				fmt.Sscan(number, &n)
				return fmt.Errorf("%w: this kernel has no %v: %w", ErrKernel, asm.BuiltinFunc(n), err)
			}
		}
	}
	return err
}
