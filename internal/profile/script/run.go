package script

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/debuginfo/prototypes"
	"github.com/ehasm/ehasm/internal/profile/labels"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/internal/rows/jit"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// This file reads: records change the state of processes, and samples go to workers with the state of their moment.
// Address spaces are immutable once a sample has them, so workers need no locks for them.

// runner is one call of Run. Its fields do not change while workers run, except
// those with their own locks.
type runner struct {
	opt        Options
	reader     *perfdata.Reader
	procs      *unwind.Processes
	objects    *unwind.Objects
	names      *symbolize.Namer
	kernel     symbolize.KernelID                  // the kernel that was recorded, as far as the recording says
	events     map[*perfdata.Event]*stackfmt.Event // by the reading goroutine
	ids        map[string][]byte                   // build-ids of the header, by name
	unclear    map[string]*unwind.Object           // of names that have several
	width      int                                 // of the longest event name
	lost       uint64                              // samples and records, by PERF_RECORD_LOST
	seen       seenValues                          // by the reading goroutine
	shrunk     error                               // what became of a recording that is mapped
	kernelSeen bool                                // a sample had code of the kernel; by the reading goroutine
	made       madeCode                            // by the reading goroutine
	kernelCode symbolize.KernelCode                // by the reading goroutine
	labeler    labeler                             // by the reading goroutine
	chains     *perfdata.ChainWriter               // nil: stacks get names
}

// newRunner returns a runner for a recording, with the information of its header.
func newRunner(r *perfdata.Reader, objects *unwind.Objects, opt Options) *runner {
	opt.Names.Prototypes = prototypes.NewKernel(prototypes.KernelDir)
	run := &runner{opt: opt, reader: r, procs: unwind.NewProcesses(), objects: objects,
		names: symbolize.New(opt.Names), events: make(map[*perfdata.Event]*stackfmt.Event),
		made:    madeCode{of: make(map[int32]*jit.Code), limits: jit.NewFileLimits(mostDumps)},
		labeler: labeler{groups: make(map[uint64]string), known: make(map[labels.Origin][]stackfmt.Label)}}
	run.takeInfo()
	return run
}

// Run reads all records and writes to w. It returns a summary also with an
// error; what precedes the place of the error has been written.
func Run(ctx context.Context, r *perfdata.Reader, w io.Writer, opt Options) (*Summary, error) {
	opt.fill()
	run := newRunner(r, unwind.NewObjects(opt.Objects), opt)
	defer run.objects.Close()
	workers, err := run.work(ctx, w)
	if err == nil {
		err = opt.Format.Finish(w, run.recording())
	}
	return run.finish(ctx, workers, err)
}

// finish ends the names and adds up. An error of the output comes first: what was cut short by it is not the
// recording's fault.
func (run *runner) finish(ctx context.Context, workers []*worker, writeErr error) (*Summary, error) {
	s := run.summary(workers, run.names.Close())
	if writeErr != nil {
		return s, writeErr
	}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	return s, errors.Join(run.shrunk, run.reader.Err())
}

// work reads all records, has workers make the output of their batches, and writes it in order. The error is of w.
// After one, or when ctx ends, workers finish what they have; no goroutine is left behind.
//
// A batch is in both channels at the same time. It is put back only after it was written, so a slow batch holds up the
// output, while the pool bounds how far the others get ahead.
func (run *runner) work(ctx context.Context, w io.Writer) (workers []*worker, writeErr error) {
	n := run.opt.Workers
	work := make(chan *batch, n)      // room for each worker's next batch
	ordered := make(chan *batch, 2*n) // batches in the order of reading: the order of the output
	pool := newBatchPool(3*n + 2)     // being read, in work, being written
	workers = make([]*worker, n)
	var busy, writing sync.WaitGroup
	for i := range workers {
		workers[i] = newWorker(run)
		busy.Go(func() {
			for b := range work {
				workers[i].do(b)
				b.done <- struct{}{}
			}
		})
	}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	writing.Go(func() {
		for b := range ordered {
			<-b.done // the worker has made its text
			if writeErr == nil {
				if _, writeErr = w.Write(b.out); writeErr != nil {
					cancel() // nothing more can be written: stop reading, too
				}
			}
			pool.put(b)
		}
	})
	run.read(stop, func(b *batch) {
		work <- b
		ordered <- b
	}, pool)
	close(work)
	close(ordered)
	busy.Wait()
	writing.Wait()
	return workers, writeErr
}

