package codeflow

import (
	"slices"
	"sort"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file runs the analysis over all functions and carries states between groups. A group is interpreted again when a
// new state flows into it; the order of functions and the number of workers do not change the result.

// Result is an interpreted function. It is valid only during Run's callback.
type Result struct {
	f *flow
	k int // index in f.code.parts
	// left says that the states at the function's exits went to other groups. The first Each takes them there, so that
	// one pass does both.
	left bool
}

// Beginner returns the worker's own Beginner, which Options.Begin made.
func (r *Result) Beginner() Beginner { return r.f.rows }

// Func returns the function.
func (r *Result) Func() *Function { return r.f.code.parts[r.k].fn }

// Each calls visit for the reached instructions in address order, each with the state before it. The state is valid
// until visit returns, which must not change it. A second call shows the same.
func (r *Result) Each(visit Visit) {
	if r.left {
		r.f.blocks(&r.f.code.parts[r.k], observe, visit)
		return
	}
	r.left = true
	r.f.blocks(&r.f.code.parts[r.k], handOver, visit)
}

// blocks goes through the part's reached blocks in address order.
func (f *flow) blocks(p *part, ph phase, visit Visit) {
	lead := f.code.lead[p.off : p.off+len(p.code)]
	for o, l := range lead {
		if l > 0 {
			f.s = f.joins.states[l-1]
			basis := f.joins.basis[l-1]
			if f.guess {
				basis = Guessed
			}
			f.block(p.fn.Lo+uint64(o), &f.s, basis, ph, visit)
		}
	}
}

// TooLarge reports whether the function, with those that its jumps lead to, has more code than is interpreted (4 MB):
// none of its instructions counts as reached.
func (r *Result) TooLarge() bool { return r.f.code.large }

// Leads reports whether paths meet or begin at pc, so that the state there may differ from the one after the previous
// instruction.
func (r *Result) Leads(pc uint64) bool {
	p := &r.f.code.parts[r.k]
	return pc-p.fn.Lo >= uint64(len(p.code)) || r.f.code.lead[int(pc-p.fn.Lo)+p.off] != 0
}

// Switches reports whether the instruction at pc jumps by a table that was found.
func (r *Result) Switches(pc uint64) bool { return len(r.f.code.switches.table[pc]) > 0 }

// Begun reports whether the state at pc was inferred, since nothing leads there.
func (r *Result) Begun(pc uint64) bool {
	_, found := slices.BinarySearch(r.f.code.parts[r.k].begun, pc)
	return found
}

// Gaps reports whether code of the function, other than padding, may have been left unreached.
func (r *Result) Gaps() bool { return r.f.code.parts[r.k].gap }

// reached reports whether an instruction that was reached begins at pc.
func (r *Result) reached(pc uint64) bool { return r.Inst(pc) != nil }

// Inst returns the reached instruction at pc, or nil if there is none. It is valid as long as the Result.
func (r *Result) Inst(pc uint64) *x86.Inst {
	p := &r.f.code.parts[r.k]
	if pc-p.fn.Lo >= uint64(len(p.code)) {
		return nil
	}
	if k := r.f.code.instAt[int(pc-p.fn.Lo)+p.off]; k > 0 {
		return &r.f.code.ins[k-1]
	}
	return nil
}

// Within returns the start of the reached instruction that contains pc other than as its first byte;
// ok is false if there is none.
func (r *Result) Within(pc uint64) (uint64, bool) {
	if r.reached(pc) {
		return 0, false
	}
	for d := uint64(1); d < 15; d++ {
		if in := r.Inst(pc - d); in != nil {
			return pc - d, uint64(in.Len) > d
		}
	}
	return 0, false
}

// rounds bounds how often a function is interpreted again when new states flow into it from others. Of a chain of moved
// parts, each entered from the one before, those behind the eighth keep the states that they have.
const rounds = 8

// Run interprets every function and calls each with its Result, concurrently, on the worker that made it. each may be
// called again for the same function when other functions turn out to matter for it; the last call counts.
func (p *Program) Run(each func(i int, r *Result)) {
	outs := make([][]delivery, len(p.fns)) // by group
	breaches := make([]breach, len(p.fns))
	onward := make([][]uint64, len(p.fns))
	do := func(f *flow, g int) {
		f.process(g)
		for k := range f.code.parts {
			q, r := &f.code.parts[k], Result{f: f, k: k}
			if each != nil {
				each(q.i, &r)
			}
			if !r.left {
				r.Each(nil)
			}
			breaches[q.i] = q.breach
			onward[q.i] = nil
			if len(q.onward) > 0 {
				onward[q.i] = append([]uint64(nil), q.onward...)
			}
		}
		outs[g] = f.keep()
	}
	first, late := p.split()
	p.each(first, do)
	dirty := p.merge(first, outs)
	for _, i := range late {
		dirty[i] = true
	}
	for range rounds {
		list := sortedKeys(dirty)
		if len(list) == 0 {
			break
		}
		p.each(list, do)
		dirty = p.merge(list, outs)
	}
	for range privateRounds {
		list := p.private(breaches, onward)
		if len(list) == 0 {
			break
		}
		p.each(list, do)
		p.merge(list, outs)
	}
}

// Again interprets function i once more, after Run, with the states that Run found to flow into it and with b in place
// of Options.Begin's Beginner. It does not change the Program and may be called concurrently, each time with a
// different Beginner.
func (p *Program) Again(i int, b Beginner, each func(r *Result)) {
	f := newFlow(p, b)
	f.process(int(p.group[i]))
	for k := range f.code.parts {
		if f.code.parts[k].i == i {
			each(&Result{f: f, k: k, left: true})
		}
	}
}

// sortedKeys returns the keys ascending: results must not depend on the order of a map.
func sortedKeys(m map[int]bool) []int {
	out := make([]int, 0, len(m))
	for i := range m {
		out = append(out, i)
	}
	sort.Ints(out)
	return out
}

// split divides the groups into those that begin at an entry, and those into which others flow, which come later. Late
// ones would be interpreted twice if they came first.
func (p *Program) split() (first, late []int) {
	isLate := make([]bool, len(p.fns))
	for i := range p.fns {
		for _, t := range p.sum[i].outs {
			if g := p.find(t); g >= 0 && p.group[g] != p.group[i] && !p.referred(p.fns[g].Lo) {
				isLate[p.group[g]] = true
			}
		}
		for _, s := range p.fns[i].Sites {
			if g := p.find(s.Pad); g >= 0 && p.group[g] != p.group[i] {
				isLate[p.group[g]] = true
			}
		}
	}
	first, late = make([]int, 0, len(p.fns)), []int{}
	for i := range p.fns {
		switch {
		case int(p.group[i]) != i:
		case isLate[i]:
			late = append(late, i)
		default:
			first = append(first, i)
		}
	}
	return first, late
}

// deliveryKey identifies deliveries of a function; those with the same key are
// joined.
type deliveryKey struct {
	to      uint64
	kind    edge
	initial bool
}

// keep returns copies of the deliveries that may matter, those with one key joined. They outlive the flow, whose memory
// serves the next group.
func (f *flow) keep() []delivery {
	if len(f.out) == 0 {
		return nil
	}
	var out []delivery
	kept := map[deliveryKey]int{} // index in out
	for k := range f.out {
		d := &f.out[k]
		if f.guess {
			d.basis = Guessed
		}
		if d.kind == edgeTable && !f.plausible(d) {
			continue
		}
		// The numbers of bases mean nothing outside this group.
		d.s.dropForeign()
		k := deliveryKey{d.to, d.kind, d.s.IsInitial()}
		if j, ok := kept[k]; ok {
			e := &out[j]
			if d.kind == edgePad {
				padMeet(&e.s, &d.s)
			}
			e.s.meet(&d.s)
			e.basis = max(e.basis, d.basis)
			continue
		}
		kept[k] = len(out)
		out = append(out, *d)
	}
	return out
}

// endsInCall reports whether the group's last instruction, apart from padding, is a call that may not return: one that
// padding follows, or whose callee is not known to come back. padded says that padding follows.
func (l *listing) endsInCall() (call, padded bool) {
	p := &l.parts[len(l.parts)-1]
	end := p.end()
	k, ok := l.before(p, end)
	for ok && l.ins[k].Op == x86.OpNOP {
		end, padded = l.pcs[k], true
		k, ok = l.before(p, end)
	}
	if !ok || p.end() != p.fn.Hi || l.ins[k].Op != x86.OpCALL {
		return false, padded
	}
	in := &l.ins[k]
	return padded || in.Args[0].Kind != x86.KRel || !l.p.comesBack(in.Target(l.pcs[k]), 0), padded
}

// plausible reports whether a jump-table entry that leads out of its function can be real. A table without a certain
// bound may have been read past its end, into the next one. plausible compares the state with the row at the target;
// without rows it accepts it as Guessed.
func (f *flow) plausible(d *delivery) bool {
	if f.rows == nil {
		d.basis = Guessed
		return true
	}
	b, ok := f.rows.Begin(d.to)
	if !ok {
		return false
	}
	for h := range b.Regs {
		if v := b.Regs[h]; v.Kind != Unknown && v != d.s.Regs[h] {
			return false
		}
	}
	for i := range b.slots[:b.n] {
		if x := &b.slots[i]; d.s.Slot(x.base, x.off) != x.v {
			return false
		}
	}
	return true
}

// Bases of a state that came from another function: those of its rbp and its rsp. They lie behind those of baseID.
const (
	foreignFrame = 252 + iota
	foreignStack
)

// sameFrame reports whether the CFA and the caller's registers are in the same places.
func (s *State) sameFrame(o *State) bool {
	if s.Regs[rsp] != o.Regs[rsp] {
		return false
	}
	for h := range uint8(16) {
		if CalleeSaved>>h&1 != 0 && s.Saved(h) != o.Saved(h) {
			return false
		}
	}
	return true
}

// dropForeign keeps only the CFA and the bases of rbp and rsp, since other bases are numbered per
// function.
func (s *State) dropForeign() {
	fp, sp := uint8(0), uint8(0)
	if v := s.Regs[rbp]; v.Kind == Base {
		fp = v.Reg
	}
	if v := s.Regs[rsp]; v.Kind == Base && v.Reg != fp {
		sp = v.Reg
	}
	rename := func(b uint8) (uint8, bool) {
		switch {
		case b == 0:
			return 0, true
		case b == fp:
			return foreignFrame, true
		case b == sp:
			return foreignStack, true
		}
		return 0, false
	}
	for i := 0; i < int(s.n); {
		x := &s.slots[i]
		b, ok := rename(x.base)
		if ok && x.v.Kind == Base {
			x.v.Reg, ok = rename(x.v.Reg)
		}
		if !ok {
			s.del(i)
			continue
		}
		x.base = b
		i++
	}
	for i := range s.Regs {
		if v := &s.Regs[i]; v.Kind == Base {
			b, ok := rename(v.Reg)
			v.Reg = b
			if !ok {
				*v = Value{}
			}
		}
	}
}

// merge merges the deliveries of the groups in list and returns the groups whose inputs changed. It drops them then:
// only a group that is interpreted again delivers anew.
func (p *Program) merge(list []int, outs [][]delivery) map[int]bool {
	dirty := map[int]bool{}
	for _, i := range list {
		for k := range outs[i] {
			d := &outs[i][k]
			fn := p.find(d.to)
			g := int(p.group[fn])
			lo := p.fns[fn].Lo
			// A tail call: where it goes is entered as by a call.
			if d.s.IsInitial() && d.kind == edgeJump {
				if !p.tailIn[d.to] {
					p.tailIn[d.to] = true
					dirty[g] = true
				}
				if e := p.ext[d.to]; e != nil && lo == d.to && !e.contested && !p.fns[fn].Shared {
					e.contested = true
					dirty[g] = true
				}
			}
			// A function that calls enter: its state at the beginning is known without this jump. Or the jump is never
			// taken, see findStrays.
			if lo == d.to && d.kind == edgeJump && !p.fns[fn].Shared && (d.s.IsInitial() || p.callsOnly(fn) || p.stray.has(lo)) {
				continue
			}
			e := p.ext[d.to]
			if e == nil {
				p.ext[d.to] = &external{s: d.s, basis: d.basis, from: i, contested: d.kind == edgeJump && d.to == lo &&
					p.tailIn[lo] && !p.fns[fn].Shared}
				pos, _ := slices.BinarySearch(p.extOf[fn], d.to)
				p.extOf[fn] = slices.Insert(p.extOf[fn], pos, d.to)
				dirty[g] = true
				continue
			}
			// Two groups come with different frames, so neither counts: enter then takes the row.
			if d.kind == edgeJump && d.to == lo && e.from != i && !p.fns[fn].Shared && !e.s.sameFrame(&d.s) {
				if !e.contested {
					e.contested = true
					dirty[g] = true
				}
				continue
			}
			if d.kind == edgePad && padMeet(&e.s, &d.s) {
				dirty[g] = true
			}
			if e.s.meet(&d.s) {
				dirty[g] = true
			}
			if d.basis > e.basis {
				e.basis = d.basis
				dirty[g] = true
			}
		}
		outs[i] = nil
	}
	return dirty
}
