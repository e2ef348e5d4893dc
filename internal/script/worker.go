package script

import (
	"sync"
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// worker unwinds, names and formats batches. Its caches are its own.
type worker struct {
	run     *runner
	frames  map[frameKey]*frame
	kernel  map[uint64]*frame
	pcs     []uint64
	walker  unwind.Walker
	stack   []*frame // of the current sample, innermost first
	end     unwind.Cause
	folded  map[string]uint64
	weights map[string]*weight
	buf     []byte
	begun   bool // a batch

	samples, kernelFrames, userFrames, unwound, compat uint64
	unwindTime                                         time.Duration
	ends                                               [unwind.NumCauses]uint64
	endsIn                                             map[*unwind.Object]*[unwind.NumCauses]uint64
}

// frameKey says what frames are the same: an address in an object's file, or
// for what is of no file, an address of a process.
type frameKey struct {
	object *unwind.Object
	addr   uint64
	pid    int32
}

func newWorker(run *runner) *worker {
	return &worker{
		run: run, frames: make(map[frameKey]*frame), kernel: make(map[uint64]*frame),
		pcs: make([]uint64, run.opt.MaxStack), folded: make(map[string]uint64), weights: make(map[string]*weight),
		endsIn: make(map[*unwind.Object]*[unwind.NumCauses]uint64),
		walker: unwind.Walker{FramePointers: run.opt.FramePointers, Met: run.names.foresee},
	}
}

func (w *worker) do(b *batch) {
	w.unwind(b)
	if !w.begun {
		w.begun = true
		w.run.names.foreseePlaces(b)
	}
	for i := range b.samples {
		s := &b.samples[i]
		w.samples++
		w.collect(s)
		switch w.run.opt.Format {
		case Perf:
			b.out = w.appendPerf(b.out, s)
		case JSON:
			b.out = w.appendJSON(b.out, s)
		case Folded:
			w.fold(s)
		case Pprof:
			w.count(s)
		case SVG:
			w.flame(s)
		}
	}
}

// Ends of stacks that are no cause of package unwind.
const noUserStack = unwind.NumCauses

// collect makes the frames of a sample: the kernel's and whatever else the call
// chain has, then those that are unwound.
func (w *worker) collect(s *sample) {
	w.stack = w.stack[:0]
	w.end = noUserStack
	mode := s.mode
	for _, ip := range s.chain {
		switch ip {
		case perfdata.ContextKernel:
			mode = perfdata.ModeKernel
			continue
		case perfdata.ContextUser:
			mode = perfdata.ModeUser
			continue
		}
		switch {
		case ip >= perfdata.ContextMax:
			mode = perfdata.ModeUnknown
		case mode == perfdata.ModeKernel:
			w.stack = append(w.stack, w.kernelFrame(ip))
			w.kernelFrames++
		case mode == perfdata.ModeUser && s.abi == perfdata.ABINone:
			w.stack = append(w.stack, w.userFrame(s, ip))
			w.userFrames++
		}
	}
	switch {
	case s.abi == perfdata.ABI32:
		w.compat++
	case s.unwindable():
		w.name(s)
	}
}

// walked is what became of a sample's user stack.
type walked struct {
	pcs    []uint64 // of batch.pcs
	end    unwind.Cause
	object *unwind.Object // in which it ended
}

// prefetched is how many bytes of the next stack are fetched while one is unwound;
// more takes longer to fetch than it saves.
const prefetched = 512

// unwind walks the user stacks of a batch. It does nothing else, so that its
// time can be taken without a clock call for each stack.
func (w *worker) unwind(b *batch) {
	begin, loading := time.Now(), w.walker.Loading
	for i := range b.samples {
		if i+1 < len(b.samples) {
			ehelf.Prefetch(b.samples[i+1].stack, prefetched)
		}
		s := &b.samples[i]
		if !s.unwindable() {
			continue
		}
		mem := ehelf.Memory{Lo: s.regs.Reg[abi.RSP], Bytes: s.stack}
		n, cause, object := w.walker.Walk(s.maps, &s.regs, &mem, w.pcs)
		if len(s.maps.All()) == 0 {
			n = 0 // a process that the recording does not know; perf leaves its frame out
		}
		s.walked = walked{pcs: b.addPCs(w.pcs[:n]), end: cause, object: object}
	}
	w.unwindTime += time.Since(begin) - (w.walker.Loading - loading)
}

// name makes the frames of an unwound stack.
func (w *worker) name(s *sample) {
	w.unwound++
	w.userFrames += uint64(len(s.walked.pcs))
	w.end = s.walked.end
	w.ends[w.end]++
	if object := s.walked.object; object != nil {
		in := w.endsIn[object]
		if in == nil {
			in = new([unwind.NumCauses]uint64)
			w.endsIn[object] = in
		}
		in[w.end]++
	}
	exact := true
	for _, pc := range s.walked.pcs {
		if !exact {
			pc-- // within the instruction that called
		}
		f := w.userFrame(s, pc)
		exact = f.signal
		w.stack = append(w.stack, f)
	}
}

// userFrame names the instruction at a run-time address.
func (w *worker) userFrame(s *sample, at uint64) *frame {
	m := s.maps.Find(at)
	key := frameKey{addr: at}
	if m != nil {
		key.object = m.Object
		if m.Object.IsFile() || m.Object.Name == unwind.VDSOName {
			key.addr = m.FileOffset(at)
		} else {
			key.pid = s.pid
		}
	}
	f := w.frames[key]
	if f == nil {
		f = w.run.names.user(m, key, at)
		w.run.render(f)
		w.frames[key] = f
	}
	f.hits++
	return f
}

func (w *worker) kernelFrame(ip uint64) *frame {
	f := w.kernel[ip]
	if f == nil {
		f = w.run.names.kernel(ip)
		w.run.render(f)
		w.kernel[ip] = f
	}
	return f
}

// once is a value made at the first call.
type once[T any] struct {
	sync.Once
	value T
}

func (o *once[T]) get(fill func() T) T {
	o.Do(func() { o.value = fill() })
	return o.value
}
