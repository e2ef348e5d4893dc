package codeflow

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file finds where indirect jumps lead: the table's address and bound from the instructions before the jump, then
// its entries. A table that is read too far brings states to code they never reach, one read too short leaves code
// unreached; the first makes false findings, so in doubt reading stops.

// tableForm describes an indirect jump's table, as far as it is known.
type tableForm struct {
	addr       uint64
	abs        bool   // words of 8 bytes; otherwise 4-byte distances from plus
	base       int    // register that holds addr, -1 unknown
	far        bool   // other blocks lead to between where addr is set and the jump
	add1, add2 int    // registers whose sum is the target
	plus       uint64 // base of the distances, 0 unknown; the table's own address, except for computed gotos
	plusReg    int    // register that holds plus, -1 unknown
	bound      int64  // the highest index, -1 unknown
	jump       uint8  // register that the jump goes through
}

const (
	// Beyond these bounds a jump has no table, or a shorter one: code is then unreached, which makes no finding.
	// Reading stops earlier at the first entry that leads to no instruction.
	maxTable    = 1024   // entries without a bound
	maxBound    = 100000 // entries at all
	maxBackward = 60     // instructions looked at
)

// tableForm finds the table of an indirect jump, in the forms that GCC, clang and rustc emit. addr is 0 if it is none
// of them, or if the register that holds the address is not set in the instructions before:
//
//	lea table(%rip),%b; movslq (%b,%i,4),%t; add %b,%t; jmp *%t
//	lea table(%rip),%b; movslq (%b,%i,4),%t; lea label(%rip),%l; add %l,%t; jmp *%t
//	jmp *table(,%i,8)     jmp *(%b,%i,8)     mov table(,%i,8),%t; jmp *%t
func (l *listing) tableForm(k int32) tableForm {
	pc, in := l.pcs[k], &l.ins[k]
	t := tableForm{base: -1, add1: -1, add2: -1, plusReg: -1, bound: -1}
	switch a := &in.Args[0]; a.Kind {
	case x86.KGPR:
		t.jump = a.Reg
	case x86.KMem:
		m := &in.Mem
		if m.Index == x86.None || m.Scale != 8 {
			return t
		}
		t.abs = true
		if m.Base == x86.None {
			t.addr = uint64(m.Disp)
		} else {
			t.base = int(m.Base)
		}
	}
	l.backward(pc, &t)
	switch {
	case t.addr == 0 && t.base < 0: // the word is read in a separate instruction, as at -O0
		t.addr = t.plus
	case t.plus == 0:
		t.plus = t.addr
	}
	if t.plus != t.addr {
		t.bound = -1 // it bounds the index of another lookup
	}
	return t
}

// tables holds where the indirect jumps of a group lead.
type tables struct {
	jumps  []int32             // indirect jumps whose tables were not looked for yet
	held   []held              // indirect jumps whose register gets the address of the table in another block
	heldAt int                 // how many instructions were decoded when held was looked at last
	leas   [16][]tableAddr     // by register: addresses that lea puts into it
	table  map[uint64][]uint64 // targets, by the jump's address
	data   []span              // of the group's code, the bytes of tables that were read
	byAddr map[tableAddr][]uint64
	found  []uint64 // scratch of readTable
}

// begin empties t for another group and keeps its memory: a run has as many groups as functions.
func (t *tables) begin() {
	t.jumps, t.held, t.heldAt, t.data = t.jumps[:0], t.held[:0], 0, t.data[:0]
	for r := range t.leas {
		t.leas[r] = t.leas[r][:0]
	}
	if t.table == nil {
		t.table, t.byAddr = map[uint64][]uint64{}, map[tableAddr][]uint64{}
	}
	clear(t.table)
	clear(t.byAddr)
}

// held is an indirect jump through a table whose address a register brings from other blocks.
type held struct {
	jump int32 // index among the instructions
	base int
}

// tableAddr is the address of a jump table, or what may be one, as a part of the group uses it.
type tableAddr struct {
	addr uint64
	part int // index among the program's functions
}

