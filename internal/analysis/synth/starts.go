package synth

import (
	"slices"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/internal/analysis/codeflow"
	"github.com/ehasm/ehasm/internal/analysis/x86"
)

// This file finds where functions begin in code without FDEs: by symbols, relocations, calls and addresses that are
// taken. A start too many cuts a function, whose second part then begins in a wrong state; one too few merges two, and
// only the first gets rows. So each source counts as much as it proves.

// span is a stretch of code, [lo, hi).
type span struct{ lo, hi uint64 }

// gaps returns the parts of executable sections that no function of known covers;
// known is sorted and disjoint. PLTs are returned separately: see pltRows.
func gaps(img *codeflow.Image, described []codeflow.Function) (code, plts []span) {
	img.Executable(func(name string, lo, hi uint64) {
		list := &code
		if strings.HasPrefix(name, ".plt") || name == ".iplt" {
			list = &plts
		}
		addr := lo
		first := sort.Search(len(described), func(i int) bool { return described[i].Hi > lo })
		for i := first; i < len(described) && described[i].Lo < hi; i++ {
			if described[i].Lo > addr {
				*list = append(*list, span{addr, described[i].Lo})
			}
			addr = max(addr, described[i].Hi)
		}
		if addr < hi {
			*list = append(*list, span{addr, hi})
		}
	})
	return code, plts
}

// trim drops the padding at the start of a gap; ok is false if the gap is all
// padding.
func trim(img *codeflow.Image, g span) (_ span, ok bool) {
	code := img.Code(g.lo)
	var in x86.Inst
	for g.lo < g.hi && len(code) > 0 {
		n := 1
		if code[0] != 0 { // zeros are no instruction that anything begins with
			if x86.Decode(code, &in) != nil || !codeflow.IsPadding(&in) {
				return g, true
			}
			n = int(in.Len)
		}
		n = min(n, len(code))
		code, g.lo = code[n:], g.lo+uint64(n)
	}
	return g, false
}

// stops reports whether control never goes on to the next instruction.
func stops(op x86.Op) bool {
	switch op {
	case x86.OpRET, x86.OpJMP, x86.OpUD2, x86.OpHLT, x86.OpINT3, x86.OpIRET:
		return true
	}
	return false
}

// trimAll drops the padding at the starts of gaps, and gaps that are all padding.
func trimAll(img *codeflow.Image, list []span) (out []span) {
	for _, g := range list {
		if g, ok := trim(img, g); ok {
			out = append(out, g)
		}
	}
	return out
}

// startSet collects the addresses at which functions begin.
type startSet struct {
	img     *codeflow.Image
	certain map[uint64]bool // symbols, relocations, targets of calls, and addresses that described code takes
	called  map[uint64]bool // of these, those that are known from more than a symbol or a relocation
	taken   map[uint64]bool // addresses that lea takes in code without FDEs: functions, labels or data
	gaps    []span          // the code in question, ascending
	refers  map[uint64]bool // starts of described functions that are called, or whose address is taken

	jumped bool // the last sweep met a jump into a gap
}

// newStartSet begins with what the file itself says: symbols and relocations. .init and .fini have no symbol in
// stripped files, but the loader calls them.
func newStartSet(img *codeflow.Image, gaps []span) *startSet {
	s := &startSet{img: img, certain: map[uint64]bool{}, called: map[uint64]bool{}, taken: map[uint64]bool{},
		refers: map[uint64]bool{}, gaps: gaps}
	img.Starts(func(a uint64) { s.certain[a] = true })
	img.Labels(func(a uint64) { s.taken[a] = true })
	img.Pointers(func(a uint64) { s.certain[a] = true })
	img.Executable(func(name string, lo, _ uint64) {
		if name == ".init" || name == ".fini" {
			s.call(lo)
		}
	})
	img.ForeignBounds(s.call)
	return s
}

func (s *startSet) call(pc uint64) { s.certain[pc], s.called[pc] = true, true }

// inside reports whether a symbol's function holds pc and does not begin there.
func (s *startSet) inside(pc uint64) bool {
	f, ok := s.img.Symbol(pc)
	return ok && f.Size > 0 && f.Addr < pc
}

// inGap reports whether an address lies in the code in question.
func (s *startSet) inGap(pc uint64) bool {
	i := sort.Search(len(s.gaps), func(i int) bool { return s.gaps[i].hi > pc })
	return i < len(s.gaps) && s.gaps[i].lo <= pc
}

// contributors looks through the described functions for starts in gaps, and returns those that
// control can leave for a gap other than by a call: only they determine the state there.
func (s *startSet) contributors(described []codeflow.Function) (out []codeflow.Function) {
	known := !slices.ContainsFunc(s.gaps, func(g span) bool {
		name := s.img.SectionOf(g.lo)
		return name != ".init" && name != ".fini" // those are one function, which the loader calls
	})
	if known {
		return nil
	}
	for i := range described {
		s.refers[described[i].Lo] = false
	}
	next := 0
	for i := range described {
		f := &described[i]
		s.jumped = false
		s.sweep(span{f.Lo, f.Hi}, true)
		for next < len(s.gaps) && s.gaps[next].lo < f.Hi {
			next++
		}
		if s.jumped || next < len(s.gaps) && s.gaps[next].lo == f.Hi {
			out = append(out, *f)
		}
	}
	for i := range out {
		out[i].Entry = s.refers[out[i].Lo] || s.certain[out[i].Lo]
	}
	return out
}

