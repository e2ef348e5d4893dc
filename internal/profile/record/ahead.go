//go:build linux && amd64

package record

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/ehelf"
)

// ahead is what is known of a ring's next sample: most threads have the outer frames where they had them before.
type ahead struct {
	places   []uint64 // where the last stack had return addresses, innermost first; of several threads' the last one's
	previous []uint64
	until    int    // samples until that is looked up again
	alike    bool   // the last two times most of them were the same
	extent   uint64 // bytes of the last stack, from its stack pointer to the last frame
}

// Bytes that are fetched of the next record.
const (
	cacheLine    = 64
	headFetched  = 320     // of a sample up to its stack, but for long call chains
	innerFetched = 256     // of the stack, besides where return addresses are
	mostFetched  = 8 << 10 // of the stack, if that is not known
)

// learnEvery is after how many samples of a ring the places of return addresses are looked up again.
const learnEvery = 64

// arrive asks the processor for what is read of the next record of a ring, while this one is handled: another
// processor has written it. They are taken to be alike.
func (k *copies) arrive(ring int, raw, next []byte, _ uint64) {
	size := len(raw)
	if end := size - cacheLine; end > 0 && end < len(next) { // where the kernel says how much of the stack it has copied
		ehelf.Prefetch(next[end:], cacheLine+headFetched) // and the head of the next but one
	}
	if a := &k.ahead[ring]; !a.fetch(next, size, k.opt.Settings.Copy) {
		ehelf.Prefetch(next, headFetched+int(min(a.extent, mostFetched)))
	}
}

// fetch asks for the lines with return addresses, and returns false if they are not known.
func (a *ahead) fetch(next []byte, size, bytes int) bool {
	const regs, stackPointer = 17, 7 // as in dwarfRegs
	stack := size - word - bytes
	if !a.alike || len(next) < size || stack < (2+regs)*word {
		return false
	}
	sp := binary.LittleEndian.Uint64(next[stack-(1+regs-stackPointer)*word:])
	if binary.LittleEndian.Uint64(next[stack-word:]) != uint64(bytes) || a.places[len(a.places)-1]-sp >= uint64(bytes) {
		return false
	}
	next = next[stack:size]
	ehelf.Prefetch(next, innerFetched)
	ehelf.PrefetchWords(next, sp, a.places)
	return true
}

// learn looks for the return addresses of a stack from time to time.
func (a *ahead) learn(mem *ehelf.Memory, extent uint64, pcs []uint64) {
	a.extent = extent
	if a.until--; a.until > 0 {
		return
	}
	a.until = learnEvery
	a.previous, a.places = a.places, a.previous[:0]
	rest := mem.Bytes[:min(uint64(len(mem.Bytes)), extent)]
	same, k := 0, 0
	for _, pc := range pcs[1:] {
		for len(rest) >= word && binary.LittleEndian.Uint64(rest) != pc {
			rest = rest[word:]
		}
		if len(rest) < word {
			break
		}
		addr := mem.Lo + min(uint64(len(mem.Bytes)), extent) - uint64(len(rest))
		rest = rest[word:]
		a.places = append(a.places, addr)
		for k < len(a.previous) && a.previous[k] < addr {
			k++
		}
		if k < len(a.previous) && a.previous[k] == addr {
			same++
		}
	}
	a.alike = same > 0 && same*4 >= len(a.places)*3
}
