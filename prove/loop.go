package prove

import "github.com/ehasm/ehasm/abi"

// loop is the state of the machine between two steps, at a lookup. noTerm stands for
// what does not matter.
type loop struct {
	rel    term    // the pc to look up, minus base
	mask   term    // valid registers among inRegisters, by DWARF number; a walk keeps it in ecx
	cursor term    // minus the number of steps left in the segment
	base   term    // load bias + base + 1
	pcs    term    // where the segment's pcs end
	rsp    term    // the target's rsp as a host address
	delta  term    // host address - target address
	rbp    term    // the target's rbp; if invalid, outside minus delta
	home   [5]term // rbx, r12 to r15

	// What the slots of the frame hold, see layout.go.
	first, low, regs, mem, slotBase, sync, high, left, next, result term
}

// unknown returns a loop of which nothing is known.
func unknown() loop {
	n := noTerm
	return loop{
		rel: n, mask: n, cursor: n, base: n, pcs: n, rsp: n, delta: n, rbp: n, home: [5]term{n, n, n, n, n},
		first: n, low: n, regs: n, mem: n, slotBase: n, sync: n, high: n, left: n, next: n, result: n,
	}
}

// homeOf tells where the five registers of loop.home are: half 0 is the low 8 bytes of the SSE
// register.
var homeOf = [5]struct {
	xmm, half uint8 // number of the SSE register, and 0 or 1
	dwarf     int
}{{5, 0, abi.RBX}, {3, 0, abi.R12}, {3, 1, abi.R13}, {4, 0, abi.R14}, {4, 1, abi.R15}}

// slots returns what the slots of the frame hold.
func (l *loop) slots() [10]struct {
	off int64
	v   term
} {
	return [10]struct {
		off int64
		v   term
	}{{slotFirst, l.first}, {slotLow, l.low}, {slotRegs, l.regs}, {slotMem, l.mem}, {slotBase, l.slotBase},
		{slotSync, l.sync},
		{slotHigh, l.high}, {slotLeft, l.left}, {slotNext, l.next}, {slotResult, l.result}}
}
