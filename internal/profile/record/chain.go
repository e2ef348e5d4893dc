//go:build linux && amd64

package record

import (
	"weak"

	"github.com/ehasm/ehasm/unwind"
)

// The kernel also follows frame pointers, at the time of the sample and in all of the process's memory. Where a walk
// ends at a frame that this chain has, too, the chain's next ones are its callers. Go's systemstack needs that: it
// calls a function on another stack, of which the kernel copies no more than that, but with its own frame pointer.

// ends holds code that stacks end with.
type ends struct {
	seen map[fileOffset]bool
	last uint64 // the pc that was added last
}

// mostEnds is how many are remembered: there are a few in each program.
const mostEnds = 1 << 12

// fileOffset is an address in a file.
type fileOffset struct {
	object weak.Pointer[unwind.Object]
	offset uint64 // in the file
}

// fileOffsetOf returns where a return address is; ok is false if it is in no file.
func fileOffsetOf(maps *unwind.Maps, pc uint64) (p fileOffset, ok bool) {
	m := maps.Find(pc - 1)
	if m == nil || !m.Object.IsFile() {
		return fileOffset{}, false
	}
	return fileOffset{weak.Make(m.Object), m.FileOffset(pc)}, true
}

// add adds the outermost frame of a whole stack.
func (e *ends) add(maps *unwind.Maps, pc uint64) {
	if pc == e.last {
		return
	}
	e.last = pc
	p, ok := fileOffsetOf(maps, pc)
	if !ok || e.seen[p] {
		return
	}
	if len(e.seen) == mostEnds {
		clear(e.seen)
	}
	e.seen[p] = true
}

// has reports whether a whole stack has ended there.
func (e *ends) has(maps *unwind.Maps, pc uint64) bool {
	p, ok := fileOffsetOf(maps, pc)
	return ok && e.seen[p]
}

// follow adds the callers that only the kernel's chain of frame pointers has. They count as guesses.
func (u *unwinder) follow(c *copied, f *frameStack, chain []uint64) {
	n := len(f.pcs)
	if n < 2 { // the innermost function may have no frame: its caller would be left out
		return
	}
	more := after(chain, f.pcs)
	for _, pc := range more {
		if len(f.pcs) == cap(f.pcs) || !c.maps.ReturnsTo(pc) && !u.ends.has(c.maps, pc) { // no call leads to Go's goexit
			break
		}
		f.guesses = append(f.guesses, len(f.pcs))
		f.pcs = append(f.pcs, pc)
	}
	switch last := f.pcs[len(f.pcs)-1]; {
	case len(f.pcs) > n && (f.whole() || u.ends.has(c.maps, last)):
		f.cause = unwind.OutermostGuessed
	case f.cause == unwind.Outermost && len(more) == 0:
		u.ends.add(c.maps, last)
	}
}

// after returns what follows the last of some frames in a chain, which may have it several times: calls that recurse.
// The chain has about as many frames before it.
func after(chain, pcs []uint64) []uint64 {
	n := len(pcs)
	for far := range max(n, len(chain)) {
		for _, i := range []int{n - 1 - far, n - 1 + far} {
			if i >= 0 && i < len(chain) && chain[i] == pcs[n-1] {
				return chain[i+1:]
			}
		}
	}
	return nil
}