// errSeveral is about files that were replaced, or that containers have.
var errSeveral = errors.New("several files had this name, and the recording does not say which one a process had: perf record --buildid-mmap does")

// takeInfo takes over the header's information. Its build-ids are by name alone, for all of the recording; a mapping
// that has its own wins over them.
func (run *runner) takeInfo() {
	run.ids, run.unclear = make(map[string][]byte), make(map[string]*unwind.Object)
	for _, id := range run.reader.Info().BuildIDs {
		if id.Mode != perfdata.ModeUser {
			continue
		}
		if other, known := run.ids[id.Name]; known && !bytes.Equal(other, id.ID) && run.unclear[id.Name] == nil {
			run.unclear[id.Name] = run.objects.Without(id.Name, nil, errSeveral)
		}
		run.ids[id.Name] = id.ID
	}
	run.takeEvents()
	// /proc/kallsyms is of the kernel that runs here: of another one it would give names, all of them wrong
	if rel := run.reader.Info().OSRelease; rel != "" && run.opt.Names.Kallsyms != "" && rel != hostRelease() {
		run.kernel.Other = fmt.Errorf("recorded on kernel %s", rel)
	}
}

// recording returns the description of the recording for formats.
func (run *runner) recording() *stackfmt.Recording {
	info := run.reader.Info()
	rec := &stackfmt.Recording{Command: info.Cmdline, Objects: run.objects.All(), Process: run.procs.Comm}
	if info.LastSample > info.FirstSample {
		rec.Duration = time.Duration(info.LastSample - info.FirstSample)
	}
	for _, e := range run.reader.Events() {
		rec.Events = append(rec.Events, run.event(e))
	}
	return rec
}

// event returns the description of an event for formats. In pipe mode its name may come
// late.
func (run *runner) event(e *perfdata.Event) *stackfmt.Event {
	name := eventName(e)
	known := run.events[e]
	if known == nil || known.Name != name {
		t := e.SampleType
		known = &stackfmt.Event{Name: name, TID: t&perfdata.SampleTID != 0, CPU: t&perfdata.SampleCPU != 0,
			Time: t&perfdata.SampleTime != 0, Period: true, Callchain: t&perfdata.SampleCallchain != 0 && !run.opt.NoChains}
		known.Every = e.PeriodOrFreq
		// PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK (cpu-clock is 0), and perf_event_attr.freq among the flags
		const typeSoftware, taskClock, flagFreq = 1, 1, 1 << 10
		clock := e.Type == typeSoftware && e.Config <= taskClock // their periods are times
		if clock {
			known.Kind, known.Unit = "cpu", "nanoseconds"
		}
		if e.Flags&flagFreq != 0 { // as often a second
			known.Every = 0
			if clock && e.PeriodOrFreq > 0 {
				known.Every = uint64(time.Second) / e.PeriodOrFreq
			}
		}
		run.events[e] = known
	}
	return known
}

// takeEvents takes the widest name of an event; events may come late in pipe mode.
func (run *runner) takeEvents() {
	for _, e := range run.reader.Events() {
		run.width = max(run.width, len(eventName(e)))
	}
}

// read follows the records up to their end and sends the samples on. send may block. The last batch is sent also if
// reading ends early, and may be empty.
func (run *runner) read(ctx context.Context, send func(*batch), pool *batchPool) {
	const every = 256 // records between looks at the context
	b := pool.get()
	defer func() { send(b) }()
	// A mapped file that shrinks makes reads fault; recoverShrunk turns the fault into an error.
	defer run.recoverShrunk(debug.SetPanicOnFault(true))
	events := len(run.reader.Events())
	for n := 0; run.reader.Next(); n++ {
		if n%every == 0 {
			if ctx.Err() != nil {
				break
			}
			if run.opt.Progress != nil {
				run.opt.Progress(run.reader.Offset(), run.seen.samples)
			}
		}
		s, ok := run.reader.Record().(*perfdata.Sample)
		if !ok {
			run.follow(run.reader.Record())
			// Chains copy all other records unchanged.
			if run.chains != nil {
				if b.fullOf(len(run.reader.Raw()), 0) {
					send(b)
					b = pool.get()
				}
				b.samples = append(b.samples, sample{other: true, entry: run.take(b)})
			}
			continue
		}
		if e := len(run.reader.Events()); e != events { // pipe mode
			events = e
			run.takeEvents()
		}
		comm := run.comm(s)
		run.seen.add(&run.opt.Filter, s, comm)
		if !run.opt.Filter.wants(s, comm) {
			continue
		}
		if b.full(s) {
			send(b)
			b = pool.get()
		}
		run.add(b, s, comm)
	}
}

