package codeflow

import (
	"math/bits"
	"strings"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file decides in which states control enters a group: as after a call, as the row says, as other groups hand
// over, or as the code behind a label shows. A wrong choice makes false findings, so each case below stands for code
// that was seen.

// process interprets group g with the states that flow into it.
func (f *flow) process(g int) {
	f.code.never, f.guess, f.own, f.labels = nil, false, nil, 0
	members := f.p.members(g)
	for restart := 0; ; restart++ {
		f.begin(members)
		f.newly = 0
		// newly is at conflict's bound then, so this restart finds no more calls and is the last.
		if restart >= 8 {
			f.newly = 8
		}
		if f.code.parts[0].fn.Signal || len(f.code.parts[0].code) == 0 {
			return
		}
		if strings.HasPrefix(f.p.img.SectionOf(f.code.parts[0].fn.Lo), ".plt") {
			f.plt()
		} else {
			for k := range f.code.parts {
				f.enter(&f.code.parts[k])
			}
		}
		f.interpret()
		f.guess = len(f.code.never) > 0
		if f.popsReturn() {
			continue
		}
		if f.newly == 0 || restart >= 8 {
			break
		}
	}
	for k := range f.code.parts {
		f.rest(&f.code.parts[k])
	}
}

// popsReturn finds parts that are not entered by calls, since they would remove their own return address: such as
// _dl_runtime_resolve, which a PLT jumps to with two words pushed. It notes them in f.own, so that they begin as their
// row says, and reports whether there are new ones. A part whose row describes another frame counts also if it does not
// return, and only a stored address, or the symbol of an empty function before it, says that calls lead to it.
//
// Without rows, a part is a label whose address is taken, and the code after it shows the state (see label). If that
// shows nothing, code with the alignment of functions begins as after a call, and other code only if one of its rets
// confirms it. A part with a function's symbol begins as after a call in any case, but the states that follow are
// Guessed.
func (f *flow) popsReturn() (found bool) {
	for k := range f.code.parts {
		q := &f.code.parts[k]
		lo := q.fn.Lo
		if f.own[lo] || f.p.called.has(lo) {
			continue
		}
		own := q.above && (q.other || f.rows == nil)
		if q.other && f.p.isEntry(lo) && (f.p.weaklyNamed(lo) || !q.returns && f.p.goesInto(q.i)) {
			own = own || !q.returns || len(f.code.parts) > 1 || len(f.p.extOf[q.i]) > 0 // what returns may come from elsewhere
		}
		if f.rows == nil && q.fn.Shared && !f.p.isCalled(lo) {
			if s, ok := f.label(lo, true); ok {
				own = own || s.Regs[rsp] != baseAt(0, -8)
			} else {
				own = own || !q.level && lo%functionAlign != 0
			}
		}
		if own {
			if f.own == nil {
				f.own = map[uint64]bool{}
			}
			f.own[lo], found = true, true
		}
	}
	return found
}

// plt enters each entry of a procedure linkage table as a call does. Entries have 16 bytes (psABI §5.2), those of ld's
// .plt.got 8; PLT0 of .plt begins with two words pushed, and rows describe it.
func (f *flow) plt() {
	lo, hi := f.code.parts[0].fn.Lo, f.code.parts[0].fn.Hi
	name := f.p.img.SectionOf(lo)
	step := uint64(16)
	if name == ".plt.got" {
		step = 8
	}
	s := Initial()
	enter := func(pc uint64) {
		f.code.discover(pc)
		if o := f.code.pos(pc); o >= 0 {
			f.flowTo(o, &s, FromEntry)
		}
	}
	for pc := lo; pc < hi; pc += step {
		if pc == lo && name == ".plt" {
			continue
		}
		enter(pc)
		// Before lazy binding, the GOT leads back to the instruction after the jump.
		if k := f.code.inst(pc); k >= 0 && f.code.ins[k].Op == x86.OpJMP && f.code.ins[k].Mem.Base == x86.RIP {
			if next := pc + uint64(f.code.ins[k].Len); next < pc+step {
				enter(next)
			}
		}
	}
}

// enter brings the initial states to the places of a part where control enters it.
func (f *flow) enter(q *part) {
	p, lo := f.p, q.fn.Lo
	s, basis, ok := Initial(), FromEntry, true
	e := p.ext[lo]
	if e != nil && !q.fn.Shared && f.code.jumpsTo(lo) {
		e, ok = nil, false // the group's own jump counts: the other may be to a cold label without code, before the part
	}
	contested := e != nil && e.contested
	if contested {
		e, ok = nil, false
	}
	if f.rows != nil {
		b, known := f.rows.Begin(lo)
		q.other = known && b.Regs[rsp] != s.Regs[rsp]
		if contested || !known || q.other && (!p.isEntry(lo) || f.own[lo]) {
			s, ok, basis = b, known, Assumed
		}
	}
	label := f.rows == nil && f.own[lo]
	if label {
		ok, basis = p.img.starts[lo], Guessed // the symbol says function, the code says label
	}
	if e != nil {
		s, ok, basis = e.s, true, e.basis
	}
	// Without a name and without a state from elsewhere, whether its first instruction is an entry is open.
	others := p.extOf[q.i]
	if e == nil && f.rows != nil && p.unused(lo) && f.code.jumpsTo(lo) {
		ok = false // the state of the group's jump counts, whatever the row says
	}
	if e == nil && !p.referred(lo) {
		// A cold part: control enters it elsewhere than at its first instruction.
		switch {
		case len(f.code.parts) > 1 && (basis == Assumed || p.joined.has(lo)):
			ok = false // the group's other parts lead into it; rest does what they do not reach
		// GCC begins a cold part with a nop if its first instruction is a landing pad: a pad's offset of 0 means that
		// there is none.
		case q.code[0] == 0x90 && (p.ext[lo+1] != nil || q.isPad(lo+1)):
			ok = false
		case f.rows == nil && !p.tailIn[lo]:
			ok = false
		case len(others) > 0 && basis != Assumed && !p.tailIn[lo]:
			ok = false
		}
	}
	// All entries are decoded before the first state flows, so that blocks are not split later.
	if ok {
		f.code.discover(lo)
		f.flowTo(q.off, &s, basis)
		if e != nil && !label && (q.fn.Shared && p.referred(lo) || f.rows == nil && p.isCalled(lo)) {
			entry := Initial()
			f.flowTo(q.off, &entry, FromEntry)
		}
	}
	for _, t := range others {
		if t != lo {
			f.code.discover(t)
		}
	}
	for _, t := range others {
		if o := f.code.pos(t); t != lo && o >= 0 {
			e := p.ext[t]
			f.flowTo(o, &e.s, e.basis)
		}
	}
}

// isPad reports whether pc is a landing pad of the part.
func (p *part) isPad(pc uint64) bool {
	for i := range p.fn.Sites {
		if p.fn.Sites[i].Pad == pc {
			return true
		}
	}
	return false
}

// rest interprets the code of a part that nothing led to, from states that it infers. Data among code, code behind
// tables that were not found, and functions without a symbol end here.
func (f *flow) rest(p *part) {
	var in x86.Inst
	p.gap = false
	last := ^uint64(0)
	quiet := true      // control does not come from the previous instruction
	before := int32(0) // 1 + index of that instruction, if it was reached and quiet does not tell of it yet
	for pos := p.fn.Lo; pos < p.end(); {
		if k := f.code.instAt[int(pos-p.fn.Lo)+p.off]; k > 0 {
			before = k
			pos += uint64(f.code.ins[k-1].Len)
			continue
		}
		if before > 0 {
			quiet, before = f.code.stops(f.code.pcs[before-1], &f.code.ins[before-1]), 0
		}
		if end := f.code.switches.dataEnd(pos); end > 0 {
			pos = min(end, p.end())
			p.gap, quiet = true, true
			continue
		}
		if x86.Decode(p.code[pos-p.fn.Lo:], &in) != nil {
			pos++
			p.gap, quiet = true, false
			continue
		}
		if quiet && p.code[pos-p.fn.Lo] == 0 { // Pascal fills with an odd number of zeros, too
			pos++
			continue
		}
		if padding(&in) {
			pos += uint64(in.Len)
			continue
		}
		s, basis, ok, label := State{}, FromEntry, false, false
		if pos != last {
			last = pos
			if quiet && f.rows == nil {
				s, label = f.label(pos, false)
				if t, ok := f.afterCall(pos); ok && t.Regs[rsp] != s.Regs[rsp] {
					label = false
				}
			}
			if ok = label; !label {
				s, basis, ok = f.assume(pos)
			}
			if f.rows != nil && quiet && ok && !f.shownByRet(pos, &s) && !f.prologue(pos, &s) &&
				in.Op == x86.OpPOP && f.p.called.has(pos) && !s.IsInitial() {
				s.move(-8) // it takes its return address off what the row describes
			}
			p.begun = append(p.begun, pos)
		}
		if !ok {
			quiet = f.code.stops(pos, &in)
			pos += uint64(in.Len)
			p.gap = true
			continue
		}
		if f.code.isData(p, pos) {
			p.gap = true
			for pos < p.end() && f.code.instAt[int(pos-p.fn.Lo)+p.off] == 0 {
				pos++
			}
			continue
		}
		f.code.split = f.code.split[:0]
		f.code.discover(pos)
		f.settle()
		f.softly = label
		f.flowTo(int(pos-p.fn.Lo)+p.off, &s, basis)
		f.interpret()
		f.softly = false
	}
}

// shownByRet reports whether the code after pos, where nothing leads to, shows by its ret where the CFA is. It corrects
// the state s that a row gives if that is elsewhere.
func (f *flow) shownByRet(pos uint64, s *State) bool {
	r := s.Regs[rsp]
	if r.Kind != Base || r.Reg != 0 || !s.ReturnKept() { // the row's CFA may be another place
		return false
	}
	if !f.code.returnsSoon(pos) {
		return false
	}
	shown, ok := f.label(pos, false)
	if !ok || shown.Regs[rsp] == r {
		return ok
	}
	for h := range uint8(16) {
		if CalleeSaved>>h&1 != 0 && shown.Saved(h).Kind == Lost {
			shown.Regs[h] = s.Regs[h]
		}
	}
	*s = shown
	return true
}

// prologue corrects the state s that a row gives at pos, where nothing leads to, if the code pushes callee-saved
// registers there and the same row covers what follows: of the two places, the row is then about the second. It reports
// whether it did so.
func (f *flow) prologue(pos uint64, s *State) bool {
	var in x86.Inst
	var pushed uint16
	size, code := int32(0), f.p.img.Code(pos)
	off := 0
	for ; off < len(code) && x86.Decode(code[off:], &in) == nil; off += int(in.Len) {
		a, b := &in.Args[0], &in.Args[1]
		if in.Op == x86.OpPUSH && gpr64(a) && CalleeSaved>>a.Reg&1 != 0 {
			pushed |= 1 << a.Reg
			size += 8
		} else if in.Op == x86.OpSUB && gpr64(a) && a.Reg == rsp && b.Kind == x86.KImm && in.Imm == int64(uint16(in.Imm)) {
			size += int32(in.Imm)
		} else {
			break
		}
	}
	r := s.Regs[rsp]
	after, ok := f.rows.Begin(pos + uint64(off))
	if in.Op == x86.OpPUSH || bits.OnesCount16(pushed) < 2 || !ok || r.Kind != Base || after.Regs[rsp] != r ||
		r.Off+size > -8 {
		return false
	}
	s.move(size)
	s.dropBelow()
	for h := range uint8(16) {
		if pushed>>h&1 != 0 {
			s.Regs[h] = entryOf(h)
		}
	}
	return true
}

// returnsSoon reports whether a ret follows pos, in the order of the bytes, before a call, a system call and a jump
// back. A walk from a label takes much longer, so rest asks this first.
func (l *listing) returnsSoon(pos uint64) bool {
	// Instructions. A longer way costs the correction alone, and the row counts as it is.
	const soon = 96
	code := l.p.img.Code(pos)
	var in x86.Inst
	for off, n := 0, 0; n < soon && off < len(code); n++ {
		if x86.Decode(code[off:], &in) != nil {
			return false
		}
		switch in.Op {
		case x86.OpRET:
			return true
		case x86.OpCALL, x86.OpSYSCALL:
			return false
		case x86.OpJMP:
			if t, ok := in.RelTarget(pos + uint64(off)); !ok || t < pos {
				return false
			}
		}
		off += int(in.Len)
	}
	return false
}

// settle brings states to the leaders in l.split: the blocks that they split were interpreted earlier, as wholes.
func (f *flow) settle() {
	for _, pc := range f.code.split {
		if o := f.code.leaderOf(pc); o >= 0 {
			f.joins.enqueue(uint32(o))
		}
	}
	f.interpret()
}

// jumpedOver is how many bytes of data a function may begin with: Go's marks of its libraries have 29.
const jumpedOver = 64

// isData reports whether the unreached bytes at pos are data: decoded as code, they jump or run into the middle of a
// reached instruction, or are invalid; or the function begins with a jump over them, as over clang's types of
// -fsanitize=function.
func (l *listing) isData(p *part, pos uint64) bool {
	if k, ok := l.before(p, pos); ok && l.ins[k].Op == x86.OpJMP && l.ins[k].Args[0].Kind == x86.KRel &&
		l.pcs[k] <= p.fn.Lo+4 {
		if t := l.ins[k].Target(l.pcs[k]); t > pos && t <= pos+jumpedOver {
			return true
		}
	}
	var in x86.Inst
	for pos < p.end() {
		o := int(pos-p.fn.Lo) + p.off
		if l.instAt[o] > 0 {
			return false
		}
		if x86.Decode(p.code[pos-p.fn.Lo:], &in) != nil {
			return true
		}
		for k := 1; k < int(in.Len); k++ {
			if l.instAt[o+k] > 0 {
				return true
			}
		}
		switch in.Op {
		case x86.OpJMP, x86.OpJCC, x86.OpCALL:
			if in.Args[0].Kind == x86.KRel && l.splits(in.Target(pos)) {
				return true
			}
		}
		if in.Op == x86.OpJMP || ends(in.Op) {
			return false
		}
		pos += uint64(in.Len)
	}
	return false
}

// padding reports whether an instruction is what linkers and assemblers fill with: nops, int3, and zeros, which decode
// as add %al,(%rax). Three-byte and longer nops are one operation to x86 (0f 1f /0, Intel SDM volume 2, table 4-12).
func padding(in *x86.Inst) bool {
	return in.Op == x86.OpNOP || in.Op == x86.OpINT3 || in.Len == 2 && in.Op == x86.OpADD && in.Enc.Opcode == 0 &&
		in.Enc.ModRM == 0
}

// IsPadding reports whether an instruction is what linkers and assemblers fill with.
func IsPadding(in *x86.Inst) bool { return padding(in) }

// assume returns a state for the code at pos, which nothing known leads to, and what it rests on.
func (f *flow) assume(pos uint64) (State, Basis, bool) {
	if f.rows != nil {
		s, ok := f.rows.Begin(pos)
		return s, Assumed, ok
	}
	// An indirect jump whose targets were not found may lead here: take its state.
	best := -1
	for k := range f.code.ins {
		in := &f.code.ins[k]
		if in.Op != x86.OpJMP || in.Args[0].Kind == x86.KRel || f.code.switches.table[f.code.pcs[k]] != nil || in.Args[0].Kind == x86.KMem &&
			in.Mem.Base == x86.RIP {
			continue
		}
		if best < 0 || f.code.pcs[k] < pos && (f.code.pcs[best] > pos || f.code.pcs[k] > f.code.pcs[best]) {
			best = k
		}
	}
	if best >= 0 {
		if s, ok := f.stateAt(f.code.pcs[best]); ok {
			return s, Guessed, true
		}
	}
	s, ok := f.afterCall(pos)
	return s, Guessed, ok
}

// afterCall returns the state at pos on the assumption that the call before pos, which was taken not to return, does.
func (f *flow) afterCall(pos uint64) (s State, ok bool) {
	k, ok := f.code.prev(pos)
	if !ok || f.code.ins[k].Op != x86.OpCALL {
		return s, false
	}
	if s, ok = f.stateAt(f.code.pcs[k]); ok {
		f.cpu.exec(f.code.pcs[k], &f.code.ins[k], &s)
	}
	return s, ok
}

// stateAt returns the state before the reached instruction at pc.
func (f *flow) stateAt(pc uint64) (out State, ok bool) {
	o := f.code.leaderOf(pc)
	if o < 0 {
		return out, false
	}
	s := f.joins.states[f.code.lead[o]-1]
	f.block(f.code.pc(o), &s, FromEntry, observe, func(addr uint64, _ *x86.Inst, s *State, _ Basis) {
		if addr == pc {
			out, ok = *s, true
		}
	})
	return out, ok
}
