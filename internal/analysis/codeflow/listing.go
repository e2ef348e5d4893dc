package codeflow

import (
	"slices"

	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file holds the decoded code of a group. Tables by offset, one entry for each byte of code, make every question
// about an address one load.

// listing holds the code of a group of functions, as far as it was decoded. Offsets number the bytes of all parts.
type listing struct {
	p     *Program
	rows  Beginner // may be nil
	parts []part   // ascending
	cur   int      // index of the part looked up last

	ins    []x86.Inst
	pcs    []uint64 // of ins
	instAt []int32  // by offset: 1 + index in ins; 0: no instruction begins there
	// by offset: 1 + index in joins.states; -1: a leader (first instruction of a block) without state; 0: no leader
	lead  []int32
	todo  []uint64 // addresses to decode
	split []uint64 // leaders that discover found inside blocks decoded earlier, and jumps that got new targets
	large bool     // the group has more than maxCode bytes and is not interpreted

	switches tables          // where its indirect jumps lead
	never    map[uint64]bool // calls taken not to return, since the code after them contradicts the state there
}

// part is a function of the group being interpreted.
type part struct {
	fn   *Function
	i    int // index among the program's functions
	code []byte
	off  int // offset of its first byte

	gap     bool // code other than padding may be left unreached
	other   bool // its row describes another state at its start than a call leaves
	above   bool // begun as after a call, it leaves with rsp above the return address, or returns with an unknown one
	level   bool // begun as after a call, it returns, or jumps to a called function, with rsp at the return address
	returns bool // as level, but it returns
	breach  breach
	onward  []uint64
	begun   []uint64 // where rest began, ascending: nothing leads there
}

func (p *part) end() uint64 { return p.fn.Lo + uint64(len(p.code)) }

// site returns the call site that holds pc, or nil.
func (p *part) site(pc uint64) *Site {
	ss := p.fn.Sites
	lo, hi := 0, len(ss)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if ss[m].Hi <= pc {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(ss) && pc >= ss[lo].Lo {
		return &ss[lo]
	}
	return nil
}

// begin prepares l for the functions of a group.
func (l *listing) begin(members []int) {
	l.switches.begin()
	l.parts, l.cur = l.parts[:0], 0
	n := 0
	for _, i := range members {
		fn := &l.p.fns[i]
		code := l.p.img.Code(fn.Lo)
		if uint64(len(code)) > fn.Hi-fn.Lo {
			code = code[:fn.Hi-fn.Lo]
		}
		l.parts = append(l.parts, part{fn: fn, i: i, code: code, off: n, gap: true})
		// One more: a place behind a part is not the first byte of the next one.
		n += len(code) + 1
	}
	if l.large = n > maxCode; l.large {
		for k := range l.parts {
			l.parts[k].code, l.parts[k].off = nil, k
		}
		n = len(l.parts)
	}
	if cap(l.instAt) < n {
		l.instAt, l.lead = make([]int32, n+n/2+64), make([]int32, n+n/2+64)
	}
	l.instAt, l.lead = l.instAt[:n], l.lead[:n]
	clear(l.instAt)
	clear(l.lead)
	l.ins, l.pcs = l.ins[:0], l.pcs[:0]
}

// partOf returns the part that holds pc, or nil.
func (l *listing) partOf(pc uint64) *part {
	if p := &l.parts[l.cur]; pc-p.fn.Lo < uint64(len(p.code)) {
		return p
	}
	for k := range l.parts {
		if p := &l.parts[k]; pc-p.fn.Lo < uint64(len(p.code)) {
			l.cur = k
			return p
		}
	}
	return nil
}

// pos returns the offset of pc, or -1 if it is in no part.
func (l *listing) pos(pc uint64) int {
	if p := &l.parts[l.cur]; pc-p.fn.Lo < uint64(len(p.code)) {
		return int(pc-p.fn.Lo) + p.off
	}
	if p := l.partOf(pc); p != nil {
		return int(pc-p.fn.Lo) + p.off
	}
	return -1
}

// pc returns the address of an offset.
func (l *listing) pc(o int) uint64 {
	k := len(l.parts) - 1
	for l.parts[k].off > o {
		k--
	}
	l.cur = k
	return l.parts[k].fn.Lo + uint64(o-l.parts[k].off)
}

func (l *listing) inside(pc uint64) bool { return l.partOf(pc) != nil }

// inst returns the index of the decoded instruction at pc, or -1 if none begins there.
func (l *listing) inst(pc uint64) int {
	if o := l.pos(pc); o >= 0 {
		return int(l.instAt[o]) - 1
	}
	return -1
}

// leader marks pc as the first instruction of a block.
func (l *listing) leader(pc uint64) {
	if o := l.pos(pc); o >= 0 && l.lead[o] == 0 {
		l.lead[o] = -1
	}
}

// prev returns the index of the decoded instruction that ends at pc.
func (l *listing) prev(pc uint64) (int32, bool) {
	p := l.partOf(pc)
	if p == nil {
		return 0, false
	}
	return l.before(p, pc)
}

// before is prev for a given part; pc may be its end. An instruction has at most 15 bytes (Intel SDM volume 2, 2.3.11).
func (l *listing) before(p *part, pc uint64) (int32, bool) {
	o := int(pc-p.fn.Lo) + p.off
	for d := 1; d <= 15 && o-d >= p.off; d++ {
		if i := l.instAt[o-d]; i > 0 && int(l.ins[i-1].Len) == d {
			return i - 1, true
		}
	}
	return 0, false
}

// stops reports whether control does not go on to the instruction after in, at pc.
func (l *listing) stops(pc uint64, in *x86.Inst) bool {
	return in.Op == x86.OpJMP || ends(in.Op) || in.Op == x86.OpCALL && l.callNever(pc, in)
}

// splits reports whether pc lies inside a reached instruction, other than at its first byte.
func (l *listing) splits(pc uint64) bool {
	p := l.partOf(pc)
	if p == nil || l.instAt[l.pos(pc)] > 0 {
		return false
	}
	o := l.pos(pc)
	for d := 1; d < 15 && o-d >= p.off; d++ {
		if k := l.instAt[o-d]; k > 0 {
			return int(l.ins[k-1].Len) > d
		}
	}
	return false
}

// leaderOf returns the offset of the leader whose block holds the reached instruction at pc: the last one with a state
// at or before pc in the same part; -1 if there is none.
func (l *listing) leaderOf(pc uint64) int {
	p := l.partOf(pc)
	for o := l.pos(pc); o >= p.off; o-- {
		if l.lead[o] > 0 {
			return o
		}
	}
	return -1
}

// ends reports whether a part of the group ends at t: another function begins there.
func (l *listing) ends(t uint64) bool {
	return slices.ContainsFunc(l.parts, func(p part) bool { return p.fn.Hi == t })
}

// jumpsTo reports whether a part of the group jumps to pc from elsewhere.
func (l *listing) jumpsTo(pc uint64) bool {
	for k := range l.parts {
		if _, found := slices.BinarySearch(l.p.sum[l.parts[k].i].outs, pc); found {
			return true
		}
	}
	return false
}
