package jit

import (
	"encoding/binary"
	"math/bits"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/ehelf"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file is the last resort for code that never returns: it searches the stack for a return address whose callee
// made the frame.

// Some code never returns: LuaJIT's traces run in the frame of the interpreter, below which they may reserve space in
// units of 16 bytes. The interpreter's function saves many registers; a function that saves fewer than four could be
// anyone's.
const (
	scanned    = 1 << 10 // bytes of the stack that are looked at
	unit       = 16
	mostSaves  = 24 // instructions of a function's beginning
	leastSaved = 4  // registers
)

// scan looks for the nearest return address on the stack whose call leads to a function that has made the frame: it
// saves at least four registers, and its frame lies where the return address says, but for units that were reserved
// later.
func (c *Code) scan(regs *abi.Regs, mem *ehelf.Memory, isCode func(addr uint64) bool) *row {
	const word = 8
	if regs.Valid>>abi.RSP&1 == 0 {
		return nil
	}
	for off := int64(0); off < scanned; off += word {
		back, ok := mem.ReadWord(regs.Reg[abi.RSP] + uint64(off))
		if !ok {
			return nil
		}
		if !isCode(back - 1) { // most words are none, and reading there asks the kernel
			continue
		}
		var call [5]byte
		if c.read(back-uint64(len(call)), call[:]) < len(call) || call[0] != 0xe8 {
			continue
		}
		callee := back + uint64(int64(int32(binary.LittleEndian.Uint32(call[1:]))))
		if r := frameOf(callee, off, c.read); r != nil {
			return r
		}
	}
	return nil
}

// frameOf returns the row of a frame that the beginning of a function has made, if its return address can be that
// number of bytes above the stack pointer.
func frameOf(callee uint64, off int64, read func(addr uint64, b []byte) int) *row {
	w := way{pc: callee}
	for i := range w.regs {
		w.regs[i] = value{entry, x86.Reg(i), 0}
	}
	var buf [15]byte
	var in x86.Inst
	for range mostSaves {
		n := read(w.pc, buf[:])
		if x86.Decode(buf[:n], &in) != nil || in.Op == x86.OpCALL || in.Op == x86.OpJMP || in.Op == x86.OpJCC ||
			in.Op == x86.OpRET {
			break
		}
		w.exec(&in)
		w.pc += uint64(in.Len)
	}
	sp := w.regs[x86.RSP]
	size := -sp.offset
	if sp.kind != entry || sp.reg != x86.RSP || size > off || (off-size)%unit != 0 {
		return nil
	}
	r := &row{pc: value{slot, x86.RSP, off}, sp: value{entry, x86.RSP, off + 8}}
	saved := uint16(0)
	for _, s := range w.stores {
		if s.what.kind == entry && s.what.offset == 0 && s.addr.reg == x86.RSP && r.regs[s.what.reg].kind == unknown {
			r.regs[s.what.reg] = value{slot, x86.RSP, off + s.addr.offset}
			saved |= s.what.reg.Mask()
		}
	}
	for _, reg := range calleeSaved {
		if saved&reg.Mask() == 0 && reg != x86.RBP {
			r.regs[reg] = value{entry, reg, 0}
		}
	}
	const callee6 = 1<<x86.RBX | 1<<x86.RBP | 1<<x86.R12 | 1<<x86.R13 | 1<<x86.R14 | 1<<x86.R15
	if bits.OnesCount16(saved&callee6) < leastSaved {
		return nil
	}
	return r
}
