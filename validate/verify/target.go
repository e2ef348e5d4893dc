//go:build linux

package verify

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/dwarfcfa"
	"github.com/ehasm/ehasm/internal/testing/thunk"
)

// target is the memory of a simulated process: a window of real memory between
// guard pages, and optionally a callback for everything else. The code reads it
// through raw, the evaluator through ReadWord.
type target struct {
	mapping []byte // with the guard pages
	area    []byte // the readable part
	room    uint64 // its size

	host uint64      // address of area[0] in this process
	lo   uint64      // target address of the window
	off  uint64      // offset of the window in area
	size uint64      // of the window
	bias uint64      // load bias of the object in this state
	seed *uint64     // of the callback; nil: none
	mem  *abi.Memory // what raw returns

	filled bool // all of the area has random words
}

const guard = 4096 // bytes on either side; a page

// newTarget maps at least size bytes of readable memory, with random words at its beginning.
func newTarget(size int64, r *rng) (*target, error) {
	size = (size + guard - 1) &^ (guard - 1)
	b, err := syscall.Mmap(-1, 0, int(size)+2*guard, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("cannot map %d bytes to verify with: %w", size, err)
	}
	t := &target{mapping: b, area: b[guard : guard+size], room: uint64(size), mem: new(abi.Memory)}
	t.host = uint64(uintptr(unsafe.Pointer(&t.area[0])))
	for _, g := range [][]byte{b[:guard], b[guard+size:]} {
		if err := syscall.Mprotect(g, syscall.PROT_NONE); err != nil {
			t.close()
			return nil, fmt.Errorf("cannot protect guard pages: %w", err)
		}
	}
	for off := uint64(0); off < min(t.room, smallWindow); off += 8 {
		t.put(off, r.word())
	}
	return t, nil
}

// close unmaps the memory.
func (t *target) close() { syscall.Munmap(t.mapping) }

// put writes a word at an offset in the area.
func (t *target) put(off, word uint64) { binary.LittleEndian.PutUint64(t.area[off:], word) }

// place chooses the window's target address: its address in this process, a low
// one, or any.
func (t *target) place(r *rng) {
	switch r.word() & 3 {
	case 0:
		t.lo = t.host
	case 1:
		t.lo = r.word()
	default:
		t.lo = 0x7fff_0000_0000 + r.below(1<<32)&^7
	}
	t.off, t.size = 0, t.room
}

// open sets the window to a part of the area.
func (t *target) open(off, size uint64) {
	t.lo += off - t.off
	t.off, t.size = off, size
}

// fillAll fills the area with random words, if it is not huge.
func (t *target) fillAll(r *rng) {
	if t.filled = t.room <= 1<<24; !t.filled {
		return
	}
	for off := uint64(0); off < t.room; off += 8 {
		t.put(off, r.word())
	}
}

// fill writes random words where a row's rules read, unless the area is filled.
func (t *target) fill(cfa uint64, row *dwarfcfa.Row, r *rng) {
	if t.filled {
		return
	}
	for _, rule := range row.Regs {
		if rule.Kind != dwarfcfa.RuleOffset {
			continue
		}
		if off := cfa + uint64(rule.Offset) - t.lo; off <= t.size-8 {
			t.put(t.off+off, r.word())
		}
	}
}

// raw returns the memory as the code sees it.
func (t *target) raw() *abi.Memory {
	*t.mem = abi.Memory{Lo: t.lo, Size: t.size, Bytes: uintptr(t.host + t.off)}
	if t.seed != nil {
		t.mem.Read = thunk.HashReadThunk()
		t.mem.Arg = uintptr(unsafe.Pointer(t.seed))
	}
	return t.mem
}

// ReadWord reads a word as abi.Memory specifies.
func (t *target) ReadWord(addr uint64) (uint64, bool) {
	if off := addr - t.lo; t.size >= 8 && off <= t.size-8 {
		return binary.LittleEndian.Uint64(t.area[t.off+off:]), true
	}
	if t.seed != nil {
		return thunk.HashRead(*t.seed, addr)
	}
	return 0, false
}

func (t *target) String() string {
	callback := "no callback"
	if t.seed != nil {
		callback = fmt.Sprintf("callback seed %#x", *t.seed)
	}
	return fmt.Sprintf("window %#x+%#x at %#x, bias %#x, %s", t.lo, t.size, t.host+t.off, t.bias, callback)
}
