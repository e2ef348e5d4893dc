package check

import (
	"errors"
	"fmt"
	"iter"

	"github.com/ehasm/ehasm/dwarfcfa"
)

// This file checks .eh_frame as a whole. Unwinders find FDEs in two ways: libgcc, libunwind and perf by a binary search
// in the table of .eh_frame_hdr (LSB 5.0 §10.6.2), gdb by reading all of .eh_frame. Where the two differ, one of
// them has wrong rows.

// whole adds the findings about .eh_frame as a whole. They rest on the tables alone, so they have ClassTable; their PC
// is where the range begins.
func (s *Subject) whole(rep *Report) {
	add := func(kind Kind, severity Severity, lo, hi uint64, is, says string) {
		f := Finding{Kind: kind, Severity: severity, Class: ClassTable, Start: lo, PC: lo, End: hi, Actual: is, Claimed: says}
		s.name(&f, hi)
		rep.Findings = append(rep.Findings, f)
	}
	for _, b := range s.LSDAs {
		if !errors.Is(b.Err, dwarfcfa.ErrUnsupported) {
			add(KindLSDA, SeverityError, uint64(b.FDE.Start), uint64(b.FDE.End), errors.Unwrap(b.Err).Error(), "an area")
		}
	}
	if s.Frame == nil || s.Frame.Hdr() == nil {
		return
	}
	hdr, section := s.Frame.Hdr(), uint64(s.Frame.Addr)
	if n := s.Frame.Rewritten(); n > 0 {
		add(KindLoader, SeverityNote, section, section, fmt.Sprintf("%d pointers are written by the loader", n),
			"as in the file")
	}
	if s.Behind > 0 && hdr.Searched {
		add(KindTerminator, SeverityNote, section+s.Behind, section+s.Behind, "a terminator", "an entry")
	}
	s.header(hdr, add)
	search := searcher{s: s, fdes: map[uint64]*dwarfcfa.FDE{}}
	for i, fde := range s.FDEs {
		if !s.first(i) || fde.Section() != s.Frame {
			continue
		}
		if !hdr.Searched { // libgcc walks .eh_frame up to the terminator
			if s.Behind > 0 && fde.Offset > s.Behind {
				add(KindHidden, SeverityError, uint64(fde.Start), uint64(fde.End), "no FDE", "an FDE")
			}
			continue
		}
		for lo, hi := range search.lost(fde) {
			if search.find(lo) == nil {
				add(KindHidden, SeverityError, uint64(lo), uint64(hi), "no FDE", "an FDE")
			} else {
				add(KindOverlap, SeverityNote, uint64(lo), uint64(hi), "of another FDE, too",
					"of the FDE of "+hex(uint64(fde.Start)))
			}
		}
	}
}

// searcher finds FDEs as libgcc does.
type searcher struct {
	s    *Subject
	fdes map[uint64]*dwarfcfa.FDE // by offset, those that were asked for
	pcs  int                      // that lost has looked at
}

// maxSearched bounds searcher.pcs, 16 million: tables of hostile files could ask for a search per byte of gigabytes.
// What follows counts as what is found for the last pc before.
const maxSearched = 1 << 24

// find returns the FDE that libgcc finds for a pc, nil for none. libgcc takes the entry that the search ends at and
// then checks the FDE's own range, so this does, too.
func (q *searcher) find(pc dwarfcfa.Addr) *dwarfcfa.FDE {
	start, offset, _ := q.s.Frame.Found(pc)
	f, ok := q.fdes[offset]
	if !ok {
		f = q.s.Frame.FDEAt(offset)
		q.fdes[offset] = f
	}
	if f != nil && start <= pc && pc-start < f.End-f.Start {
		return f
	}
	return nil
}

// owns reports whether libgcc finds the FDE for a pc.
func (q *searcher) owns(fde *dwarfcfa.FDE, pc dwarfcfa.Addr) bool {
	start, offset, ok := q.s.Frame.Found(pc)
	return ok && offset == fde.Offset && start <= pc && pc-start < fde.End-fde.Start
}

// lost yields the ranges of an FDE for which libgcc finds none or another. If libgcc finds it at both ends, the search
// took the same turns for both, and so takes them for every pc between, also in a table out of order.
func (q *searcher) lost(fde *dwarfcfa.FDE) iter.Seq2[dwarfcfa.Addr, dwarfcfa.Addr] {
	return func(yield func(lo, hi dwarfcfa.Addr) bool) {
		pc := fde.Start
		if q.owns(fde, pc) && q.owns(fde, fde.End-1) {
			return
		}
		for pc < fde.End {
			lo, own, found := pc, q.owns(fde, pc), q.find(pc)
			for pc < fde.End && q.owns(fde, pc) == own && q.find(pc) == found {
				if q.pcs++; q.pcs > maxSearched {
					pc = fde.End - 1
				}
				pc++
			}
			if !own && !yield(lo, pc) {
				return
			}
		}
	}
}

// header compares the table of .eh_frame_hdr with .eh_frame.
func (s *Subject) header(hdr *dwarfcfa.Hdr, add func(kind Kind, severity Severity, lo, hi uint64, is, says string)) {
	section := uint64(s.Frame.Addr)
	if hdr.EHFrame != s.Frame.Addr {
		add(KindHeader, SeverityNote, section, section, ".eh_frame is at "+hex(section), "it is at "+hex(uint64(hdr.EHFrame)))
	}
	if hdr.Says > hdr.Pairs && hdr.Searched {
		add(KindHeader, SeverityError, section, section, fmt.Sprintf("there is room for %d entries", hdr.Pairs),
			fmt.Sprintf("%d", hdr.Says))
	}
	for i, k := 0, 0; i < hdr.Pairs; i++ {
		start, offset := s.Frame.Pair(i)
		for k < len(s.FDEs) && s.FDEs[k].Start < start {
			k++
		}
		if k < len(s.FDEs) && s.FDEs[k].Start == start && s.FDEs[k].Offset == offset {
			continue
		}
		switch fde := s.Frame.FDEAt(offset); {
		case fde == nil:
			end := start
			if i+1 < hdr.Pairs {
				end, _ = s.Frame.Pair(i + 1)
			}
			add(KindHeader, SeverityError, uint64(start), uint64(max(start, end)), "no FDE is at "+hex(section+offset),
				"the FDE of "+hex(uint64(start)))
		case fde.Start != start:
			add(KindHeader, SeverityError, uint64(start), uint64(start+fde.End-fde.Start),
				"it begins at "+hex(uint64(fde.Start)), "an FDE begins at "+hex(uint64(start)))
		}
	}
}
