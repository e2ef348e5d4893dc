package unwind

import (
	"sync"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
)

// maxCall is the length of the longest call instruction: a prefix, REX, opcode, ModRM,
// SIB and a displacement of 32 bits (Intel SDM volume 2, CALL).
const maxCall = 9

// endsInCall reports whether code may end in a call instruction: E8 with a distance, or
// FF /2 with what addresses its operand. Other code may end in the same bytes; a place
// that no call ends at is what this is to tell.
func endsInCall(code []byte) bool {
	n := len(code)
	if n >= 5 && code[n-5] == 0xe8 {
		return true
	}
	for length := 2; length <= 7 && length <= n; length++ {
		if insn := code[n-length:]; insn[0] == 0xff && insn[1]>>3&7 == 2 && indirectLength(insn) == length {
			return true
		}
	}
	return false
}

// indirectLength is the length of an instruction of one byte and a ModRM byte with what
// follows it: Intel SDM volume 2, tables 2-2 and 2-3.
func indirectLength(insn []byte) int {
	const onlyDisp32, needsSIB = 5, 4
	mod, rm := insn[1]>>6, insn[1]&7
	if mod == 3 {
		return 2
	}
	length := 2
	if rm == needsSIB {
		length++
		if mod == 0 && len(insn) > 2 && insn[2]&7 == onlyDisp32 {
			length += 4
		}
	} else if mod == 0 && rm == onlyDisp32 {
		length += 4
	}
	switch mod {
	case 1:
		length++
	case 2:
		length += 4
	}
	return length
}

// calls remembers which places in an object's file are behind a call.
type calls struct {
	mu sync.Mutex
	at map[uint64]bool // by file offset
}

// behindCall reports whether the code at a file offset may be what a call returns to. It
// does where the file cannot be read.
func (o *Object) behindCall(offset uint64) bool {
	c := &o.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	is, known := c.at[offset]
	if !known {
		if c.at == nil {
			c.at = make(map[uint64]bool)
		}
		is = o.readCall(offset)
		c.at[offset] = is
	}
	return is
}

func (o *Object) readCall(offset uint64) bool {
	image, _, err := o.Open()
	if err != nil {
		return true
	}
	defer image.Close()
	var buf [maxCall]byte
	code := buf[:min(offset, maxCall)]
	if n, _ := image.ReadAt(code, int64(offset-uint64(len(code)))); n < len(code) {
		return true
	}
	return endsInCall(code)
}

// returnsTo reports whether a return address that was found on the stack can be one: it
// lies behind a call in executable memory, or at the code by which a signal handler
// returns.
func (m *Maps) returnsTo(pc uint64) bool {
	caller := m.Find(pc - 1)
	if caller != nil && caller.Object.behindCall(caller.FileOffset(pc-1)+1) {
		return true
	}
	return m.restorer(pc)
}

// restorer reports whether a signal handler returns by the code at pc.
func (m *Maps) restorer(pc uint64) bool {
	at := m.Find(pc)
	if at == nil {
		return false
	}
	if at.Object.isSigreturn(at.FileOffset(pc)) {
		return true
	}
	bias, ok := at.Object.Bias(at)
	return ok && at.Object.SignalFrame(pc-bias)
}

// settle takes back what a wrong guess has led to. Behind a frame that was found by the
// frame pointer all others depend on it: one that cannot be a frame shows that it is none,
// and the stack ends before the last guess.
func (w *Walker) settle(m *Maps, pcs []uint64, cause Cause, object *Object) (int, Cause, *Object) {
	guesses := w.Guesses
	for len(guesses) > 0 && guesses[len(guesses)-1] >= len(pcs) {
		guesses = guesses[:len(guesses)-1]
	}
	n := len(pcs)
	if len(guesses) > 0 {
		if k := m.invented(pcs, guesses[0]+1, cause); k >= 0 {
			for guesses[len(guesses)-1] > k {
				guesses = guesses[:len(guesses)-1]
			}
			n, guesses = guesses[len(guesses)-1], guesses[:len(guesses)-1]
			cause, object = NoInfo, nil
			if at := m.Find(pcs[n-1]); at != nil {
				object = at.Object
				if object.Err() != nil {
					cause = NoObject
				}
			}
		}
	}
	w.Guesses = guesses
	if cause == Outermost && len(guesses) > 0 {
		cause = OutermostGuessed
	}
	return n, cause, object
}

// invented returns the first of the frames from an index on that no caller can be, -1 if
// all can; len(pcs) where nothing is mapped at the pc behind them. The outermost frame
// need not have called.
func (m *Maps) invented(pcs []uint64, from int, cause Cause) int {
	for k := from; k < len(pcs); k++ {
		outermost := k == len(pcs)-1 && cause == Outermost
		if !m.returnsTo(pcs[k]) && (m.Find(pcs[k]) == nil || !outermost && !m.restorer(pcs[k-1])) {
			return k
		}
	}
	if cause == NoMapping {
		return len(pcs)
	}
	return -1
}

// redZone is how far below rsp a leaf function may keep what it needs: x86-64 psABI 3.2.2.
const redZone = 128

// readsBelow reports whether the step from a frame needs memory below its rsp, which
// copies of stacks begin at. The registers do not change.
func (v *view) readsBelow(i int, regs *abi.Regs, mem *ehelf.Memory) (below bool) {
	sp := regs.Reg[abi.RSP]
	copied := *mem
	probe := ehelf.Memory{Read: func(addr uint64) (uint64, bool) {
		if sp-addr-1 < redZone {
			below = true
		}
		return copied.ReadWord(addr)
	}}
	again := *regs
	object := v.maps.list[i].Object
	if code := object.code.Load(); code != nil {
		code.Step(&again, &probe, v.bias[i])
	} else if object.stepper != nil {
		object.stepper.Step(&again, &probe, v.bias[i])
	}
	return below
}
