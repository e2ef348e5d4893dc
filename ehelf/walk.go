package ehelf

import (
	"encoding/binary"

	"github.com/ehasm/ehasm/abi"
)

// Memory is the memory of the target that a walk may read. A word is read from the window
// if all its 8 bytes lie inside, otherwise through Read if that is not nil; otherwise it is
// unreadable. Walks do not change it: several may use it at once if Read allows that.
type Memory struct {
	Lo    uint64                                   // target address of Bytes[0]
	Bytes []byte                                   // the window; no part of a goroutine's stack, which may move
	Read  func(addr uint64) (word uint64, ok bool) // reads 8 bytes at addr, any alignment; may be nil
}

// ReadWord reads the word at addr as a walk does.
func (m *Memory) ReadWord(addr uint64) (word uint64, ok bool) {
	const size = 8
	if off := addr - m.Lo; off < uint64(len(m.Bytes)) && uint64(len(m.Bytes))-off >= size {
		return binary.LittleEndian.Uint64(m.Bytes[off:]), true
	}
	if m.Read != nil {
		return m.Read(addr)
	}
	return 0, false
}

// Walk takes up to len(pcs) steps from the frame regs towards its callers, for as
// long as the pc stays inside the object, and returns their number. The caller's
// pc of step i goes to pcs[i]. Afterwards regs holds the last frame reached, and
// regs.Status says why the walk stopped. bias is the object's load bias.
//
// mem.Read is called on this goroutine between runs of the code, once for each
// word that the code asks for, in its order.
func (o *EhElf) Walk(regs *abi.Regs, mem *Memory, bias uint64, pcs []uint64) int {
	if o.walk == 0 {
		regs.Status = abi.StatusNoInfo
		return 0
	}
	if mem.Read != nil {
		return o.walkRead(regs, mem, bias, pcs)
	}
	return o.walkWindow(regs, mem, bias, pcs)
}

// Step takes one step. If it returns abi.StatusOK, regs holds the caller's
// frame; otherwise only regs.Status has changed.
func (o *EhElf) Step(regs *abi.Regs, mem *Memory, bias uint64) abi.Status {
	var pc [1]uint64
	o.Walk(regs, mem, bias, pc[:])
	return regs.Status
}

// Chunk sizes of walkRead, in steps.
const (
	firstChunk   = 16
	smallChunk   = 2 // after one that needed Read
	largestChunk = 256
)

// walkRead walks in chunks. The code runs a chunk with a callback that replays
// the answers of earlier calls of mem.Read; at the first address without an
// answer the run stops, Go reads the word, and the chunk starts again from the
// same registers. The code is deterministic, so it reads the same addresses up
// to there.
func (o *EhElf) walkRead(regs *abi.Regs, mem *Memory, bias uint64, pcs []uint64) int {
	var (
		log   replay
		buf   [32]answer
		steps int
		chunk = firstChunk
	)
	log.answers = buf[:0]
	for {
		todo := pcs[steps:] // one run of the code takes a chunk of steps
		todo = todo[:min(len(todo), chunk)]
		start := *regs
		log.answers = log.answers[:0]
		var n int
		for {
			log.rewind()
			n = o.walkReplay(regs, mem, bias, todo, &log)
			if log.missed == 0 {
				break // the run had all words that it asked for
			}
			*regs = start
			word, ok := mem.Read(log.miss)
			log.add(word, ok)
		}
		steps += n
		if regs.Status != abi.StatusOK || steps == len(pcs) {
			return steps
		}
		// After a word outside the window more are likely to follow. Each costs another run, so runs
		// become short.
		if len(log.answers) > 0 {
			chunk = smallChunk
		} else {
			chunk = min(2*chunk, largestChunk)
		}
	}
}

// answer is the result of mem.Read for one address. The read thunk knows its
// layout.
type answer struct {
	addr       uint64
	word       uint64
	unreadable uint64 // 1 or 0
}

// replay is the argument of the read thunk, which knows its layout. The thunk
// answers the calls of one run from answers, in order.
type replay struct {
	answers []answer
	next    uint64 // index of the next answer to give
	missed  uint64 // 1: an address had no answer; the rest of the run is void
	miss    uint64 // that address
}

// rewind makes the thunk answer from the first answer on again.
func (r *replay) rewind() { r.next, r.missed, r.miss = 0, 0, 0 }

// add records the answer for r.miss. If the run departed from an earlier one
// because window memory has changed meanwhile, it drops the answers from there
// on.
func (r *replay) add(word uint64, ok bool) {
	a := answer{addr: r.miss, word: word}
	if !ok {
		a.unreadable = 1
	}
	r.answers = append(r.answers[:r.next], a)
}
