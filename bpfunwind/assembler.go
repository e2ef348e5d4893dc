//go:build linux && amd64

package bpfunwind

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// This file has what the emitters of program.go and walk.go share. Registers follow the convention of
// Documentation/bpf/standardization/abi.rst: a helper takes r1 to r5, returns in r0, and keeps r6 to r9; r10 is the
// frame pointer of a stack of 512 bytes.

// assembler collects instructions.
type assembler struct {
	list   asm.Instructions
	symbol string // the label of the next instruction
	labels int
}

// add appends instructions.
func (a *assembler) add(list ...asm.Instruction) {
	for _, ins := range list {
		if a.symbol != "" {
			ins = ins.WithSymbol(a.symbol)
			a.symbol = ""
		}
		a.list = append(a.list, ins)
	}
}

// label names the next instruction.
func (a *assembler) label(name string) {
	if a.symbol != "" { // an instruction has one name
		a.add(asm.Ja.Label(name))
	}
	a.symbol = name
}

// fresh returns a label that is not used yet.
func (a *assembler) fresh() string {
	a.labels++
	return fmt.Sprintf("l%d", a.labels)
}

// Shorthands for the instructions that occur most. Addresses are a register and an offset.

func load(dst, base asm.Register, off int, size asm.Size) asm.Instruction {
	return asm.LoadMem(dst, base, int16(off), size)
}

func store(base asm.Register, off int, src asm.Register, size asm.Size) asm.Instruction {
	return asm.StoreMem(base, int16(off), src, size)
}

// set stores a number of 32 bits.
func set(base asm.Register, off int, value int64) asm.Instruction {
	return asm.StoreImm(base, int16(off), value, asm.Word)
}

func move(dst, src asm.Register) asm.Instruction { return asm.Mov.Reg(dst, src) }

// exchange swaps a register with a word of memory, atomically. The kernel wants the operation with BPF_FETCH in the
// immediate: 0xe1 (RFC 9669 §5.3).
func exchange(base asm.Register, off int, src asm.Register) asm.Instruction {
	ins := asm.Xchg.Mem(base, src, asm.DWord, int16(off))
	ins.Constant = int64(asm.Xchg >> 8) // the library's encoder loses the operation, and adds instead
	return ins
}

// field leaves the address of a field of the state in dst.
func (a *assembler) field(dst, state asm.Register, off int) {
	a.add(move(dst, state), asm.Add.Imm(dst, int32(off)))
}

// readUser reads bytes of the process to the address in r1; r2 is their number, r3 where they are. bpf_probe_read_user
// takes no page fault: what is not in memory is unreadable, and control goes to failed. It clears r1 to r5.
func (a *assembler) readUser(failed string) {
	a.add(asm.FnProbeReadUser.Call(), asm.JNE.Imm(asm.R0, 0, failed))
}

// stackKey is the offset in the stack where keys of maps are kept, 8 bytes below the frame pointer: helpers want keys
// in memory.
const stackKey = -8

// lookup leaves the address of a map's value in r0. The key of 32 bits is in a register. Control goes to missing if
// there is none. It clears r1 to r5.
func (a *assembler) lookup(fd int, key asm.Register, missing string) {
	a.add(
		store(asm.RFP, stackKey, key, asm.Word),
		asm.LoadMapPtr(asm.R1, fd), move(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, missing),
	)
}

// chunk leaves the address of the chunk in dst whose number is in key. A chunk is a value of a map in a map; both
// look-ups can fail as far as the verifier knows, so both are checked. It clears r0 to r5.
func (a *assembler) chunk(dst asm.Register, chunks int, key asm.Register) {
	a.lookup(chunks, key, damaged)
	a.add(
		set(asm.RFP, stackKey, 0), move(asm.R1, asm.R0), move(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, damaged),
		move(dst, asm.R0),
	)
}

// search emits a binary search. statePosition of the state in r6 moves forward by powers of two, the largest first, as
// long as it stays below the limit in r4, and less leaves its label if the key is below the value there, whose number
// is in r1. It is unrolled, since the verifier follows no loop without a bound; shortcuts are where to begin for
// shorter lists.
func (a *assembler) search(largest int, shortcuts map[int]string, less func(next string)) {
	for step := largest; step > 0; step /= 2 {
		if name := shortcuts[step]; name != "" {
			a.label(name)
		}
		next := a.fresh()
		a.add(load(asm.R1, asm.R6, statePosition, asm.Word), asm.Add.Imm(asm.R1, int32(step)),
			asm.JGE.Reg(asm.R1, asm.R4, next))
		less(next)
		a.add(store(asm.R6, statePosition, asm.R1, asm.Word))
		a.label(next)
	}
}
