package ehelf

//lint:file-ignore U1000 Fields and constants that Go does not use are used in assembly.

import (
	"unsafe"

	"github.com/ehasm/ehasm/abi"
)

// Spans lists which parts of a target's address space have eh_elfs. It is not safe
// for concurrent use.
type Spans struct {
	list  []span            // ascending, disjoint
	cache [cacheSize]uint32 // by the low bits of the number of the page
}

// cacheSize is the number of pages of code whose span a Spans caches, as the
// span's offset in the list.
const cacheSize = 256

// Constants for the assembly, which also uses the fields of span and Spans.
const (
	pageBits   = 12 // of the size of a page
	spanShift  = 6  // of the size of span
	regsRIP    = abi.RegsReg + 8*abi.RIP
	regsExact  = abi.RegsExact
	regsStatus = abi.RegsStatus
	noInfo     = abi.StatusNoInfo
)

// span is a stretch [start, end) of run-time addresses.
type span struct {
	start, end uint64
	bias       uint64    // load bias of the object
	walk       uintptr   // run-time address of _eh_elf_walk; 0: no eh_elf
	chain      uintptr   // run-time address of abi.SymbolChain; 0: none
	enter      uintptr   // of its second entry; 0: none
	_          [2]uint64 // to a power of two, see spanShift
}

// Add adds the run-time addresses [start, end), which must lie above all
// others; they have no eh_elf yet. The stretch's index is the number of
// stretches added before.
func (s *Spans) Add(start, end uint64) {
	s.list = append(s.list, span{start: start, end: end})
}

// Set gives the stretch i an eh_elf; bias is the load bias of its object there.
// The object must not be closed while s is in use.
func (s *Spans) Set(i int, o *EhElf, bias uint64) {
	to := &s.list[i]
	to.bias, to.walk = bias, o.walk
	if o.chain != 0 {
		to.chain, to.enter = o.chain, o.chain+abi.ChainNext
	}
}

// Walk is EhElf.Walk over several objects: it goes on for as long as the frame's
// pc, minus one if it is a return address, lies in a stretch that has an eh_elf.
// It returns the number of steps and the index of the stretch in which the last
// pc was looked up, or -1 if it lies in none. If the stretch has no eh_elf, or
// there is no stretch, or pcs is empty, regs.Status is abi.StatusNoInfo. mem.Read
// must be nil.
func (s *Spans) Walk(regs *abi.Regs, mem *Memory, pcs []uint64) (steps, last int) {
	return callSpans(s, regs, mem, unsafe.SliceData(pcs), len(pcs))
}
