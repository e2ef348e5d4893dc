package script

import (
	"os"
	"sync"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/profile/stackfmt"
	"github.com/ehasm/ehasm/perfdata"
	"github.com/ehasm/ehasm/unwind"
)

// sample holds what a worker needs from a sample.
type sample struct {
	comm         string
	pid, tid     int32
	time, period uint64
	cpu          uint32
	ip           uint64
	mode         perfdata.CPUMode
	event        *stackfmt.Event
	width        int // of the longest event name
	labels       []stackfmt.Label
	maps         *unwind.Maps
	chain        []uint64
	abi          perfdata.ABI // ABINone: nothing to unwind from
	regs         abi.Regs
	stack        []byte
	walked       walked         // by a worker
	entry        perfdata.Entry // of a recording with call chains
	other        bool           // another record than a sample: only entry is set
}

// Sizes of a batch. Page faults are most of what a short recording costs: the
// memory of all batches is touched, whatever there is to put into it.
const (
	batchSamples = 32
	batchBytes   = 1 << 18
	batchWords   = 1 << 12
)

// batch is samples with all they point to, and the text made of them.
type batch struct {
	samples []sample
	bytes   []byte
	words   []uint64
	pcs     []uint64
	guesses []int
	out     []byte
	done    chan struct{}
}

// full reports whether s must go to the next batch.
func (b *batch) full(s *perfdata.Sample) bool {
	return b.fullOf(len(s.Stack), len(s.Callchain))
}

func (b *batch) fullOf(bytes, words int) bool {
	return len(b.samples) == batchSamples ||
		len(b.samples) > 0 && (len(b.bytes)+bytes > batchBytes || len(b.words)+words > batchWords)
}

func (b *batch) addBytes(p []byte) []byte {
	at := len(b.bytes)
	b.bytes = append(b.bytes, p...)
	return b.bytes[at:]
}

func (b *batch) addWords(p []uint64) []uint64 {
	at := len(b.words)
	b.words = append(b.words, p...)
	return b.words[at:]
}

func (b *batch) addPCs(p []uint64) []uint64 {
	at := len(b.pcs)
	b.pcs = append(b.pcs, p...)
	return b.pcs[at:]
}

func (b *batch) addGuesses(p []int) []int {
	at := len(b.guesses)
	b.guesses = append(b.guesses, p...)
	return b.guesses[at:]
}

// batchPool bounds the number of batches. It hands out the most recently returned
// one first, whose memory is in the caches.
type batchPool struct {
	tokens chan struct{}
	mu     sync.Mutex
	free   []*batch
}

func newBatchPool(n int) *batchPool {
	p := &batchPool{tokens: make(chan struct{}, n)}
	for range n {
		p.tokens <- struct{}{}
	}
	return p
}

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

func (p *batchPool) put(b *batch) {
	clear(b.samples)
	b.samples, b.bytes, b.words, b.pcs = b.samples[:0], b.bytes[:0], b.words[:0], b.pcs[:0]
	b.guesses, b.out = b.guesses[:0], b.out[:0]
	p.mu.Lock()
	p.free = append(p.free, b)
	p.mu.Unlock()
	p.tokens <- struct{}{}
}

func readProc(path string) ([]byte, error) { return os.ReadFile(path) }