// resolveHeld completes the targets of held jumps: a loop may set the register once and jump through it from several
// places. A held jump may lead to the targets of every table whose address its part puts into that register, or the
// whole group if the part puts none; if the register is set in another way, such as from the stack, to those of every
// table. Without these targets, the code there would count as reached from other places only. resolveHeld reports
// whether a jump got new targets.
func (l *listing) resolveHeld() (found bool) {
	if len(l.switches.held) == 0 || l.switches.heldAt == len(l.ins) {
		return false
	}
	l.switches.heldAt = len(l.ins)
	for _, h := range l.switches.held {
		pc := l.pcs[h.jump]
		ts := l.heldTargets(h)
		if len(ts) <= len(l.switches.table[pc]) {
			continue
		}
		found = true
		l.setTable(h.jump, ts)
		l.split = append(l.split, pc) // it may have been interpreted already
	}
	return found
}

// heldTargets returns the targets of a held jump, ascending: of the tables that were read at addresses which its part
// puts into the register. If none of these was read, one address is read as a table of the form that the code before
// the jump suggests; among several, nothing says which belongs to the jump. If there is no address, the jump has the
// tables of its part.
func (l *listing) heldTargets(h held) (out []uint64) {
	out = append(out, l.switches.table[l.pcs[h.jump]]...)
	part := l.partOf(l.pcs[h.jump]).i
	addrs := ofPart(l.switches.leas[h.base], part)
	for _, a := range addrs {
		out = append(out, l.switches.byAddr[a]...)
	}
	if len(out) == 0 {
		switch len(addrs) {
		case 0:
			for _, a := range ofPart(slices.SortedFunc(maps.Keys(l.switches.byAddr), tableAddr.compare), part) {
				out = append(out, l.switches.byAddr[a]...)
			}
		case 1:
			t := l.tableForm(h.jump)
			t.addr = addrs[0].addr
			if t.plus == 0 {
				t.plus = t.addr
			}
			if out = l.readTable(&t); out != nil {
				l.switches.byAddr[addrs[0]] = out
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ofPart returns the addresses that a part uses; all if it uses none, as where the register is set before a jump to a
// cold part.
func ofPart(all []tableAddr, part int) (own []tableAddr) {
	for _, l := range all {
		if l.part == part {
			own = append(own, l)
		}
	}
	if own == nil {
		return all
	}
	return own
}

// compare orders addresses, so that no result depends on the order of a map.
func (l tableAddr) compare(o tableAddr) int {
	return cmp.Or(cmp.Compare(l.addr, o.addr), cmp.Compare(l.part, o.part))
}

// backward looks through the instructions before the jump, along fall-through and, if there is none, a jump that leads
// here.
func (l *listing) backward(pc uint64, t *tableForm) {
	cur := pc
	for range maxBackward {
		if t.addr == 0 && t.base >= 0 && l.lead[l.pos(cur)] != 0 {
			t.far = true
		}
		i, ok := l.prev(cur)
		if ok {
			q := &l.ins[i]
			if q.Op == x86.OpJMP || ends(q.Op) {
				ok = false
			}
		}
		if !ok {
			if cur, ok = l.jumpTo(cur, t); !ok {
				return
			}
			continue
		}
		cur = l.pcs[i]
		l.look(cur, &l.ins[i], t)
		if t.bound >= 0 && (t.plus != 0 && (t.addr != 0 || t.base < 0) || t.abs && t.addr != 0) {
			return
		}
	}
}

// jumpTo finds a direct jump to pc and looks for a bound before it.
func (l *listing) jumpTo(pc uint64, t *tableForm) (uint64, bool) {
	for k := range l.ins {
		q := &l.ins[k]
		if q.Op != x86.OpJMP && q.Op != x86.OpJCC || q.Args[0].Kind != x86.KRel || q.Target(l.pcs[k]) != pc {
			continue
		}
		if q.Op == x86.OpJCC && t.bound < 0 && (q.Cond == x86.CondBE || q.Cond == x86.CondB) {
			l.compare(l.pcs[k], q.Cond^1, t)
		}
		return l.pcs[k], true
	}
	return 0, false
}

// compare takes the bound from a comparison before pc; condition c leads away from the table.
func (l *listing) compare(pc uint64, c x86.Cond, t *tableForm) {
	p, ok := l.prev(pc)
	if !ok {
		return
	}
	q := &l.ins[p]
	if q.Op != x86.OpCMP || q.Args[1].Kind != x86.KImm {
		return
	}
	n := q.Imm
	if q.Args[0].Size == 1 {
		n &= 255
	}
	switch c {
	case x86.CondA:
		t.bound = n
	case x86.CondAE:
		t.bound = n - 1
	}
}

// look takes from an instruction before an indirect jump what it says of the table. tableForm lists the forms. The
// instruction nearest to the jump counts, so what is known already stays.
func (l *listing) look(pc uint64, q *x86.Inst, t *tableForm) {
	a, b := &q.Args[0], &q.Args[1]
	reg := func(o *x86.Arg) int {
		if o.Kind == x86.KGPR {
			return int(o.Reg)
		}
		return -2
	}
	switch q.Op {
	case x86.OpADD:
		if !t.abs && t.add1 < 0 && gpr64(a) && gpr64(b) && a.Reg == t.jump {
			t.add1, t.add2 = int(a.Reg), int(b.Reg)
		}
	case x86.OpLEA:
		if q.Mem.Base != x86.RIP {
			break
		}
		addr, _ := q.MemAddr(pc)
		r := reg(a)
		if t.base >= 0 && r == t.base && t.addr == 0 {
			t.addr = addr
		}
		if t.plus == 0 && !t.abs && (r == t.plusReg || t.base < 0 && t.add1 >= 0 && (r == t.add1 || r == t.add2)) {
			t.plus = addr
		}
	case x86.OpMOVSXD:
		if b.Kind == x86.KMem && q.Mem.Index != x86.None && q.Mem.Scale == 4 && t.base < 0 && q.Mem.Base <= x86.R15 &&
			(t.plus == 0 || reg(a) == t.add1 || reg(a) == t.add2) {
			t.base = int(q.Mem.Base)
			if t.plusReg = t.add1; reg(a) == t.add1 {
				t.plusReg = t.add2
			}
		}
	case x86.OpMOV:
		if gpr64(a) && b.Kind == x86.KMem && q.Mem.Index != x86.None && q.Mem.Scale == 8 && t.addr == 0 && t.base < 0 &&
			a.Reg == t.jump {
			t.abs = true
			if q.Mem.Base == x86.None {
				t.addr = uint64(q.Mem.Disp)
			} else if q.Mem.Base <= x86.R15 {
				t.base = int(q.Mem.Base)
			}
		}
	case x86.OpJCC:
		if t.bound < 0 && (q.Cond == x86.CondA || q.Cond == x86.CondAE) {
			l.compare(pc, q.Cond, t)
		}
	}
}

// readTable reads targets up to the bound. It stops at the next address that some lea takes if there is no bound or a
// table begins there, at a target inside an instruction and at one outside the function.
func (l *listing) readTable(t *tableForm) []uint64 {
	out := l.switches.found[:0]
	limit := int64(maxTable)
	if t.bound >= 0 && t.bound < maxBound {
		limit = t.bound + 1
	}
	size := uint64(4)
	if t.abs {
		size = 8
	}
	for k := uint64(0); k < uint64(limit); k++ {
		addr := t.addr + k*size
		var to uint64
		if t.abs {
			v, ok := l.p.img.word(addr)
			if !ok {
				break
			}
			to = v
		} else {
			v, ok := l.p.img.half(addr)
			if !ok {
				break
			}
			to = t.plus + uint64(int64(v))
		}
		// A bound may be the one for what the index is made from.
		if k > 0 && l.p.lea.has(addr) && (t.bound < 0 || !t.abs && l.p.boundary.has(addr+to-t.plus)) {
			break
		}
		if l.inside(to) {
			if !l.p.boundary.has(to) {
				break
			}
			out = append(out, to)
			continue
		}
		// a cold part
		if g := l.p.find(to); t.bound >= 0 && g >= 0 && l.p.boundary.has(to) && !l.p.referred(l.p.fns[g].Lo) {
			out = append(out, to)
			continue
		}
		break
	}
	l.switches.found = out
	if len(out) == 0 {
		return nil
	}
	if l.inside(t.addr) {
		l.switches.data = append(l.switches.data, span{t.addr, t.addr + uint64(len(out))*size})
	}
	return slices.Clone(out)
}

// dataEnd returns the end of the jump table that holds pc; 0 if none does.
func (t *tables) dataEnd(pc uint64) uint64 {
	for _, d := range t.data {
		if d.lo <= pc && pc < d.hi {
			return d.hi
		}
	}
	return 0
}