// refer notes that a described function is called, or its address taken.
func (s *startSet) refer(pc uint64) {
	if _, ok := s.refers[pc]; ok {
		s.refers[pc] = true
	}
}

// sweep decodes a span of code from its first byte to its last. Compiled code, which is
// described, does not take addresses of labels in other functions; hand-written code takes and
// jumps to them.
func (s *startSet) sweep(g span, described bool) {
	code := s.img.Code(g.lo)
	code = code[:min(uint64(len(code)), g.hi-g.lo)]
	var in x86.Inst
	for off := 0; off < len(code); {
		off += x86.Zeros(code[off:])
		if off == len(code) || x86.Decode(code[off:], &in) != nil {
			off++
			continue
		}
		pc := g.lo + uint64(off)
		off += int(in.Len)
		t, ok := in.RelTarget(pc)
		if !ok {
			continue
		}
		switch in.Op {
		case x86.OpCALL:
			switch {
			// A call of the next instruction, which pops the return address to learn where it is: no function begins
			// there.
			case in.Imm == 0 && t < g.hi && s.img.TakesAddress(t):
			case s.inGap(t):
				s.call(t)
			default:
				s.refer(t)
			}
		case x86.OpJMP, x86.OpJCC:
			s.jumped = s.jumped || s.inGap(t)
		case x86.OpLEA:
			switch {
			case !s.inGap(t):
				s.refer(t)
			case described:
				s.call(t)
			default:
				s.taken[t] = true
			}
		}
	}
}

// undescribed returns the functions in gaps. A function ends where the next begins; if
// control flows from one to the next, only the analysis treats them as one.
func (s *startSet) undescribed(list []span) (out []codeflow.Function) {
	for _, g := range list {
		addr := g.lo
		for _, cut := range append(s.cuts(g), g.hi) {
			out = append(out, codeflow.Function{Lo: addr, Hi: cut, Shared: true, Entry: s.called[addr],
				Signal: s.img.Foreign(addr)})
			addr = cut
		}
	}
	return out
}

// cuts returns the addresses inside a gap at which further functions begin,
// ascending.
func (s *startSet) cuts(g span) (cuts []uint64) {
	code := s.img.Code(g.lo)
	code = code[:min(uint64(len(code)), g.hi-g.lo)]
	var in x86.Inst
	var jumps []jump
	quiet := false // nothing flows to here: after a jump, return, trap or a call of abort, and padding after it
	for off := 0; off < len(code); {
		if n := x86.Zeros(code[off:]); n > 0 && quiet {
			off += n
			continue
		}
		pc := g.lo + uint64(off)
		if pc > g.lo && (s.certain[pc] || s.taken[pc] && quiet && !s.inside(pc)) {
			cuts = append(cuts, pc)
		}
		if x86.Decode(code[off:], &in) != nil {
			off++
			quiet = true
			continue
		}
		off += int(in.Len)
		quiet = stops(in.Op) || quiet && codeflow.IsPadding(&in) || in.Op == x86.OpCALL && in.Args[0].Kind == x86.KRel &&
			s.img.NeverReturns(in.Target(pc))
		if (in.Op == x86.OpJMP || in.Op == x86.OpJCC) && in.Args[0].Kind == x86.KRel {
			if t := in.Target(pc); t > g.lo && t < g.hi {
				jumps = append(jumps, jump{pc, t})
			}
		}
	}
	cuts = s.dropLabels(cuts, jumps)
	// Starts that a linear pass from the gap's begin does not meet: after data.
	for pc := range s.certain {
		if pc > g.lo && pc < g.hi {
			if i, found := slices.BinarySearch(cuts, pc); !found {
				cuts = slices.Insert(cuts, i, pc)
			}
		}
	}
	return cuts
}

// dropLabels drops, of the cuts that only a lea supports, those over which a jump leads to a place that is not a start:
// they are labels, to which a function jumps through a register. A jump over a certain start is a tail call or belongs
// to other code, and says nothing.
func (s *startSet) dropLabels(cuts []uint64, jumps []jump) []uint64 {
	label := make([]bool, len(cuts))
	for _, j := range jumps {
		lo, hi := min(j.from, j.to), max(j.from, j.to)
		first := sort.Search(len(cuts), func(i int) bool { return cuts[i] > lo })
		last := sort.Search(len(cuts), func(i int) bool { return cuts[i] > hi })
		if _, start := slices.BinarySearch(cuts, j.to); start ||
			slices.ContainsFunc(cuts[first:last], func(c uint64) bool { return s.certain[c] }) {
			continue
		}
		for i := first; i < last; i++ {
			label[i] = true
		}
	}
	kept := cuts[:0]
	for i, c := range cuts {
		if !label[i] {
			kept = append(kept, c)
		}
	}
	return kept
}

// jump is a direct jump.
type jump struct{ from, to uint64 }
