package script

import (
	"os"
	"sync"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/debuginfo/symbols"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// sample holds what a worker needs from a sample. The reading goroutine fills it but for walked; from then on it
// belongs to the worker of its batch. Nothing in it points into the reader's buffers, which the next record
// overwrites.
type sample struct {
	comm         string
	pid, tid     int32
	time, period uint64 // ns, as the clock of the recording counts; of the event since the sample before
	cpu          uint32
	ip           uint64 // pc of the sample
	mode         perfdata.CPUMode
	event        *stackfmt.Event
	width        int // of the longest event name, for columns
	labels       []stackfmt.Label
	maps         *unwind.Maps      // of the process at the time of the sample; it does not change
	made         []*symbols.Symbol // code of the kernel, see symbolize.KernelCode
	chain        []uint64          // as recorded, with context markers
	user         copied            // what was recorded of user code
	walked       walked            // by a worker
	entry        perfdata.Entry    // of a recording with call chains
	other        bool              // another record than a sample: only entry is set
}

// copied is what a recording has of the user code that was interrupted: perf record --call-graph dwarf, that is
// PERF_SAMPLE_REGS_USER and PERF_SAMPLE_STACK_USER.
type copied struct {
	abi   perfdata.ABI // ABINone: nothing to unwind from
	regs  abi.Regs
	stack []byte // copy of the stack, from rsp on
}

// Sizes of a batch. Page faults are most of what a short recording costs: the
// memory of all batches is touched, whatever there is to put into it.
const (
	batchSamples = 32      // per batch
	batchBytes   = 1 << 18 // of stacks; a larger stack fills a batch by itself
	batchWords   = 1 << 12 // of call chains
)

// batch is samples with all they point to, and the text made of them. Its arrays grow as the samples need and are used
// again, so that a long recording allocates nothing per sample.
type batch struct {
	samples []sample      // sample structs, used again
	bytes   []byte        // stacks
	words   []uint64      // call chains
	pcs     []uint64      // walked stacks
	guesses []int         // indices of guessed frames
	out     []byte        // the text made by the worker
	done    chan struct{} // receives a value when the worker is done
}

// full reports whether s must go to the next batch. Any sample fits into an empty one.
func (b *batch) full(s *perfdata.Sample) bool {
	return b.fullOf(len(s.Stack), len(s.Callchain))
}

// fullOf is full for a record with stack bytes of stack and chain words of chain.
func (b *batch) fullOf(bytes, words int) bool {
	return len(b.samples) == batchSamples ||
		len(b.samples) > 0 && (len(b.bytes)+bytes > batchBytes || len(b.words)+words > batchWords)
}

// addBytes copies data into the batch, and returns the copy. An append that moves the array leaves the copies before
// it where they are, so they stay valid until the batch is put back.
func (b *batch) addBytes(p []byte) []byte {
	start := len(b.bytes)
	b.bytes = append(b.bytes, p...)
	return b.bytes[start:]
}

// addWords is addBytes for call chains.
func (b *batch) addWords(p []uint64) []uint64 {
	start := len(b.words)
	b.words = append(b.words, p...)
	return b.words[start:]
}

// addPCs is addBytes for walked stacks, on the worker.
func (b *batch) addPCs(p []uint64) []uint64 {
	start := len(b.pcs)
	b.pcs = append(b.pcs, p...)
	return b.pcs[start:]
}

// addGuesses is addBytes for indices of guessed frames.
func (b *batch) addGuesses(p []int) []int {
	start := len(b.guesses)
	b.guesses = append(b.guesses, p...)
	return b.guesses[start:]
}

// batchPool bounds the number of batches, and with it the memory of a run, however long the recording. It hands out
// the most recently returned one first, whose memory is in the caches.
type batchPool struct {
	tokens chan struct{} // one for each batch that may be taken
	mu     sync.Mutex
	free   []*batch // the last one is the next to be taken
}

// newBatchPool returns a pool of at most n batches.
func newBatchPool(n int) *batchPool {
	p := &batchPool{tokens: make(chan struct{}, n)}
	for range n {
		p.tokens <- struct{}{}
	}
	return p
}

// get returns an empty batch. It waits while all are in use, so that reading does not run ahead of
// the workers.
func (p *batchPool) get() *batch {
	<-p.tokens
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	return &batch{
		samples: make([]sample, 0, batchSamples), bytes: make([]byte, 0, batchBytes),
		words: make([]uint64, 0, batchWords), done: make(chan struct{}, 1),
	}
}

// put returns a batch, whose contents are no longer used. Clearing lets go of address spaces that have ended.
func (p *batchPool) put(b *batch) {
	clear(b.samples)
	b.samples, b.bytes, b.words, b.pcs = b.samples[:0], b.bytes[:0], b.words[:0], b.pcs[:0]
	b.guesses, b.out = b.guesses[:0], b.out[:0]
	p.mu.Lock()
	p.free = append(p.free, b)
	p.mu.Unlock()
	p.tokens <- struct{}{}
}

// readProc reads a file of /proc.
func readProc(path string) ([]byte, error) { return os.ReadFile(path) }
