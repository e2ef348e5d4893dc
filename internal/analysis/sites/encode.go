package sites

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// This file writes tables. Most functions take a few bytes: a difference from the function before, and sites of one
// call each.

// Numbers of the format, docs/abi.md section 6.
const (
	headerSize      = 24
	personalitySize = 16
	groupSize       = 8
	perGroup        = 32 // functions in a group

	personalityIndirect = 1 << 0

	alignment = 16 // of most functions

	// Most calls have a displacement of 32 bits, and most sites are one call.
	callSize = 5

	// The distance of a site is multiplied by forms.
	formSkip    = 0 // a skip of callSize
	formCleanup = 1 // a cleanup of callSize
	formOther   = 2 // size and kind follow
	forms       = 3

	// In the place of the kind: arguments and kind follow.
	kindArgs = 6
)

// ErrFormat is wrapped by the errors of Encode and Decode.
var ErrFormat = errors.New("malformed table of sites")

// aligned rounds an address up to where functions usually begin.
func aligned(a Addr) Addr { return (a + alignment - 1) &^ (alignment - 1) }

// Encode returns the encoded table; it is empty if there is no function. The error wraps ErrFormat: code of 4 GB and
// more, since groups have 32 bits for their distance.
func (t *Table) Encode() ([]byte, error) {
	if len(t.Functions) == 0 {
		return nil, nil
	}
	base := t.Functions[0].Start
	if last := t.Functions[len(t.Functions)-1]; last.End-base > 1<<32-1 {
		return nil, fmt.Errorf("%w: functions %#x bytes apart", ErrFormat, uint64(last.End-base))
	}
	le := binary.LittleEndian
	var groups, stream []byte
	var before state
	for i := range t.Functions {
		f := &t.Functions[i]
		// A group begins with a state of its start alone, so that a reader can begin at any group.
		if i%perGroup == 0 {
			before = groupState(f.Start, base)
			groups = le.AppendUint32(groups, uint32(f.Start-base))
			groups = le.AppendUint32(groups, uint32(len(stream)))
		}
		stream = before.appendFunction(stream, f)
	}
	b := le.AppendUint64(nil, uint64(base))
	for _, n := range []int{len(t.Functions), len(groups) / groupSize, len(t.Personalities), len(stream)} {
		b = le.AppendUint32(b, uint32(n))
	}
	for _, p := range t.Personalities {
		b = le.AppendUint64(b, uint64(p.Addr))
		flags := uint64(0)
		if p.Indirect {
			flags |= personalityIndirect
		}
		b = le.AppendUint64(b, flags)
	}
	b = append(b, groups...)
	return append(b, stream...), nil
}

// state holds what the encoding of a function is relative to: the end, the LSDA and the personality of
// the function before it.
type state struct {
	end, lsda   Addr
	personality int // as in Function; unknown before the first function of a group
}

// unknown is no personality of a Function.
const unknown = -2

// groupState returns the state before the first function of a group, which can be read without the other groups.
// base is the start of the table's first function.
func groupState(start, base Addr) state { return state{start, base, unknown} }

// appendFunction appends a function: start, size, and the size and content of its body. A reader that looks for another
// pc steps over the body by its size.
func (st *state) appendFunction(b []byte, f *Function) []byte {
	// The start counts from the end before: in bytes, or, if aligned, in multiples of the
	// alignment.
	start := uint64(f.Start-st.end)<<2 | 2
	if f.Start%alignment == 0 {
		start = uint64(f.Start-aligned(st.end)) / alignment << 2
	}
	var body []byte
	if f.Personality != st.personality {
		start |= 1
		body = binary.AppendUvarint(body, uint64(f.Personality+1))
		st.personality = f.Personality
	}
	if f.Personality >= 0 {
		body = binary.AppendUvarint(body, uint64(f.LSDA-st.lsda))
		st.lsda = f.LSDA
		end := f.Start // of the site before
		for i := range f.Sites {
			body = f.Sites[i].append(body, end, f)
			end = f.Sites[i].End
		}
	}
	st.end = f.End
	b = binary.AppendUvarint(b, start)
	b = binary.AppendUvarint(b, uint64(f.End-f.Start))
	b = binary.AppendUvarint(b, uint64(len(body)))
	return append(b, body...)
}

// append appends a site of f; end is the end of the site before it.
func (s *Site) append(b []byte, end Addr, f *Function) []byte {
	size, form := uint64(s.End-s.Start), uint64(formOther)
	switch {
	case s.Args != 0:
	case size == callSize && s.Kind == Cleanup:
		form = formCleanup
	case size == callSize && s.Kind == Skip:
		form = formSkip
	}
	b = binary.AppendUvarint(b, uint64(s.Start-end)*forms+form)
	switch {
	case s.Args != 0:
		b = binary.AppendUvarint(b, size<<3|kindArgs)
		b = binary.AppendUvarint(b, s.Args)
		b = binary.AppendUvarint(b, uint64(s.Kind))
	case form == formOther:
		b = binary.AppendUvarint(b, size<<3|uint64(s.Kind))
	}
	if s.Kind.HasPad() {
		b = binary.AppendUvarint(b, uint64(f.End-s.Pad))
	}
	return b
}
