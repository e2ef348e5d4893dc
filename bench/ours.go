package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/asmgen/plan"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/files/find"
	"github.com/ehasm/ehasm/unwind"
)

// ours is package unwind, as 'ehasm script' uses it.
type ours struct {
	dispatch plan.Dispatch
	objects  *unwind.Objects
	flat     *flat // samples, in the file that all unwinders share
	walker   unwind.Walker
	batch    []byte   // memory of one batch
	pcs      []uint64 // of one sample
	compile  int64    // ns that went into it
}

// perfMaxStack is PERF_MAX_STACK_DEPTH, at which perf script ends.
const perfMaxStack = 127

// newOurs flattens a recording; nothing has been compiled yet.
func newOurs(dispatch plan.Dispatch, recording, path string) (*ours, error) {
	c := &ours{dispatch: dispatch, batch: make([]byte, 0, batchBytes), pcs: make([]uint64, perfMaxStack)}
	c.objects = unwind.NewObjects(unwind.Options{
		DebugDirs: unwind.DefaultDebugDirs(),
		VDSO:      hostVDSO,
		Compile:   c.compileObject,
	})
	var err error
	c.flat, err = flatten(recording, path, c.objects)
	return c, err
}

// compileObject does what 'ehasm script' does where it is worth it.
func (c *ours) compileObject(name string, file io.ReaderAt, size int64) ([]byte, error) {
	begin := threadTime()
	defer func() { c.compile += threadTime() - begin }()
	o, err := dwarfcfa.NewFile(name, file, size)
	if err != nil {
		return nil, err
	}
	table, report, err := dwarfcfa.BuildTable(o, dwarfcfa.BuildOptions{})
	if err != nil {
		return nil, err
	}
	image, _, err := compileTable(table, report, o, variant{Dispatch: c.dispatch}, filepath.Base(name))
	if err != nil {
		return nil, err
	}
	return image.Bytes(), nil
}

// hostVDSO returns the kernel's vDSO: frames of recordings lie in it, and no file has it.
func hostVDSO() ([]byte, error) {
	for _, in := range find.Find(context.Background(), nil, find.Options{VDSO: true}).Inputs {
		if in.Data != nil {
			return bytes.Clone(in.Data), nil
		}
	}
	return nil, io.ErrUnexpectedEOF
}

// Sizes of a batch, as in internal/profile/script and in perf/main.c.
const (
	batchSamples = 128
	batchBytes   = 1 << 20
)

// threadTime returns the processor time of this thread in ns, as perf/main.c takes it:
// what else runs on the machine takes no part.
func threadTime() int64 {
	const clockThreadCPUTime = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

// pass unwinds all samples once. The registers are copied into the batch in both
// modes.
func (c *ours) pass(mode string) (timing, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var t timing
	samples := c.flat.samples
	batch := make([]sample, 0, batchSamples) // samples of the batch, their memory copied if mode is inBatch
	for i := 0; i < len(samples); {
		batch = batch[:0]
		buf := c.batch[:0]
		for ; len(batch) < batchSamples && i < len(samples) && len(buf)+len(samples[i].memory) <= batchBytes; i++ {
			batch = append(batch, samples[i])
			if mode == inBatch {
				start := len(buf)
				buf = append(buf, samples[i].memory...)
				batch[len(batch)-1].memory = buf[start:]
			}
		}
		// Only unwinding is timed; copying is what perf has done before.
		begin := threadTime()
		t.Frames += c.unwind(batch)
		t.NS += threadTime() - begin
	}
	return t, nil
}

// unwind unwinds samples, and loads the next one's memory while it works on one.
func (c *ours) unwind(samples []sample) (frames int64) {
	const prefetched = 512 // as in internal/profile/script
	for i := range samples {
		if i+1 < len(samples) {
			ehelf.Prefetch(samples[i+1].memory, prefetched)
		}
		frames += int64(c.one(&samples[i]))
	}
	return frames
}

// one unwinds a sample into c.pcs; afterwards its registers are those of the last
// frame.
func (c *ours) one(s *sample) int {
	mem := ehelf.Memory{Lo: s.regs.Reg[abi.RSP], Bytes: s.memory}
	n, _, _ := c.walker.Walk(s.maps, &s.regs, &mem, c.pcs)
	return n
}

// answers returns the pcs of each sample, from unwinding it once more.
func (c *ours) answers() ([][]uint64, error) {
	var all [][]uint64
	for i := range c.flat.samples {
		s := c.flat.samples[i]
		n := c.one(&s)
		all = append(all, append([]uint64(nil), c.pcs[:n]...))
	}
	return all, nil
}

// close releases the objects and their eh_elfs.
func (c *ours) close() error { return c.objects.Close() }
