package synth

import (
	"slices"
	"sort"
	"strings"

	"github.com/ehasm/ehasm/codeflow"
	"github.com/ehasm/ehasm/x86"
)

// span is a stretch of code, [lo, hi).
type span struct{ lo, hi uint64 }

// gaps are the parts of executable sections that no function of known, which is sorted
// and disjoint, covers. PLTs are apart: see pltRows.
func gaps(img *codeflow.Image, known []codeflow.Function) (code, plts []span) {
	img.Executable(func(name string, lo, hi uint64) {
		list := &code
		if strings.HasPrefix(name, ".plt") || name == ".iplt" {
			list = &plts
		}
		at := lo
		first := sort.Search(len(known), func(i int) bool { return known[i].Hi > lo })
		for i := first; i < len(known) && known[i].Lo < hi; i++ {
			if known[i].Lo > at {
				*list = append(*list, span{at, known[i].Lo})
			}
			at = max(at, known[i].Hi)
		}
		if at < hi {
			*list = append(*list, span{at, hi})
		}
	})
	return code, plts
}

// trim drops the padding at the start of a gap; ok is false where nothing else is in it.
func trim(img *codeflow.Image, g span) (_ span, ok bool) {
	code := img.Code(g.lo)
	var in x86.Inst
	for g.lo < g.hi && len(code) > 0 {
		n := 1
		if code[0] != 0 { // zeros are no instruction that anything begins with
			if x86.Decode(code, &in) != nil || !isFill(&in) {
				return g, true
			}
			n = int(in.Len)
		}
		n = min(n, len(code))
		code, g.lo = code[n:], g.lo+uint64(n)
	}
	return g, false
}

// isFill reports whether an instruction is what assemblers and linkers fill gaps with.
func isFill(in *x86.Inst) bool {
	switch in.Op {
	case x86.OpNOP, x86.OpINT3:
		return true
	case x86.OpXCHG: // 66 90
		return in.Opcode == 0x90
	}
	return false
}

// stops reports whether nothing flows from an instruction to the next.
func stops(op x86.Op) bool {
	switch op {
	case x86.OpRET, x86.OpJMP, x86.OpUD2, x86.OpHLT, x86.OpINT3, x86.OpIRET:
		return true
	}
	return false
}

// startSet collects the addresses at which functions begin.
type startSet struct {
	img     *codeflow.Image
	certain map[uint64]bool      // symbols, relocations, targets of calls, and what described code takes the address of
	taken   map[uint64]bool      // addresses that lea takes in code that nothing describes: functions, labels or data
	inside  func(pc uint64) bool // a symbol's function holds pc, and does not begin there
}

// sweep decodes a stretch of code from its first byte to its last. Compilers' code, which is
// described, has no use for the address of a label elsewhere; hand-written code jumps to them.
func (s *startSet) sweep(g span, described bool) {
	code := s.img.Code(g.lo)
	code = code[:min(uint64(len(code)), g.hi-g.lo)]
	var in x86.Inst
	for at := 0; at < len(code); {
		if x86.Decode(code[at:], &in) != nil {
			at++
			continue
		}
		pc := g.lo + uint64(at)
		at += int(in.Len)
		switch in.Op {
		case x86.OpCALL:
			if in.Args[0].Kind == x86.KRel && in.Imm != 0 {
				s.certain[in.Target(pc)] = true
			}
		case x86.OpLEA:
			if a, ok := in.MemAddr(pc); ok && in.Mem.Base == x86.RIP {
				if described {
					s.certain[a] = true
				} else {
					s.taken[a] = true
				}
			}
		}
	}
}

// undescribed are the functions in gaps. A function ends where the next begins; code that
// flows on from one to the next is one only for the analysis.
func (s *startSet) undescribed(list []span) (out []codeflow.Function) {
	for _, g := range list {
		g, ok := trim(s.img, g)
		if !ok {
			continue
		}
		at := g.lo
		for _, cut := range s.cuts(g) {
			out = append(out, codeflow.Function{Lo: at, Hi: cut, Shared: true})
			at = cut
		}
		out = append(out, codeflow.Function{Lo: at, Hi: g.hi, Shared: true})
	}
	return out
}

// cuts are the addresses inside a gap at which further functions begin, ascending.
func (s *startSet) cuts(g span) (cuts []uint64) {
	code := s.img.Code(g.lo)
	code = code[:min(uint64(len(code)), g.hi-g.lo)]
	var in x86.Inst
	var jumps []jump
	quiet := false // nothing flows to here: after a jump, return or trap, and padding behind it
	for at := 0; at < len(code); {
		pc := g.lo + uint64(at)
		if pc > g.lo && (s.certain[pc] || s.taken[pc] && quiet && !s.inside(pc)) {
			cuts = append(cuts, pc)
		}
		if x86.Decode(code[at:], &in) != nil {
			at++
			quiet = true
			continue
		}
		at += int(in.Len)
		quiet = stops(in.Op) || quiet && isFill(&in)
		if (in.Op == x86.OpJMP || in.Op == x86.OpJCC) && in.Args[0].Kind == x86.KRel {
			if t := in.Target(pc); t > g.lo && t < g.hi {
				jumps = append(jumps, jump{pc, t})
			}
		}
	}
	cuts = s.dropLabels(cuts, jumps)
	// Starts that a linear pass from the gap's begin does not meet: behind data.
	for pc := range s.certain {
		if pc > g.lo && pc < g.hi {
			if i, found := slices.BinarySearch(cuts, pc); !found {
				cuts = slices.Insert(cuts, i, pc)
			}
		}
	}
	return cuts
}

// dropLabels drops the cuts, of those that only lea speaks for, that a jump goes over to what is
// no start: they are labels, to which a function jumps by way of a register.
func (s *startSet) dropLabels(cuts []uint64, jumps []jump) []uint64 {
	label := make([]bool, len(cuts))
	for _, j := range jumps {
		lo, hi := min(j.from, j.to), max(j.from, j.to)
		first := sort.Search(len(cuts), func(i int) bool { return cuts[i] > lo })
		last := sort.Search(len(cuts), func(i int) bool { return cuts[i] > hi })
		if _, start := slices.BinarySearch(cuts, j.to); start || slices.ContainsFunc(cuts[first:last], func(c uint64) bool { return s.certain[c] }) {
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
