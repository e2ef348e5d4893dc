package script

import (
	"context"
	"io"

	"github.com/ehasm/ehasm/internal/profile/symbolize"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// This file writes recordings with call chains: every record is copied, and samples get a chain of user addresses in
// place of registers and stack, as perf record --call-graph fp would have made it. perf report then names frames.

// RunChains writes the recording again, with call chains instead of copies of stacks. r must
// have perfdata.Options.Own, and w is as perfdata.NewChainWriter wants it. The format and the
// names of opt have no effect; samples that opt.Filter does not choose are left out. It
// returns a summary also with an error, after which the output is not a recording.
func RunChains(ctx context.Context, r *perfdata.Reader, w io.Writer, opt Options) (*Summary, error) {
	opt.fill()
	run := newRunner(r, unwind.NewObjects(opt.Objects), opt)
	defer run.objects.Close()
	var workers []*worker
	var err error
	if run.chains, err = perfdata.NewChainWriter(w, r); err == nil {
		workers, err = run.work(ctx, run.chains)
	}
	// The recording is completed only if all of it was read.
	if err == nil && r.Err() == nil && run.shrunk == nil && ctx.Err() == nil {
		err = run.chains.Close()
	}
	return run.finish(ctx, workers, err)
}

// take copies the current record into a batch. The entry says where a sample's chain goes, once it is walked.
func (run *runner) take(b *batch) (e perfdata.Entry) {
	b.bytes, e = run.chains.Take(b.bytes)
	return e
}

// linkAddr is an address in an object.
type linkAddr struct {
	object *unwind.Object
	addr   uint64 // link-time
}

// chained is what is known of an address, for chains.
type chained struct {
	signal bool   // it is a signal frame: its caller was interrupted, it did not call
	hits   uint64 // frames there
}

// addChains makes the records of a batch, in their order.
func (w *worker) addChains(b *batch) {
	for i := range b.samples {
		s := &b.samples[i]
		if !s.other {
			w.samples++
			w.countChain(s)
		}
		b.out = s.entry.Append(b.out, w.instructions(s))
	}
}

// countChain counts the frames of a sample as collect does.
func (w *worker) countChain(s *sample) {
	for mode := range perfdata.Chain(s.chain, s.mode) {
		switch {
		case mode == perfdata.ModeKernel:
			w.kernelFrames++
		case mode == perfdata.ModeUser && s.user.abi == perfdata.ABINone:
			w.userFrames++
		}
	}
	switch {
	case s.user.abi == perfdata.ABI32:
		w.compat++
	case s.unwindable():
		w.end = s.walked.end
		w.count(s)
	}
}

// instructions turns the return addresses of a stack, in place, into addresses of the instructions that called, as
// perf's unwinders do: perf report looks names up without subtracting. The first pc is where the sample was, and
// stays. No instruction called what a signal handler returns to, and its first byte has the name.
func (w *worker) instructions(s *sample) []uint64 {
	exact := true
	pcs := s.walked.pcs
	for i := range pcs {
		pc := pcs[i]
		if !exact {
			pc-- // within the instruction that called
		}
		if exact = w.signalFrame(s.maps.Find(pc), pc); !exact {
			pcs[i] = pc
		}
	}
	return pcs
}

// signalFrame reports whether the code at a run-time address, which m holds, is a signal frame.
func (w *worker) signalFrame(m *unwind.Mapping, pc uint64) bool {
	if m == nil {
		return false
	}
	bias, ok := m.Object.Bias(m)
	// The answer is remembered: most frames of a profile are in few places.
	key := linkAddr{object: m.Object}
	if ok {
		key.addr = pc - bias
	}
	p := w.linkAddrs[key]
	if p == nil {
		p = &chained{signal: ok && m.Object.SignalFrame(key.addr)}
		w.linkAddrs[key] = p
	}
	p.hits++
	return p.signal
}

// chainHits adds the frames in each object to counts: without names, no cache of names has counted them.
func (w *worker) chainHits(counts map[*unwind.Object]symbolize.Hits) {
	for key, p := range w.linkAddrs {
		h := counts[key.object]
		h.All += p.hits
		counts[key.object] = h
	}
}
