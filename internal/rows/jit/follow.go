package jit

import (
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file follows code forward from a pc to a return, with what it does to rsp, rbp and the saved registers. Unlike
// codeflow it has no function's beginning to start from, and must answer within a millisecond.

// row says where a caller's registers are, in terms of the registers at an address.
type row struct {
	pc, sp      value
	regs        [16]value // only calleeSaved
	agreed      bool      // all ways from the address lead to returns that agree
	interpreted bool      // HotSpot's interpreter, which keeps a frame pointer
}

// value is what a register or a word of the stack holds: an entry register plus an offset, or the word of memory at
// that place.
type value struct {
	kind   kind
	reg    x86.Reg
	offset int64
}

type kind uint8

const (
	unknown kind = iota
	entry
	slot
)

// calleeSaved are the registers that functions restore: x86-64 psABI figure 3.4.
var calleeSaved = [...]x86.Reg{x86.RBX, x86.RBP, x86.R12, x86.R13, x86.R14, x86.R15}

// Bounds on following code from one address. A return found soon is rather the function's own than one behind a call
// that does not return; two that agree are nearly always right.
const (
	mostSteps  = 4000 // instructions, 0.8 ms
	enough     = 500  // if this number has led to a return, others are not looked for
	enoughOf2  = 100  // the same for two returns that agree
	mostStores = 64   // of a way
	mostWays   = 64   // that wait to be followed
)

// way is a way through code that is to be followed.
type way struct {
	pc     uint64
	regs   [16]value
	stores []store // of this way alone
}

// store is a word that was written to the stack.
type store struct{ addr, what value }

// follower follows code from an address.
type follower struct {
	read   func(addr uint64, b []byte) int
	ways   []way
	seen   map[uint64]bool
	steps  int
	strict bool // see followStrict
	row    *row
	tail   *row // by a tail call; it counts if there is no return
	ends   int  // returns
	lost   bool // a way was not followed to a return
	bad    bool // returns contradict
}

// follow finds the caller of the function that holds an address, which is a place in it that will be reached: it
// follows the code to returns. The caller's pc is what they return to. It returns nil if none is found. seen is a map
// to use.
func follow(pc uint64, read func(addr uint64, b []byte) int, seen map[uint64]bool) *row {
	f := newFollower(pc, read, seen)
	for len(f.ways) > 0 && !f.bad && (f.row == nil || !f.row.interpreted) {
		if f.steps > mostSteps || f.steps > enough && f.ends > 0 || f.steps > enoughOf2 && f.ends > 1 {
			f.lost = true
			break
		}
		f.next()
	}
	if f.bad {
		return nil
	}
	if f.row == nil {
		return f.tail
	}
	f.row.agreed = !f.lost && !f.row.interpreted
	return f.row
}

// followStrict is follow along ways that call nothing, neither functions nor the kernel, of which there must be one: a
// call may be one that never returns, behind which other code lies. It returns nil unless all such ways lead to returns
// that agree.
func followStrict(pc uint64, read func(addr uint64, b []byte) int, seen map[uint64]bool) *row {
	f := newFollower(pc, read, seen)
	f.strict = true
	for len(f.ways) > 0 && !f.bad && !f.lost {
		f.next()
	}
	if f.bad || f.lost {
		return nil
	}
	return f.row
}

// newFollower returns a follower with one way, from pc on.
func newFollower(pc uint64, read func(addr uint64, b []byte) int, seen map[uint64]bool) *follower {
	clear(seen)
	first := way{pc: pc}
	for i := range first.regs {
		first.regs[i] = value{entry, x86.Reg(i), 0}
	}
	return &follower{read: read, seen: seen, ways: []way{first}}
}

// next follows the last way that was found.
func (f *follower) next() {
	w := f.ways[len(f.ways)-1]
	f.ways = f.ways[:len(f.ways)-1]
	f.walk(&w)
}

// walk follows one way to its end. Each instruction is followed once, by the first way that comes to it.
func (f *follower) walk(w *way) {
	var buf [15]byte
	var in x86.Inst
	for !f.seen[w.pc] {
		f.seen[w.pc] = true
		if f.steps++; f.steps > mostSteps {
			f.lost = true
			return
		}
		n := f.read(w.pc, buf[:])
		if x86.Decode(buf[:n], &in) != nil {
			f.lost = true
			return
		}
		next := w.pc + uint64(in.Len)
		switch in.Op {
		case x86.OpRET:
			sp := w.regs[x86.RSP]
			f.end(w, w.load(sp), sp.plus(int64(in.Stack)))
			return
		// The branch waits, the way goes on: straight code is rather the usual case.
		case x86.OpJCC:
			if len(f.ways) == mostWays {
				f.lost = true
			} else {
				other := way{pc: in.Target(w.pc), regs: w.regs, stores: slices.Clone(w.stores)}
				f.ways = append(f.ways, other)
			}
		case x86.OpJMP:
			if in.Args[0].Kind != x86.KRel {
				f.jump(w, &in)
				return
			}
			next = in.Target(w.pc)
		case x86.OpUnknown, x86.OpUD2, x86.OpHLT, x86.OpINT3:
			f.lost = true
			return
		default:
			if f.strict && (in.Op == x86.OpCALL || in.Op == x86.OpSYSCALL) {
				return
			}
			w.exec(&in)
		}
		if len(w.stores) > mostStores {
			f.lost = true
			return
		}
		w.pc = next
	}
}

// jump ends a way at a jump to an address that is not known before.
func (f *follower) jump(w *way, in *x86.Inst) {
	f.lost = true
	switch a := &in.Args[0]; {
	// To a return address that was popped, in code with a frame pointer: another one may be a place in the same function.
	case a.Kind == x86.KGPR && w.regs[a.Reg].kind == slot && w.regs[a.Reg].reg == x86.RBP:
		f.end(w, w.regs[a.Reg], w.regs[x86.RSP])
	// To another function, as from HotSpot's stubs that look up the method of an interface. Tables of jumps have an index.
	case a.Kind == x86.KMem && in.Mem.Index == x86.None:
		pc, sp := w.load(w.regs[x86.RSP]), w.regs[x86.RSP].plus(8)
		if onStack(pc, sp) && f.tail == nil {
			f.tail = rowOf(w, pc, sp)
		}
	// HotSpot's interpreter goes on with the next bytecode: its frames have the caller's stack pointer below the saved
	// frame pointer (templateInterpreter, frame_x86.hpp: interpreter_frame_sender_sp_offset).
	case a.Kind == x86.KMem && in.Mem.Base == x86.R10 && in.Mem.Index == x86.RBX && in.Mem.Scale == 8:
		bp := w.regs[x86.RBP]
		r := &row{pc: w.load(bp.plus(8)), sp: w.load(bp.plus(-8)), interpreted: true}
		r.regs[x86.RBP] = w.load(bp)
		if r.pc.kind == slot && r.sp.kind != unknown {
			f.row = r
		}
	}
}

// end notes a return to pc that leaves sp. A second return from another register's frame, such as rbp's, can't be
// compared, and says nothing.
func (f *follower) end(w *way, pc, sp value) {
	if !onStack(pc, sp) {
		f.lost = true
		return
	}
	f.ends++
	if f.row != nil {
		f.bad = f.bad || pc.reg == f.row.pc.reg && (pc != f.row.pc || sp != f.row.sp)
		return
	}
	f.row = rowOf(w, pc, sp)
}

// onStack reports whether pc can be a return address, with sp above it: not a word of other memory that was pushed, as
// behind a call which never returns.
func onStack(pc, sp value) bool {
	// the frame begins at or above the stack pointer
	if pc.kind != slot || sp.kind == unknown || sp.reg == x86.RSP && sp.offset <= 0 {
		return false
	}
	return pc.reg == sp.reg || pc.reg == x86.RSP || pc.reg == x86.RBP
}

// rowOf returns the row of a way's end.
func rowOf(w *way, pc, sp value) *row {
	r := &row{pc: pc, sp: sp}
	for _, reg := range calleeSaved {
		r.regs[reg] = w.regs[reg]
	}
	return r
}

// plus returns a value plus a number.
func (v value) plus(n int64) value {
	if v.kind != entry {
		if n == 0 {
			return v
		}
		return value{}
	}
	v.offset += n
	return v
}

// load returns the word at an address. Words that were not written hold what they held at the start: a slot.
func (w *way) load(addr value) value {
	if addr.kind != entry {
		return value{}
	}
	for _, s := range slices.Backward(w.stores) {
		if s.addr == addr {
			return s.what
		}
	}
	return value{slot, addr.reg, addr.offset}
}

// store notes that a word was written.
func (w *way) store(addr, what value) {
	if addr.kind != entry {
		return
	}
	w.stores = append(w.stores, store{addr, what})
}

// address returns where an instruction's memory operand is.
func (w *way) address(in *x86.Inst) value {
	m := &in.Mem
	if m.Base > x86.R15 || m.Index != x86.None || m.Seg != 0 || m.Addr32 {
		return value{}
	}
	return w.regs[m.Base].plus(m.Disp)
}

// exec does what an instruction does, as far as it is known. A store to an unknown address is taken to change no word
// of the frame.
func (w *way) exec(in *x86.Inst) {
	const word = 8
	sp := &w.regs[x86.RSP]
	a, b := &in.Args[0], &in.Args[1]
	full := in.OpSize == word
	switch {
	case in.Op == x86.OpCALL:
		for r := range w.regs {
			if x86.Reg(r) != x86.RSP && !slices.Contains(calleeSaved[:], x86.Reg(r)) {
				w.regs[r] = value{}
			}
		}
	case in.Op == x86.OpPUSH && full:
		what := value{}
		if a.Kind == x86.KGPR {
			what = w.regs[a.Reg]
		}
		*sp = sp.plus(-word)
		w.store(*sp, what)
	case in.Op == x86.OpPOP && full && a.Kind == x86.KGPR:
		what := w.load(*sp)
		*sp = sp.plus(word)
		w.regs[a.Reg] = what
	case in.Op == x86.OpLEAVE && full:
		w.regs[x86.RBP], *sp = w.load(w.regs[x86.RBP]), w.regs[x86.RBP].plus(word)
	case in.Op == x86.OpLEA && full:
		w.regs[a.Reg] = w.address(in)
	case (in.Op == x86.OpADD || in.Op == x86.OpSUB) && full && a.Kind == x86.KGPR && b.Kind == x86.KImm:
		n := in.Imm
		if in.Op == x86.OpSUB {
			n = -n
		}
		w.regs[a.Reg] = w.regs[a.Reg].plus(n)
	case in.Op == x86.OpMOV && full && a.Kind == x86.KGPR && b.Kind == x86.KGPR:
		w.regs[a.Reg] = w.regs[b.Reg]
	case in.Op == x86.OpMOV && full && a.Kind == x86.KGPR && b.Kind == x86.KMem:
		w.regs[a.Reg] = w.load(w.address(in))
	case in.Op == x86.OpMOV && full && a.Kind == x86.KMem && b.Kind == x86.KGPR:
		w.store(w.address(in), w.regs[b.Reg])
	default:
		if in.MemWrite {
			w.store(w.address(in), value{})
		}
		if in.Stack != 0 {
			*sp = sp.plus(int64(in.Stack))
		}
		for r := range w.regs {
			if in.Writes>>r&1 != 0 && (x86.Reg(r) != x86.RSP || in.Stack == 0) {
				w.regs[r] = value{}
			}
		}
	}
}