// recoverShrunk ends the reading of a recording that has become shorter: its memory, if it is mapped, faults (SIGBUS,
// mmap(2)). It is deferred; old is the setting of SetPanicOnFault to restore. Other panics go on.
func (run *runner) recoverShrunk(old bool) {
	debug.SetPanicOnFault(old)
	p := recover()
	if p == nil {
		return
	}
	if _, fault := p.(interface{ Addr() uintptr }); !fault {
		panic(p)
	}
	run.shrunk = fmt.Errorf("%w: the file became shorter while it was read", perfdata.ErrTruncated)
}

// follow applies a record about processes. Records of other types say nothing that stacks depend on.
func (run *runner) follow(rec perfdata.Record) {
	switch r := rec.(type) {
	case *perfdata.Mmap:
		switch r.Mode() {
		case perfdata.ModeUser:
			run.mapped(r)
		case perfdata.ModeKernel:
			run.followKernel(r)
		}
	case *perfdata.Comm:
		run.procs.SetComm(r.PID, r.TID, string(r.Name), r.Exec)
		if r.Exec {
			run.made.forget(r.PID)
		}
	case *perfdata.Task:
		run.task(r)
	case *perfdata.Namespaces:
		// a thread that has left its process's namespaces (setns(2)) has its own record, and does not speak for it
		if r.PID == r.TID {
			run.opt.Names.Places.SeeIf(r.PID, r.PIDs, r.Mounts)
		}
	case *perfdata.KSymbol:
		run.kernelCode.Apply(r.Code())
	case *perfdata.Cgroup:
		run.labeler.groups[r.Number] = string(r.Path)
	case *perfdata.Lost:
		run.lost += r.Count
	}
}

// mapped notes a mapping of a process. Only executable ones have an object; the others hide what was there before. A
// mapping without a build-id (perf record before 5.12, or without --buildid-mmap) is looked up by name in the header.
func (run *runner) mapped(r *perfdata.Mmap) {
	var object *unwind.Object
	if r.Exec {
		name, id := string(r.Name), r.File.BuildID
		if id == nil {
			id, object = run.ids[name], run.unclear[name]
		}
		if object == nil {
			object = run.objects.Object(name, id)
		}
	}
	if object != nil && jit.IsDump(object.Name) {
		run.procs.Space(r.PID).SetGenerated(run.made.add(run.opt.Names.Places.Dump(r.PID, object.Name, r.Addr, r.Addr+r.Len)))
	}
	run.procs.Space(r.PID).Map(r.Addr, r.Len, r.PgOff, object)
}

// followKernel takes what a mapping says about the kernel: its name ends in the symbol that perf has chosen as
// reference ([kernel.kallsyms]_text), and pgoff is that symbol's address, by which KASLR's shift is known.
func (run *runner) followKernel(r *perfdata.Mmap) {
	if symbol, ok := strings.CutPrefix(string(r.Name), symbolize.KernelMapName); ok && symbol != "" && !run.kernelSeen {
		run.kernel.Symbol, run.kernel.Addr = symbol, r.PgOff
	}
}

// foreseeKernel reads the kernel's symbols in the background at its first frame: they are 5 to 10 MB of text, of no
// use for a recording of user code alone.
func (run *runner) foreseeKernel(s *sample) {
	if run.kernelSeen || s.mode != perfdata.ModeKernel && !slices.Contains(s.chain, perfdata.ContextKernel) {
		return
	}
	run.kernelSeen = true
	// The build-id says whether this machine's kernel is the recorded one.
	for _, id := range run.reader.Info().BuildIDs {
		if id.Mode == perfdata.ModeKernel && id.Name == symbolize.KernelMapName {
			run.kernel.BuildID = id.ID
		}
	}
	run.kernel.OwnCode = run.kernelCode.Seen
	run.names.SetKernel(run.kernel)
	run.names.ForeseeKernel()
}

