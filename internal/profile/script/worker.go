package script

import (
	"time"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/frame"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// worker unwinds, names and formats batches. Its caches are its own, so that frames need no lock; what workers share,
// such as symbol tables, has locks and is asked once a frame.
type worker struct {
	run       *runner
	names     *symbolize.Cache
	format    stackfmt.Worker
	pcs       []uint64 // room for one walk
	walker    unwind.Walker
	stack     []*frame.Frame        // of the current sample, innermost first
	end       unwind.Cause          // why the walk of the current sample ended
	begun     bool                  // a batch was done before
	linkAddrs map[linkAddr]*chained // with call chains instead of names

	// Counts for the Summary.
	samples, kernelFrames, userFrames, unwound, compat uint64
	// stacks that end unreadable, out of reach of any copy
	elsewhere uint64
	// without loading objects
	unwindTime time.Duration
	// stacks by how they ended
	ends [unwind.NumCauses]uint64
	// the same, by the object in which they ended
	endsIn map[*unwind.Object]*[unwind.NumCauses]uint64
}

// newWorker returns a worker with empty caches.
func newWorker(run *runner) *worker {
	format := run.opt.Format.Worker()
	w := &worker{
		run: run, names: run.names.NewCache(format.Render), format: format,
		pcs:       make([]uint64, run.opt.MaxStack),
		endsIn:    make(map[*unwind.Object]*[unwind.NumCauses]uint64),
		walker:    unwind.Walker{FramePointers: run.opt.FramePointers},
		linkAddrs: make(map[linkAddr]*chained),
	}
	if run.chains == nil { // names are prepared in the background, from the first frame in an object on
		w.walker.OnObject = run.names.Foresee
	}
	return w
}

// do makes the output of a batch: text, or with call chains records. It is called on the worker's goroutine.
func (w *worker) do(b *batch) {
	w.unwind(b)
	if w.run.chains != nil {
		w.addChains(b)
		return
	}
	if !w.begun {
		w.begun = true
		w.foreseePlaces(b)
	}
	for i := range b.samples {
		s := &b.samples[i]
		w.samples++
		w.collect(s)
		out := stackfmt.Sample{Comm: s.comm, PID: s.pid, TID: s.tid, CPU: s.cpu, Time: s.time, Period: s.period,
			Event: s.event, Width: s.width, End: w.end, PC: s.ip, Labels: s.labels}
		// perf script prints the sample's own pc where there is no call chain.
		if !s.event.Callchain {
			out.Leaf = w.leaf(s)
			if len(w.stack) == 0 {
				w.stack = append(w.stack, out.Leaf)
			}
		}
		out.Frames, out.Guessed = w.stack, s.walked.guesses
		b.out = w.format.Add(b.out, &out)
	}
}

// foreseePlaces passes the addresses of a worker's first batch to the Namer, which reads the debug information of the
// files in them in parallel: stack by stack, one file would be read after the other.
func (w *worker) foreseePlaces(b *batch) {
	stacks := make([]symbolize.Stack, len(b.samples))
	for i := range b.samples {
		stacks[i] = symbolize.Stack{Maps: b.samples[i].maps, PCs: b.samples[i].walked.pcs}
	}
	w.run.names.ForeseePlaces(stacks)
}

// leaf returns the frame of the sample's own ip, for samples without a call chain.
func (w *worker) leaf(s *sample) *frame.Frame {
	if s.mode == perfdata.ModeKernel {
		return w.names.Kernel(s.ip, symbolize.FindCode(s.made, s.ip))
	}
	return w.names.User(s.maps, s.pid, s.ip)
}

// collect makes the frames of a sample: the kernel's and whatever else the call chain has, then those that are
// unwound. The chain's user part, which the kernel has found by frame pointers, counts only if there is nothing to
// unwind.
func (w *worker) collect(s *sample) {
	w.stack = w.stack[:0] // no walk yet
	w.end = stackfmt.NoUserStack
	taken := 0
	for mode, ip := range perfdata.Chain(s.chain, s.mode) {
		if taken++; taken > w.run.opt.MaxChain { // counts only addresses, as perf does
			break
		}
		switch {
		case mode == perfdata.ModeKernel:
			w.stack = append(w.stack, w.names.Kernel(ip, symbolize.FindCode(s.made, ip)))
			w.kernelFrames++
		case mode == perfdata.ModeUser && s.user.abi == perfdata.ABINone:
			w.stack = append(w.stack, w.names.User(s.maps, s.pid, ip))
			w.userFrames++
		}
	}
	switch {
	case s.user.abi == perfdata.ABI32:
		w.compat++
	case s.unwindable():
		w.name(s)
	}
}

// walked is the result of walking a sample's user stack. Its slices are the batch's.
type walked struct {
	pcs     []uint64 // of batch.pcs
	guesses []int    // of batch.guesses: which pcs
	end     unwind.Cause
	object  *unwind.Object // in which it ended
	from    uint64         // where the copy begins
}

// prefetched is how many bytes of the next stack are fetched while one is unwound; more takes longer to fetch than it
// saves: most frames that a walk reads are near the stack pointer.
const prefetched = 512

// unwind walks the user stacks of a batch. It does nothing else, so that its time can be taken without a clock call
// for each stack. Walk leaves the registers of the outermost frame in user.regs: count looks at them.
func (w *worker) unwind(b *batch) {
	begin, loading := time.Now(), w.walker.Loading
	for i := range b.samples {
		if i+1 < len(b.samples) {
			ehelf.Prefetch(b.samples[i+1].user.stack, prefetched)
		}
		s := &b.samples[i]
		if !s.unwindable() {
			continue
		}
		mem := ehelf.Memory{Lo: s.user.regs.Reg[abi.RSP], Bytes: s.user.stack}
		n, cause, object := w.walker.Walk(s.maps, &s.user.regs, &mem, w.pcs)
		if len(s.maps.All()) == 0 {
			n = 0 // a process that the recording does not know; perf leaves its frame out
		}
		s.walked = walked{pcs: b.addPCs(w.pcs[:n]), end: cause, object: object, from: mem.Lo}
		if n > 0 && len(w.walker.Guesses) > 0 {
			s.walked.guesses = b.addGuesses(w.walker.Guesses)
		}
	}
	w.unwindTime += time.Since(begin) - (w.walker.Loading - loading)
}

// name makes the frames of an unwound stack.
func (w *worker) name(s *sample) {
	w.count(s)
	for i := range s.walked.guesses { // after what the kernel's part has
		s.walked.guesses[i] += len(w.stack)
	}
	w.stack = w.names.Stack(w.stack, s.maps, s.pid, s.walked.pcs)
}

// count adds an unwound stack to the counts.
func (w *worker) count(s *sample) {
	w.unwound++
	w.userFrames += uint64(len(s.walked.pcs))
	w.end = s.walked.end
	w.ends[w.end]++
	// The stack pointer where the walk stopped lies further from the sample's than any copy reaches, or below it (the
	// difference wraps): on another stack, as one that a signal or a coroutine has switched from.
	if w.end == unwind.Unreadable && s.user.regs.Reg[abi.RSP]-s.walked.from >= maxStackCopy {
		w.elsewhere++
	}
	if object := s.walked.object; object != nil {
		in := w.endsIn[object]
		if in == nil {
			in = new([unwind.NumCauses]uint64)
			w.endsIn[object] = in
		}
		in[w.end]++
	}
}
