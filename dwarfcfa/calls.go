package dwarfcfa

import (
	"encoding/binary"
)

// Calls holds the places of call instructions in an object's code, to which most pcs on stacks belong. The zero value
// is empty.
type Calls struct {
	base Addr
	last []uint32 // the last byte of each, less base
}

// callsChunk is how much code is read at once.
const callsChunk = 1 << 20

// longestCall bounds the bytes of a call instruction that are looked at: opcode, ModRM, SIB and displacement. A prefix
// (REX.B of call *%r12) lies before the opcode and does not matter.
const longestCall = 7

// Calls finds the call instructions of an object by the bytes that they begin with, without
// decoding what lies before them. A few of them are other bytes: the result is for estimates. An
// object whose code cannot be read has none. Each call weights the row of its pc: see asmgen/plan.
func (o *File) Calls() Calls {
	var c Calls
	if len(o.code) == 0 {
		return c
	}
	// Places are kept as 32-bit distances from here; code further away is left out.
	c.base = o.code[0].start
	last := o.code[len(o.code)-1].end
	buf := make([]byte, callsChunk)
	for _, s := range o.code {
		for addr := s.start; addr < s.end && uint64(addr-c.base) < 1<<32-callsChunk; {
			n := o.ReadImage(addr, buf[:min(callsChunk, uint64(s.end-addr))])
			if n == 0 {
				break
			}
			c.scan(buf[:n], addr, last)
			if addr += Addr(n); addr < s.end && n > longestCall {
				addr -= longestCall // an instruction may go on behind
			}
		}
	}
	return c
}

// scan appends the calls that lie in code at an address and begin more than longestCall before its end, or anywhere if
// it is short. last is where the object's code ends.
func (c *Calls) scan(code []byte, addr, last Addr) {
	for i := 0; i+2 <= len(code); i++ {
		n := 0
		switch code[i] {
		// call rel32; a target outside of the object's code shows that the byte is none. A PLT is code too.
		case 0xe8:
			if i+5 <= len(code) {
				to := addr + Addr(i) + 5 + Addr(int64(int32(binary.LittleEndian.Uint32(code[i+1:]))))
				if to >= c.base && to < last {
					n = 5
				}
			}
		case 0xff:
			if i == 0 || code[i-1] != 0xff { // most often a negative distance
				n = indirectCall(code[i+1])
			}
		}
		if n == 0 || i+n > len(code) {
			continue
		}
		// Chunks overlap, so a call may be found twice; places ascend, so that is easily told.
		end := uint32(addr + Addr(i+n-1) - c.base)
		if k := len(c.last); k == 0 || c.last[k-1] < end {
			c.last = append(c.last, end)
		}
		i += n - 1
	}
}

// indirectCall returns the length of a near call FF /2 by its ModRM byte (Intel SDM volume 2, CALL), 0 for other
// instructions. It does not see the SIB byte: of a call through a table without a base, the 4 bytes of the address are
// missing.
func indirectCall(modRM byte) int {
	if modRM>>3&7 != 2 {
		return 0
	}
	length := 2
	switch modRM >> 6 {
	case 0:
		if modRM&7 == 5 {
			length += 4
		}
	case 1:
		length++
	case 2:
		length += 4
	}
	if modRM&7 == 4 && modRM>>6 != 3 {
		length++
	}
	return length
}

// None reports whether no call is known.
func (c *Calls) None() bool { return len(c.last) == 0 }

// Walk returns a function that counts the calls whose last byte lies below an address and that it has not counted
// before. Addresses ascend from call to call.
func (c *Calls) Walk() func(end Addr) int {
	next := 0
	return func(end Addr) int {
		from := next
		for next < len(c.last) && c.base+Addr(c.last[next]) < end {
			next++
		}
		return next - from
	}
}