// comm returns the name of a sample's thread, as perf does, but the program's where the dynamic loader was given it to
// run. TID 0 is the idle task, one a CPU; a thread that no record names is :TID.
func (run *runner) comm(s *perfdata.Sample) string {
	switch comm := run.procs.Comm(s.TID); {
	case comm != "":
		return run.procs.Space(s.PID).Name(comm)
	case s.TID == 0:
		return "swapper"
	}
	return ":" + fmt.Sprint(s.TID)
}

// add copies a sample into a batch, with what depends on the time: names, mappings, labels.
func (run *runner) add(b *batch, s *perfdata.Sample, comm string) {
	j := sample{
		pid: s.PID, tid: s.TID, time: s.Time, period: s.Period, cpu: s.CPU, ip: s.IP, mode: s.Mode(),
		event: run.event(s.Event),
		comm:  comm, width: run.width,
	}
	if s.Event.SampleType&perfdata.SamplePeriod == 0 {
		j.period = s.Event.PeriodOrFreq // as in perf: those of perf record -c have no field for it
	}
	process := run.procs.Space(s.PID)
	j.maps, j.labels, j.made = process.Maps(), run.labelsOf(s, process.Program()), run.kernelCode.Now()
	if !run.opt.NoChains {
		j.chain = b.addWords(s.Callchain)
	}
	if run.chains != nil {
		j.entry = run.take(b)
	} else {
		run.foreseeKernel(&j)
	}
	if len(s.Stack) > 0 && s.UserRegs.ABI != perfdata.ABINone && !run.opt.NoChains {
		j.user.abi = s.UserRegs.ABI
		j.user.stack = b.addBytes(s.Stack)
		setRegs(&j.user.regs, &s.UserRegs)
	}
	b.samples = append(b.samples, j)
}

// dwarfReg maps enum perf_event_x86_regs of arch/x86/include/uapi/asm/perf_regs.h to DWARF numbers (x86-64 psABI,
// Figure 3.36); -1: none, as of flags, segments and vector registers.
func dwarfReg(reg int) int {
	table := [...]int{abi.RAX, abi.RBX, abi.RCX, abi.RDX, abi.RSI, abi.RDI, abi.RBP, abi.RSP, abi.RIP,
		-1, -1, -1, -1, -1, -1, -1, abi.R8, abi.R9, abi.R10, abi.R11, abi.R12, abi.R13, abi.R14, abi.R15}
	if reg < len(table) {
		return table[reg]
	}
	return -1
}

// setRegs takes the registers of a sample, which has a value for each bit of the mask, lowest first. A recording may
// claim more bits than it has values; the rest stays invalid. Exact says that the pc is of an instruction, not a
// return address.
func setRegs(dst *abi.Regs, src *perfdata.Regs) {
	dst.Exact = 1
	i := 0
	for reg := range 64 {
		if src.Mask>>reg&1 == 0 || i >= len(src.Values) {
			continue
		}
		if d := dwarfReg(reg); d >= 0 {
			dst.Reg[d] = src.Values[i]
			dst.Valid |= 1 << d
		}
		i++
	}
}

// eventName returns the name that the file gives an event, or else perf's name for
// its type and config: enum perf_hw_id and perf_sw_ids of perf_event.h.
func eventName(e *perfdata.Event) string {
	if e.Name != "" {
		return e.Name
	}
	known := [...][]string{
		{"cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses", "bus-cycles"},
		{"cpu-clock", "task-clock", "faults", "context-switches", "cpu-migrations", "minor-faults", "major-faults"},
	}
	if e.Type < uint32(len(known)) && e.Config < uint64(len(known[e.Type])) {
		return known[e.Type][e.Config]
	}
	return fmt.Sprintf("type %d config %#x", e.Type, e.Config)
}

// hostRelease returns what uname -r prints.
func hostRelease() string {
	b, err := readProc("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
