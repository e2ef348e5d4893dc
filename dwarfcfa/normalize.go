package dwarfcfa

import (
	"cmp"
	"slices"

	"github.com/ehasm/ehasm/abi"
	"github.com/ehasm/ehasm/internal/files/radix"
)

// This file makes disjoint, ascending ranges of what entries say: it drops, cuts and extends, in the order of the
// functions here.

// dropEmpty removes FDEs that cover no pc.
func dropEmpty(spans []span, rep *Report) []span {
	return slices.DeleteFunc(spans, func(sp span) bool {
		if sp.start == sp.end {
			rep.Entries.Empty++
			return true
		}
		return false
	})
}

// clipToCode removes FDEs that start outside the file-backed parts of
// executable segments (debug information of functions that the linker
// discarded is left at address 0), and cuts those that run past the end.
func clipToCode(spans []span, code codeImage, rep *Report) []span {
	var seg segment // the segment of the last span: spans mostly ascend
	kept := spans[:0]
	for _, sp := range spans {
		if sp.start < seg.start || sp.start >= seg.end {
			s, ok := code.segmentOf(sp.start)
			if !ok {
				rep.Entries.OutsideCode++
				continue
			}
			seg = s
		}
		if sp.end > seg.end {
			sp.end = seg.end
			rep.Entries.Clipped++
		}
		kept = append(kept, sp)
	}
	return kept
}

// resolveOverlaps orders spans by address and cuts each where the next one
// starts, which is what a binary search over start addresses answers: past the
// end of an inner FDE there is no information, even inside an outer one. Of
// several FDEs with one start that counts which .eh_frame_hdr names, as for libgcc, or else the first in the section.
func resolveOverlaps(s tableSource, spans []span, rep *Report) []span {
	if !slices.IsSortedFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) }) {
		radix.Sort(spans, func(s *span) uint64 { return uint64(s.start) })
	}
	kept := spans[:0]
	for _, sp := range spans {
		if n := len(kept); n > 0 && kept[n-1].start == sp.start {
			rep.Entries.Shadowed++
			if offset, ok := s.named(sp.start); ok && offset == sp.offset {
				kept[n-1] = sp
			}
			continue
		}
		kept = append(kept, sp)
	}
	spans = kept
	for i := 1; i < len(spans); i++ {
		spans[i-1].end = min(spans[i-1].end, spans[i].start)
	}
	return spans
}

// maxPadding is how much of a gap takes the row before it: one less than the usual
// alignment of functions. maxGap is the longest gap that is looked at.
const (
	maxPadding = 15
	maxGap     = 255
)

// fillPadding extends the row before a gap between two functions to the padding in
// the gap: see padding. Ranges and spans are ascending; ranges lie in spans.
//
// The last byte before code that is returned to without a call, such as glibc's
// __start_context after its alignment padding, stays without a row: unwinders look up the
// address before such code. Such code ends the stack or is a signal frame; in Go programs it
// has a row like a function's, but is recognised by its bytes.
func fillPadding(spans []span, ranges []Range, rows []*Row, code codeImage, rep *Report) {
	var text textWindow
	text.read = code.read
	r := 0
	for i := 1; i < len(spans); i++ {
		start, end := spans[i-1].end, spans[i].start
		if start == end || end-start > maxGap {
			continue
		}
		for r < len(ranges) && ranges[r].End < start { // ranges[r] is the last one before the gap
			r++
		}
		if r == len(ranges) || ranges[r].End != start {
			continue // the FDE before the gap was lost
		}
		n := padding(text.at(start, int(end-start)))
		if start+Addr(n) == end && (r+1 < len(ranges) && ranges[r+1].Start == end && returnedTo(rows[ranges[r+1].Row]) ||
			abi.IsSigreturn(text.at(end, abi.MaxSigreturn))) {
			n--
		}
		if n > 0 {
			ranges[r].End = start + Addr(n)
			rep.Rows.FilledGaps++
		}
	}
}

// padding returns how many bytes of a gap take the row before it; gap is what lies there.
//
// A gap counts if it holds nothing but padding. No control flow leads there; but if a call
// that never returns is the last instruction of an FDE, its return address is the first byte
// of the gap, and some unwinders look up the address itself, not the one before it.
func padding(gap []byte) int {
	if !isPadding(gap) {
		return 0
	}
	return min(len(gap), maxPadding)
}

// returnedTo reports whether a row belongs to code that no call precedes.
func returnedTo(row *Row) bool {
	return row.Flags&RowSignal != 0 || row.Flags == 0 && row.Regs[abi.RIP].Kind == RuleUndefined
}

// textWindow reads the image a stretch at a time, for ascending addresses: one read of the file
// serves many gaps.
type textWindow struct {
	read  func(addr Addr, b []byte) int
	start Addr   // address of bytes[0]
	bytes []byte // what the last read has given
	buf   []byte
}

// at returns n bytes at an address, or nil if the image does not hold them.
func (w *textWindow) at(a Addr, n int) []byte {
	const size = 64 << 10 // bytes per read
	if a < w.start || a-w.start > Addr(len(w.bytes)) || len(w.bytes)-int(a-w.start) < n {
		if w.read == nil {
			return nil
		}
		if w.buf == nil {
			w.buf = make([]byte, size)
		}
		w.start = a
		w.bytes = w.buf[:w.read(a, w.buf)]
		if len(w.bytes) < n {
			return nil
		}
	}
	return w.bytes[a-w.start:][:n]
}

// isPadding reports whether b consists only of what assemblers and linkers fill
// gaps with: zeros, int3, and the forms of nop (Intel SDM vol. 2B, "NOP"): 90
// and 0f 1f /0, with operand-size and segment prefixes.
func isPadding(b []byte) bool {
	for len(b) > 0 {
		n := nopLength(b)
		if n == 0 || n > len(b) {
			return false
		}
		b = b[n:]
	}
	return true
}

// nopLength returns the length of the padding instruction b starts with, or 0
// if there is none. It may be larger than len(b).
func nopLength(b []byte) int {
	const (
		zero    = 0x00
		int3    = 0xcc
		nop     = 0x90
		prefix  = 0x66 // operand size
		segment = 0x2e // cs
	)
	if b[0] == zero || b[0] == int3 {
		return 1
	}
	n := 0
	for n < len(b) && (b[n] == prefix || b[n] == segment) {
		n++
	}
	switch rest := b[n:]; {
	case len(rest) >= 1 && rest[0] == nop:
		return n + 1
	case len(rest) >= 3 && rest[0] == 0x0f && rest[1] == 0x1f && rest[2]&0x38 == 0:
		mod, rm := rest[2]>>6, rest[2]&7
		n += 3
		sib := mod != 3 && rm == 4
		if sib {
			n++
		}
		switch {
		case mod == 1:
			n++
		case mod == 2, mod == 0 && rm == 5:
			n += 4
		case mod == 0 && sib && len(rest) >= 4 && rest[3]&7 == 5:
			n += 4
		}
		return n
	}
	return 0
}

// mergeEqual joins neighbours that touch and have the same row.
func mergeEqual(ranges []Range) []Range {
	merged := ranges[:0]
	for _, r := range ranges {
		if n := len(merged); n > 0 && merged[n-1].End == r.Start && merged[n-1].Row == r.Row {
			merged[n-1].End = r.End
			continue
		}
		merged = append(merged, r)
	}
	return merged
}
